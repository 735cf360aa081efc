# The tests on a device: one executable, build/gpu_test. It is linked so that where it runs it needs the driver and a C
# library alone: static archives come first, and what they answered is not looked for in shared libraries.
file(GLOB gpu_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/*.cpp)
add_executable(gpu_test EXCLUDE_FROM_ALL ${gpu_test_sources})
target_compile_options(gpu_test PRIVATE ${warnings})
target_include_directories(gpu_test PRIVATE ${PROJECT_SOURCE_DIR}/tests)
target_link_libraries(gpu_test PRIVATE canopy_host canopy_static)
# The program likewise, for `canopy bench --device cuda` elsewhere.
function(canopy_link_alone target)  # TARGET LIBRARY...: those that ask for what the archives answer
  foreach(archive libfmt.a libgomp.a)
    execute_process(COMMAND ${CMAKE_CXX_COMPILER} -print-file-name=${archive} OUTPUT_VARIABLE path OUTPUT_STRIP_TRAILING_WHITESPACE)
    if(EXISTS ${path})
      target_link_libraries(${target} PRIVATE ${ARGN} ${path})
    endif()
  endforeach()
  target_link_options(${target} PRIVATE -static-libgcc -static-libstdc++ -Wl,--as-needed)
endfunction()
canopy_link_alone(gpu_test canopy_host canopy_static)
if(TARGET canopy_program)
  canopy_link_alone(canopy_program canopy_host canopy_static)
endif()
if(OpenMP_CXX_FOUND)
  target_compile_options(gpu_test PRIVATE ${OpenMP_CXX_FLAGS})
endif()

# build/tile_times: variants of the fused kernel's CTAs, each a module in a file (scripts/tune_tiles.py), timed beside one
# another. It has no kernel but the plan's.
canopy_cuda_library(tile_module EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/tiles/module.cu ${PROJECT_SOURCE_DIR}/src/cuda/plan.cu)
add_executable(tile_times EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/tiles/times.cpp ${host_sources}
  $<TARGET_OBJECTS:tile_module> $<TARGET_OBJECTS:canopy_core> ${isa_objects})
target_compile_options(tile_times PRIVATE ${warnings})
target_compile_definitions(tile_times PRIVATE CANOPY_WITH_CUDA=1 CANOPY_VERSION="${PROJECT_VERSION}")
target_include_directories(tile_times PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
target_include_directories(tile_times SYSTEM PRIVATE ${CUDAToolkit_INCLUDE_DIRS})
set_target_properties(tile_times PROPERTIES LINKER_LANGUAGE CXX)
target_link_libraries(tile_times PRIVATE nlohmann_json::nlohmann_json fmt::fmt CUDA::cudart_static)
canopy_link_alone(tile_times)
if(OpenMP_CXX_FOUND)
  target_compile_options(tile_times PRIVATE ${OpenMP_CXX_FLAGS})
endif()
