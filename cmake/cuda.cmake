# CUDA, where a toolkit is found: sets CANOPY_WITH_CUDA to 0 or 1, and with it the object library canopy_cuda.
# CANOPY_CUDA: AUTO takes the kernels in when nvcc and the CUTLASS headers are there, ON insists, OFF leaves them out.
set(CANOPY_CUDA AUTO CACHE STRING "CUDA kernels: AUTO, ON or OFF")
set_property(CACHE CANOPY_CUDA PROPERTY STRINGS AUTO ON OFF)
set(CANOPY_WITH_CUDA 0)

# Says once a configuration why there are no kernels; under ON that is an error.
macro(canopy_no_cuda why)
  if(CANOPY_CUDA STREQUAL ON)
    message(FATAL_ERROR "CANOPY_CUDA=ON: ${why}")
  endif()
  message(STATUS "${why}: CPU only")
  return()
endmacro()

if(NOT CANOPY_CUDA MATCHES "^(AUTO|ON)$")
  return()
endif()
if(CANOPY_SANITIZE)
  canopy_no_cuda("CUDA kernels and host sanitizers do not go together")
endif()
include(CheckLanguage)
# The targets are named in full below; without this CMake adds its own, and 3.22 does not know 90a.
set(CMAKE_CUDA_ARCHITECTURES OFF)
check_language(CUDA)
if(NOT CMAKE_CUDA_COMPILER)
  canopy_no_cuda("no CUDA toolkit found")
endif()
enable_language(CUDA)
if(CMAKE_CUDA_COMPILER_VERSION VERSION_LESS 12.8)
  canopy_no_cuda("nvcc ${CMAKE_CUDA_COMPILER_VERSION} is too old for sm_120 (12.8 or newer is needed)")
endif()
find_package(CUDAToolkit QUIET)
if(NOT TARGET CUDA::cudart_static)
  canopy_no_cuda("nvcc was found, but not its runtime library cudart_static")
endif()

# CuTe's instruction atoms, from the pinned Python package that scripts/setup.sh puts into build-cutlass.
find_path(CANOPY_CUTLASS_INCLUDE cute/arch/mma_sm80.hpp
  HINTS ${PROJECT_SOURCE_DIR}/build-cutlass/cutlass_library/source/include
  DOC "include folder of CUTLASS 4.2")
if(NOT CANOPY_CUTLASS_INCLUDE)
  canopy_no_cuda("no CUTLASS headers found (scripts/setup.sh installs them; or set CANOPY_CUTLASS_INCLUDE)")
endif()

set(CANOPY_WITH_CUDA 1)
file(GLOB cuda_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cuda/*.cu ${PROJECT_SOURCE_DIR}/src/cuda/instances/*.cu)
function(canopy_cuda_library name)
  add_library(${name} OBJECT ${ARGN})
  # -std by hand, and CMake's own taken off (CUDA sources inherit CXX_STANDARD): some of its versions drop CUDA_STANDARD 20
  # without a word, others do not know nvcc's flag for it.
  foreach(language CXX CUDA)
    foreach(property STANDARD STANDARD_REQUIRED EXTENSIONS)
      set_property(TARGET ${name} PROPERTY ${language}_${property})
    endforeach()
  endforeach()
  # Exceptions stay on here: CUTLASS headers throw on the host side. PTX of 120 serves whatever comes after it.
  target_compile_options(${name} PRIVATE -std=c++20 -O3 --expt-relaxed-constexpr -Xptxas=-v
    -gencode=arch=compute_90a,code=sm_90a -gencode=arch=compute_120,code=[sm_120,compute_120] -Xcompiler=-Wall)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include ${PROJECT_SOURCE_DIR}/src
    ${PROJECT_SOURCE_DIR}/src/cuda)
  target_include_directories(${name} SYSTEM PRIVATE ${CANOPY_CUTLASS_INCLUDE})
  target_compile_definitions(${name} PRIVATE CANOPY_WITH_CUDA=1)
  # The launcher keeps ptxas's report beside each object, for scripts/check_resources.sh, and off the terminal.
  set_target_properties(${name} PROPERTIES CUDA_COMPILER_LAUNCHER
    "${PROJECT_SOURCE_DIR}/cmake/nvcc_report.sh;${CMAKE_CXX_COMPILER_LAUNCHER}")
endfunction()
# A third of the compiling is for sm_80. The tests, which run on no GPU, do with a sample: a kernel of each design.
option(CANOPY_SM80_SAMPLE "sm_80 for some kernels only: for tests, the library then serves no GPU of that kind" OFF)
set(sm80_sources ${cuda_sources})
set(other_sources "")
if(CANOPY_SM80_SAMPLE)
  list(FILTER sm80_sources INCLUDE REGEX
    "/(plan|commit|split|hybrid|fused_half_(narrow|wide|pair|few|one_block_64)_bf16_128|fused_half_small_bf16_128|split_half_wide_bf16_128|block_dense_half_bf16_128|fused_fp32_128)\\.cu$")
  set(other_sources ${cuda_sources})
  list(REMOVE_ITEM other_sources ${sm80_sources})
endif()
canopy_batches(sm80_sources sm80_ .cu ${sm80_sources})
canopy_batches(other_sources "" .cu ${other_sources})
set_source_files_properties(${sm80_sources} PROPERTIES COMPILE_OPTIONS -gencode=arch=compute_80,code=sm_80)
canopy_cuda_library(canopy_cuda ${sm80_sources} ${other_sources})
# compute-sanitizer's racecheck does not follow an arrival that one lane makes for its warp; here every lane arrives.
option(CANOPY_RACECHECK "CUDA kernels as racecheck can follow them" OFF)
if(CANOPY_RACECHECK)
  target_compile_definitions(canopy_cuda PRIVATE CANOPY_RACECHECK=1)
endif()
