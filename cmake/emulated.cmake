# build/gpu_test_emulated, the device tests, and build/canopy_emulated, the program, over src/cuda compiled as C++ for the
# emulated GPU of tests/emulated, where no CUDA toolkit and no GPU is needed. CANOPY_EMULATED_ARCHITECTURE: whose tile
# shapes (tuning.hpp), 80, 90 or 120.
set(CANOPY_EMULATED_ARCHITECTURE 120 CACHE STRING "compute capability of the emulated GPU, 80, 90 or 120")

file(GLOB cuda_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/src/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/cuda/instances/*.cu)
canopy_batches(cuda_sources emulated_ .cpp ${cuda_sources})
set(as_cpp "")
foreach(source IN LISTS cuda_sources)  # a name that CMake takes for C++
  if(source MATCHES "\\.cu$")
    string(REGEX REPLACE "\\.cu$" ".cpp" name ${source})
    file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/emulated/${name} CONTENT "#include \"${source}\"\n")
    set(source ${CMAKE_BINARY_DIR}/emulated/${name})
  endif()
  list(APPEND as_cpp ${source})
endforeach()
file(GLOB emulator_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emulated/*.cpp)
file(GLOB gpu_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/*.cpp)

# Memory is read as more than one type, as nvcc lets it be; fibers jump from stack to stack.
set(device_flags -w -O2 -fno-strict-aliasing -U_FORTIFY_SOURCE)
add_library(emulated_cuda OBJECT ${as_cpp} ${emulator_sources})
target_compile_options(emulated_cuda PRIVATE ${device_flags})
# The rest of the library and src/host as they are where there is CUDA. If this build has it, only what calls its runtime
# has to be compiled again.
set(host_objects "")
if(CANOPY_WITH_CUDA)
  set(calls_runtime ${PROJECT_SOURCE_DIR}/src/dispatch/machine.cpp ${PROJECT_SOURCE_DIR}/src/host/device.cpp
    ${PROJECT_SOURCE_DIR}/src/host/device_bench.cpp ${PROJECT_SOURCE_DIR}/src/host/device_copies.cpp)
  add_library(emulated_host OBJECT ${calls_runtime})
  set(host_objects $<FILTER:$<TARGET_OBJECTS:canopy_core>,EXCLUDE,/dispatch/machine\\.cpp>
    $<FILTER:$<TARGET_OBJECTS:canopy_host>,EXCLUDE,/device[a-z_]*\\.cpp>)
else()
  add_library(emulated_host OBJECT ${host_sources} ${core_sources} ${cpu_shared})
endif()
list(APPEND host_objects $<TARGET_OBJECTS:emulated_host> $<TARGET_OBJECTS:emulated_cuda> ${isa_objects})
add_executable(gpu_test_emulated ${gpu_test_sources} ${host_objects})
foreach(target emulated_host gpu_test_emulated)
  target_compile_options(${target} PRIVATE ${warnings} -ffp-contract=off)
endforeach()
foreach(target emulated_cuda emulated_host gpu_test_emulated)
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/emulated)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE CANOPY_WITH_CUDA=1 __CUDA_ARCH__=${CANOPY_EMULATED_ARCHITECTURE}0
    CANOPY_VERSION="${PROJECT_VERSION}")
endforeach()
# Four SMs, and trees and batches that a CPU gets through: 3 heads are many there, 6 are more than tuning.hpp's wide CTAs ask for.
target_compile_definitions(emulated_cuda PRIVATE CANOPY_HEADS_STAND_FOR=24)
# cli/ does not ask how the library was built, so its objects serve twice.
if(TARGET canopy_program)
  add_executable(canopy_emulated $<TARGET_OBJECTS:canopy_program> ${host_objects})
  set_target_properties(canopy_emulated PROPERTIES LINKER_LANGUAGE CXX)
endif()
foreach(target emulated_host gpu_test_emulated canopy_emulated)
  if(TARGET ${target})
    target_link_libraries(${target} PRIVATE nlohmann_json::nlohmann_json fmt::fmt)
    if(OpenMP_CXX_FOUND)
      target_link_libraries(${target} PRIVATE OpenMP::OpenMP_CXX)
    endif()
  endif()
endforeach()
