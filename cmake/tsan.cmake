# ThreadSanitizer over the parallel path, clang only: gcc's OpenMP runtime is not instrumented, clang's explains its
# synchronisation to the sanitizer through Archer. tests/tsan/race.cpp is a race on purpose: it must be reported, or the
# clean run of the others would mean nothing.
if(NOT CMAKE_CXX_COMPILER_ID MATCHES Clang OR NOT OpenMP_CXX_FOUND)
  message(FATAL_ERROR "ThreadSanitizer needs clang with its OpenMP runtime (libomp-N-dev): configure with --preset tsan")
endif()
enable_testing()
foreach(name race parallel)
  add_executable(tsan_${name} ${PROJECT_SOURCE_DIR}/tests/tsan/${name}.cpp)
  target_link_libraries(tsan_${name} PRIVATE canopy_host OpenMP::OpenMP_CXX)
  add_test(NAME tsan_${name} COMMAND tsan_${name})
  set_tests_properties(tsan_${name} PROPERTIES ENVIRONMENT
    "TSAN_OPTIONS=ignore_noninstrumented_modules=1;OMP_NUM_THREADS=4")
endforeach()
set_tests_properties(tsan_race PROPERTIES PASS_REGULAR_EXPRESSION "ThreadSanitizer: data race")
