# What the program, the tests and the benchmarks share (canopy_host), the program, the Google Benchmark target.
find_package(fmt REQUIRED)
find_package(CLI11 REQUIRED)

file(GLOB host_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/host/*.cpp)
add_library(canopy_host STATIC ${host_sources})
target_compile_options(canopy_host PRIVATE ${warnings})
target_include_directories(canopy_host PUBLIC ${PROJECT_SOURCE_DIR}/src)
target_compile_definitions(canopy_host PUBLIC CANOPY_WITH_CUDA=${CANOPY_WITH_CUDA})
if(CANOPY_WITH_CUDA)
  target_link_libraries(canopy_host PUBLIC CUDA::cudart_static)
endif()
target_link_libraries(canopy_host PUBLIC canopy_static PRIVATE nlohmann_json::nlohmann_json fmt::fmt)
if(OpenMP_CXX_FOUND)
  target_link_libraries(canopy_host PRIVATE OpenMP::OpenMP_CXX)
endif()

if(CANOPY_PROGRAM)
  file(GLOB cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/cli/*.cpp)
  add_executable(canopy_program ${cli_sources})
  set_target_properties(canopy_program PROPERTIES OUTPUT_NAME canopy)
  # -O1: options and JSON, 22 files of them, compile a third faster so; what is measured is in the libraries.
  target_compile_options(canopy_program PRIVATE ${warnings} $<$<NOT:$<BOOL:${CANOPY_SANITIZE}>>:-O1>)
  # `canopy env` and the demo's default data folder; the commit is that of the last configure.
  execute_process(COMMAND git -C ${PROJECT_SOURCE_DIR} describe --always --dirty --abbrev=12 --match=NoTag
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET RESULT_VARIABLE no_git)
  if(no_git)
    set(commit unknown)
  endif()
  set_source_files_properties(${PROJECT_SOURCE_DIR}/cli/env.cpp PROPERTIES COMPILE_DEFINITIONS
    "CANOPY_GIT_COMMIT=\"${commit}\";CANOPY_BUILD_TYPE=\"${CMAKE_BUILD_TYPE}\"")
  set_source_files_properties(${PROJECT_SOURCE_DIR}/cli/demo.cpp PROPERTIES COMPILE_DEFINITIONS
    CANOPY_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(canopy_program PRIVATE canopy_host nlohmann_json::nlohmann_json fmt::fmt CLI11::CLI11)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(canopy_program PRIVATE OpenMP::OpenMP_CXX)
  endif()
endif()

if(CANOPY_BENCH)
  find_package(benchmark QUIET)
  if(benchmark_FOUND)
    add_executable(cpu_benchmark ${PROJECT_SOURCE_DIR}/bench/cpu_benchmark.cpp)
    target_link_libraries(cpu_benchmark PRIVATE canopy_host benchmark::benchmark)
    if(OpenMP_CXX_FOUND)
      target_link_libraries(cpu_benchmark PRIVATE OpenMP::OpenMP_CXX)
    endif()
  endif()
endif()
