# Installs the library into a prefix of its own, then uses it from there as strangers would: find_package with and
# without C++, pkg-config shared and static. (A sanitizer build would need its flags in the consumers.)
if(CANOPY_SANITIZE)
  return()
endif()
set(install_dir ${CMAKE_BINARY_DIR}/install-test)
add_test(NAME install_prefix COMMAND ${CMAKE_COMMAND} --install ${CMAKE_BINARY_DIR} --component library --prefix ${install_dir}/prefix)
set_tests_properties(install_prefix PROPERTIES FIXTURES_SETUP installed LABELS install)

foreach(kind cxx c)
  set(without_cxx OFF)
  if(kind STREQUAL c)
    set(without_cxx ON)
  endif()
  add_test(NAME install_cmake_${kind} COMMAND ${CMAKE_CTEST_COMMAND}
    --build-and-test ${PROJECT_SOURCE_DIR}/tests/install ${install_dir}/cmake-${kind} --build-generator ${CMAKE_GENERATOR}
    --build-options -DCMAKE_PREFIX_PATH=${install_dir}/prefix -DCONSUMER_WITHOUT_CXX=${without_cxx}
      -DCMAKE_C_COMPILER=${CMAKE_C_COMPILER} -DCMAKE_CXX_COMPILER=${CMAKE_CXX_COMPILER}
    --test-command ${CMAKE_CTEST_COMMAND} --output-on-failure --no-tests=error)
  set_tests_properties(install_cmake_${kind} PROPERTIES FIXTURES_REQUIRED installed LABELS install)
endforeach()

find_program(pkg_config pkg-config)
if(pkg_config)
  add_test(NAME install_pkgconfig COMMAND ${PROJECT_SOURCE_DIR}/tests/install/pkgconfig.sh ${PROJECT_SOURCE_DIR}/tests/install
    ${install_dir}/prefix ${install_dir}/pkgconfig ${CMAKE_C_COMPILER} ${CMAKE_CXX_COMPILER})
  set_tests_properties(install_pkgconfig PROPERTIES FIXTURES_REQUIRED installed LABELS install)
endif()
