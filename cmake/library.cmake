# libcanopy: the exception-free core, static and shared, with the CPU kernels compiled once per instruction set.
find_package(OpenMP COMPONENTS CXX)
find_package(nlohmann_json 3.10 REQUIRED)  # tree files; header-only, not in the public headers
include(${CMAKE_CURRENT_LIST_DIR}/batches.cmake)
include(${CMAKE_CURRENT_LIST_DIR}/cuda.cmake)
set(cuda_objects "")
if(CANOPY_WITH_CUDA)
  set(cuda_objects $<TARGET_OBJECTS:canopy_cuda>)
endif()

set(warnings -Wall -Wextra -Wno-unknown-pragmas)
file(GLOB core_sources CONFIGURE_DEPENDS
  ${PROJECT_SOURCE_DIR}/src/*.cpp ${PROJECT_SOURCE_DIR}/src/tree/*.cpp ${PROJECT_SOURCE_DIR}/src/reference/*.cpp
  ${PROJECT_SOURCE_DIR}/src/dispatch/*.cpp)
# No contraction: the oracle and the seeded trees give the same bits on every platform.
add_library(canopy_core OBJECT ${core_sources})
target_compile_options(canopy_core PRIVATE ${warnings} -fno-exceptions -ffp-contract=off)

# One source, one object a set; src/cpu/backend.cpp picks at run time.
set(isas baseline)
set(flags_baseline "")
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64|amd64")
  list(APPEND isas avx2 avx512)
  set(flags_avx2 -mavx2 -mfma -mf16c)
  set(flags_avx512 -mavx512f -mavx512bw -mavx512vl -mavx512dq -mavx2 -mfma -mf16c -mprefer-vector-width=512)
endif()
file(GLOB cpu_shared CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cpu/*.cpp)
list(REMOVE_ITEM cpu_shared ${PROJECT_SOURCE_DIR}/src/cpu/kernels.cpp)
target_sources(canopy_core PRIVATE ${cpu_shared})
set(isa_objects "")
foreach(isa IN LISTS isas)
  add_library(canopy_cpu_${isa} OBJECT ${PROJECT_SOURCE_DIR}/src/cpu/kernels.cpp)
  target_compile_options(canopy_cpu_${isa} PRIVATE ${warnings} -fno-exceptions -ffp-contract=fast -fno-math-errno -fno-trapping-math
    $<$<CXX_COMPILER_ID:GNU>:-fno-tree-loop-distribute-patterns> ${flags_${isa}})
  target_compile_definitions(canopy_cpu_${isa} PRIVATE CANOPY_ISA=${isa})
  if(CANOPY_SANITIZE)  # the register tiles are arrays until the optimiser has unrolled their loops
    target_compile_options(canopy_cpu_${isa} PRIVATE -O2)
  endif()
  list(APPEND isa_objects $<TARGET_OBJECTS:canopy_cpu_${isa}>)
endforeach()

foreach(object canopy_core ${isas})
  if(NOT object STREQUAL canopy_core)
    set(object canopy_cpu_${object})
  endif()
  target_include_directories(${object} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src)
  target_compile_definitions(${object} PRIVATE CANOPY_VERSION="${PROJECT_VERSION}" CANOPY_WITH_CUDA=${CANOPY_WITH_CUDA})
  target_link_libraries(${object} PRIVATE nlohmann_json::nlohmann_json)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(${object} PRIVATE OpenMP::OpenMP_CXX)
  endif()
endforeach()

if(CANOPY_WITH_CUDA)  # src/dispatch/machine.cpp asks what the GPU is called
  target_link_libraries(canopy_core PRIVATE CUDA::cudart_static)
endif()

foreach(kind static shared)
  string(TOUPPER ${kind} KIND)
  add_library(canopy_${kind} ${KIND} $<TARGET_OBJECTS:canopy_core> ${isa_objects} ${cuda_objects})
  set_target_properties(canopy_${kind} PROPERTIES OUTPUT_NAME canopy EXPORT_NAME ${kind} VERSION ${PROJECT_VERSION}
    SOVERSION ${PROJECT_VERSION_MAJOR})
  target_include_directories(canopy_${kind} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:include>)
  target_compile_features(canopy_${kind} INTERFACE cxx_std_20)
  if(OpenMP_CXX_FOUND)
    target_link_libraries(canopy_${kind} PRIVATE OpenMP::OpenMP_CXX)
  endif()
  if(CANOPY_WITH_CUDA)
    target_link_libraries(canopy_${kind} PRIVATE CUDA::cudart_static)
    set_target_properties(canopy_${kind} PROPERTIES LINKER_LANGUAGE CXX CUDA_RUNTIME_LIBRARY Static)
  endif()
  add_library(canopy::${kind} ALIAS canopy_${kind})
endforeach()
