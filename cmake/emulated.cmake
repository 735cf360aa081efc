# build/gpu_test_emulated: the device tests over src/cuda compiled as C++ for the emulated GPU of tests/emulated, where
# no CUDA toolkit and no GPU is needed. CANOPY_EMULATED_ARCHITECTURE: whose tile shapes (tuning.hpp), 80, 90 or 120.
set(CANOPY_EMULATED_ARCHITECTURE 120 CACHE STRING "compute capability of the emulated GPU, 80, 90 or 120")

file(GLOB cuda_sources CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src
  ${PROJECT_SOURCE_DIR}/src/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/cuda/instances/*.cu)
set(as_cpp "")
foreach(source IN LISTS cuda_sources)  # a name that CMake takes for C++
  string(REGEX REPLACE "\\.cu$" ".cpp" name ${source})
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/emulated/${name} CONTENT "#include \"${source}\"\n")
  list(APPEND as_cpp ${CMAKE_BINARY_DIR}/emulated/${name})
endforeach()
file(GLOB emulator_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/emulated/*.cpp)
file(GLOB gpu_test_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/gpu/*.cpp)

# Memory is read as more than one type, as nvcc lets it be; fibers jump from stack to stack.
set(device_flags -w -O2 -fno-strict-aliasing -U_FORTIFY_SOURCE)
add_library(canopy_emulated OBJECT ${as_cpp} ${emulator_sources})
target_compile_options(canopy_emulated PRIVATE ${device_flags})
add_executable(gpu_test_emulated ${gpu_test_sources} ${host_sources} ${core_sources} ${cpu_shared} ${isa_objects}
  $<TARGET_OBJECTS:canopy_emulated>)
target_compile_options(gpu_test_emulated PRIVATE ${warnings} -ffp-contract=off)
foreach(target canopy_emulated gpu_test_emulated)
  target_include_directories(${target} BEFORE PRIVATE ${PROJECT_SOURCE_DIR}/tests/emulated)
  target_include_directories(${target} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/tests)
  target_compile_definitions(${target} PRIVATE CANOPY_WITH_CUDA=1 __CUDA_ARCH__=${CANOPY_EMULATED_ARCHITECTURE}0
    CANOPY_VERSION="${PROJECT_VERSION}")
endforeach()
# Four SMs, and trees and batches that a CPU gets through: 3 heads are many there, 6 are more than tuning.hpp's wide CTAs ask for.
target_compile_definitions(canopy_emulated PRIVATE CANOPY_HEADS_STAND_FOR=24)
target_link_libraries(gpu_test_emulated PRIVATE nlohmann_json::nlohmann_json fmt::fmt)
if(OpenMP_CXX_FOUND)
  target_link_libraries(gpu_test_emulated PRIVATE OpenMP::OpenMP_CXX)
endif()
