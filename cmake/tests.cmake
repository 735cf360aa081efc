# Every tests/{unit,property,parity}/NAME.cpp is its own executable build/NAME and its own ctest entry; the label is
# the folder. Tests find files of the repository through CANOPY_SOURCE_DIR and the program through CANOPY_PROGRAM_PATH.
find_package(GTest REQUIRED)
find_package(rapidcheck REQUIRED)
find_package(LAPACK REQUIRED)  # second opinion in tests only

set(CANOPY_TEST_FOLDERS unit property parity CACHE STRING "folders under tests/ to build")
foreach(folder IN LISTS CANOPY_TEST_FOLDERS)
  file(GLOB test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${folder}/*.cpp)
  foreach(source IN LISTS test_sources)
    get_filename_component(name ${source} NAME_WE)
    if(name MATCHES "program_test" AND NOT TARGET canopy_program)
      continue()  # it drives the built program
    endif()
    add_executable(${name} ${source})
    target_compile_options(${name} PRIVATE ${warnings})
    if(NOT CANOPY_SANITIZE)  # what is tested and takes time is in the libraries
      target_compile_options(${name} PRIVATE -O1)
    endif()
    target_compile_definitions(${name} PRIVATE CANOPY_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
      CANOPY_PROGRAM_PATH="${CMAKE_BINARY_DIR}/canopy")
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests)
    target_link_libraries(${name} PRIVATE canopy_host nlohmann_json::nlohmann_json fmt::fmt rapidcheck GTest::gtest_main
      LAPACK::LAPACK)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES LABELS ${folder})
  endforeach()
endforeach()
foreach(name program_test tree_program_test)
  if(TARGET ${name})
    add_dependencies(${name} canopy_program)
  endif()
endforeach()
# The C interface from C; only the final link knows C++.
add_executable(c_interface ${PROJECT_SOURCE_DIR}/tests/unit/c_interface.c)
target_compile_options(c_interface PRIVATE ${warnings} -Wpedantic)
target_link_libraries(c_interface PRIVATE canopy_static m)
set_target_properties(c_interface PROPERTIES LINKER_LANGUAGE CXX)
add_test(NAME c_interface COMMAND c_interface)
set_tests_properties(c_interface PROPERTIES LABELS unit)

# README's quickstart is examples/quickstart.cpp, word for word, and it runs.
add_executable(quickstart ${PROJECT_SOURCE_DIR}/examples/quickstart.cpp)
target_link_libraries(quickstart PRIVATE canopy_static)
add_test(NAME quickstart COMMAND quickstart)
set_tests_properties(quickstart PROPERTIES LABELS unit PASS_REGULAR_EXPRESSION "^ok: ")
add_test(NAME readme_quickstart COMMAND ${CMAKE_COMMAND} -DREADME=${PROJECT_SOURCE_DIR}/README.md
  -DEXAMPLE=${PROJECT_SOURCE_DIR}/examples/quickstart.cpp -P ${PROJECT_SOURCE_DIR}/tests/unit/readme_quickstart.cmake)
# No symbol of a wide instruction set's object may stand in for another object's; sanitizers add harmless ones.
if(NOT CANOPY_SANITIZE)
  add_test(NAME isa_symbols COMMAND ${PROJECT_SOURCE_DIR}/tests/unit/isa_symbols.sh ${CMAKE_NM} $<TARGET_FILE:canopy_static>)
  set_tests_properties(isa_symbols PROPERTIES LABELS unit)
endif()
# The golden problems are what an independent implementation says.
find_package(Python3 COMPONENTS Interpreter)
if(Python3_FOUND)
  add_test(NAME golden_check COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/golden/make_golden.py --check)
endif()
set_tests_properties(readme_quickstart PROPERTIES LABELS unit)

if(NOT CANOPY_SANITIZE)  # compiled and not run
  include(tests/unit/headers.cmake)
endif()
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/install/CMakeLists.txt)
  include(${PROJECT_SOURCE_DIR}/tests/install/tests.cmake OPTIONAL)
endif()

# The CUDA kernels on the emulated GPU. The seed shuffles the order of lanes, warps and copies; the two long groups run so
# only, the others in the plain order too.
if(TARGET gpu_test_emulated)
  foreach(group parity isolation graphs copies strategies conv rounds commit)
    add_test(NAME emulated_${group}_shuffled COMMAND gpu_test_emulated ${group} --light)
    set_tests_properties(emulated_${group}_shuffled PROPERTIES LABELS emulated ENVIRONMENT CANOPY_EMULATED_SEED=1)
    if(NOT group MATCHES "parity|isolation")
      add_test(NAME emulated_${group} COMMAND gpu_test_emulated ${group} --light)
      set_tests_properties(emulated_${group} PROPERTIES LABELS emulated)
    endif()
  endforeach()
  if(TARGET canopy_emulated AND Python3_FOUND)
    add_test(NAME emulated_program COMMAND ${Python3_EXECUTABLE} ${PROJECT_SOURCE_DIR}/tests/emulated/program.py
      $<TARGET_FILE:canopy_emulated>)
    set_tests_properties(emulated_program PROPERTIES LABELS emulated)
  endif()
  # First, so that a core does not wait alone for the longest at the end.
  set_tests_properties(emulated_parity_shuffled emulated_isolation_shuffled PROPERTIES COST 1000)
endif()
