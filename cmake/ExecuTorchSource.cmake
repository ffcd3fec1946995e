# Provider "source": ExecuTorch built from its sources and linked statically.
#
# The sources are fetched at the pinned tag, or copied from the checkout that
# FETCHCONTENT_SOURCE_DIR_EXECUTORCH names. Either way each build tree has its own: builds write
# into the sources, and two presets may build at once.
include(FetchContent)
include(SourcePins)
include(checks/Gates)
include(checks/SymbolCheck)

set(ETPROF_EXECUTORCH_SOURCE_VERSION "" CACHE STRING
    "ExecuTorch version to build from source; empty: the one of the wheel")
option(ETPROF_EVENT_TRACER "Build ExecuTorch with its event tracer: ETDumps, operator times" ON)
option(ETPROF_LLM_KERNELS "Link ExecuTorch's operators for language models: llama::sdpa_with_kv_cache" ON)
option(ETPROF_XNNPACK_LOG "Let XNNPACK log which microkernels it selects (stderr, logcat)" OFF)
option(XNNPACK_ENABLE_ARM_SME "Build XNNPACK with SME microkernels" ON)
option(XNNPACK_ENABLE_ARM_SME2 "Build XNNPACK with SME2 microkernels" ON)
option(EXECUTORCH_XNNPACK_ENABLE_KLEIDI "Build XNNPACK with KleidiAI, which has the SME kernels" ON)

# A workflow preset takes no -D, so the environment may name the checkouts and the version.
function(etprof_default_from_environment VARIABLE NAME)
  if("${${VARIABLE}}" STREQUAL "" AND NOT "$ENV{${NAME}}" STREQUAL "")
    set(${VARIABLE} "$ENV{${NAME}}" CACHE STRING "Taken from the environment: ${NAME}" FORCE)
  endif()
endfunction()
etprof_default_from_environment(FETCHCONTENT_SOURCE_DIR_EXECUTORCH ETPROF_EXECUTORCH_SOURCE)
etprof_default_from_environment(KLEIDIAI_SOURCE_DIR ETPROF_KLEIDIAI_SOURCE)
etprof_default_from_environment(ETPROF_EXECUTORCH_SOURCE_VERSION ETPROF_EXECUTORCH_SOURCE_VERSION)

etprof_check_sme_switches()
etprof_check_compiler()

set(ETPROF_SME_COMPILED_OUT OFF)
if(NOT XNNPACK_ENABLE_ARM_SME2)
  set(ETPROF_SME_COMPILED_OUT ON)
endif()
if(ETPROF_EXECUTORCH_SOURCE_VERSION)
  set(ETPROF_EXECUTORCH_VERSION "${ETPROF_EXECUTORCH_SOURCE_VERSION}")
endif()

# The submodules that this build compiles or includes, of the twenty-odd that there are.
set(ETPROF_EXECUTORCH_SUBMODULES
    backends/xnnpack/third-party/FP16
    backends/xnnpack/third-party/FXdiv
    backends/xnnpack/third-party/XNNPACK
    backends/xnnpack/third-party/cpuinfo
    backends/xnnpack/third-party/pthreadpool
    kernels/optimized/third-party/eigen
    third-party/flatbuffers
    third-party/flatcc
    third-party/gflags
    third-party/json
    third-party/pocketfft)
if(ETPROF_LLM_KERNELS)
  list(APPEND ETPROF_EXECUTORCH_SUBMODULES third-party/ao) # headers alone
endif()

# ExecuTorch demands a folder of this name.
set(_sources "${PROJECT_BINARY_DIR}/executorch-source/executorch")

# Copies a checkout, or what has changed in it since the last time. Real copies, no links: a tool
# that writes into a file in place would write into the checkout.
function(etprof_copy_checkout FROM TO)
  message(STATUS "Copying ${FROM}")
  string(REGEX REPLACE "([][+.*()^$?|\\\\])" "\\\\\\1" _from "${FROM}")
  file(COPY "${FROM}/" DESTINATION "${TO}"
    PATTERN ".git" EXCLUDE
    REGEX "^${_from}/(docs|examples|cmake-out[^/]*|pip-out)$" EXCLUDE
    REGEX "/third-party/flatcc/(bin|lib)$" EXCLUDE)
endfunction()

if(FETCHCONTENT_SOURCE_DIR_EXECUTORCH)
  set(_checkout "${FETCHCONTENT_SOURCE_DIR_EXECUTORCH}")
  etprof_check_checkout("${_checkout}")
  etprof_copy_checkout("${_checkout}" "${_sources}")
else()
  set(_checkout "${_sources}")
  message(STATUS "Fetching ExecuTorch ${ETPROF_EXECUTORCH_VERSION}")
  FetchContent_Declare(executorch
    GIT_REPOSITORY https://github.com/pytorch/executorch.git
    GIT_TAG "v${ETPROF_EXECUTORCH_VERSION}"
    GIT_SHALLOW ON
    GIT_PROGRESS ON
    GIT_SUBMODULES ${ETPROF_EXECUTORCH_SUBMODULES}
    GIT_SUBMODULES_RECURSE OFF
    SOURCE_DIR "${_sources}"
    # No such folder: the sources are added below, with our options.
    SOURCE_SUBDIR not-added-here)
  FetchContent_MakeAvailable(executorch)
  etprof_check_checkout("${_checkout}")
endif()

# What the wheel is built with, less what a runner never uses.
set(EXECUTORCH_BUILD_DEVTOOLS ON)
set(EXECUTORCH_BUILD_EXECUTOR_RUNNER OFF)
set(EXECUTORCH_BUILD_EXTENSION_MODULE ON)
set(EXECUTORCH_BUILD_EXTENSION_NAMED_DATA_MAP ON)
set(EXECUTORCH_BUILD_EXTENSION_TENSOR ON)
set(EXECUTORCH_BUILD_KERNELS_LLM ${ETPROF_LLM_KERNELS})
set(EXECUTORCH_BUILD_KERNELS_OPTIMIZED ON)
set(EXECUTORCH_BUILD_KERNELS_QUANTIZED ON)
set(EXECUTORCH_BUILD_XNNPACK ON)
set(EXECUTORCH_ENABLE_LOGGING ON)
set(EXECUTORCH_ENABLE_PROGRAM_VERIFICATION ON)
set(EXECUTORCH_ENABLE_EVENT_TRACER ${ETPROF_EVENT_TRACER} CACHE BOOL "" FORCE)
if(ETPROF_XNNPACK_LOG)
  set(EXECUTORCH_XNNPACK_LOG_LEVEL 4) # "info"; a compile-time matter
endif()
set(PYTHON_EXECUTABLE "${Python3_EXECUTABLE}")

# ExecuTorch deletes flatcc's libraries whenever it is configured; kept, nothing is built again.
set(_written "${_sources}/third-party/flatcc/lib")
set(_kept "${PROJECT_BINARY_DIR}/executorch-source/flatcc-lib")
if(EXISTS "${_written}")
  file(REMOVE_RECURSE "${_kept}")
  file(RENAME "${_written}" "${_kept}")
endif()
block()
  # The same object code wherever the build tree is, so that two builds can be compared. Options, not
  # flags: CMake quotes them for the shell.
  get_property(_options DIRECTORY PROPERTY COMPILE_OPTIONS)
  add_compile_options(
    "-ffile-prefix-map=${_sources}=executorch" "-ffile-prefix-map=${PROJECT_BINARY_DIR}=build")
  # XNNPACK looks for libm on the building machine; every target has it under this name.
  set(LIBM m)
  message(STATUS "Configuring ExecuTorch, XNNPACK and their dependencies: a minute, or two on a busy machine")
  add_subdirectory("${_sources}" "${PROJECT_BINARY_DIR}/executorch" EXCLUDE_FROM_ALL SYSTEM)
  set_property(DIRECTORY PROPERTY COMPILE_OPTIONS "${_options}")
endblock()
if(EXISTS "${_kept}")
  file(RENAME "${_kept}" "${_written}")
endif()

if(ETPROF_XNNPACK_LOG AND TARGET xnnpack-logging)
  # XNNPACK's own level would stay beside ours, and two definitions of one macro are a warning.
  foreach(_property COMPILE_DEFINITIONS INTERFACE_COMPILE_DEFINITIONS)
    set_target_properties(xnnpack-logging PROPERTIES ${_property} XNN_LOG_LEVEL=4)
  endforeach()
endif()

# GCC 12 for aarch64 crashes while it vectorises a reduction of this file, which has no part in SME.
if(TARGET kleidiai AND CMAKE_C_COMPILER_ID STREQUAL "GNU" AND CMAKE_C_COMPILER_VERSION VERSION_LESS 13)
  set_property(
    SOURCE "${KLEIDIAI_SOURCE_DIR}/kai/ukernels/matmul/pack/kai_lhs_quant_pack_qai8dxp_bf16_neon.c"
    TARGET_DIRECTORY kleidiai APPEND PROPERTY COMPILE_OPTIONS -fno-tree-vectorize)
endif()

etprof_check_xnnpack("${_sources}/backends/xnnpack/third-party/XNNPACK")

etprof_describe_sources(ETPROF_SOURCE_PINS "${_checkout}")

# Every static library that can end up in a runner.
set(ETPROF_EXECUTORCH_LIBRARIES "")
foreach(_target
    XNNPACK cpublas cpuinfo custom_ops eigen_blas etdump executorch executorch_core extension_data_loader
    extension_flat_tensor extension_module_static extension_named_data_map extension_tensor
    extension_threadpool flatccrt kernels_util_all_deps kleidiai optimized_kernels
    optimized_native_cpu_ops_lib optimized_portable_kernels pthreadpool quantized_kernels
    quantized_ops_lib xnnpack-microkernels-prod xnnpack_backend)
  if(TARGET ${_target})
    get_target_property(_type ${_target} TYPE)
    if(_type STREQUAL "STATIC_LIBRARY")
      list(APPEND ETPROF_EXECUTORCH_LIBRARIES ${_target})
    endif()
  endif()
endforeach()

target_link_libraries(etprof_executorch INTERFACE
  executorch executorch::backends executorch::extensions executorch::kernels etdump flatccrt)
if(ETPROF_LLM_KERNELS)
  # ExecuTorch's kernels name this library of a Python build; nothing of it is needed here.
  if(NOT TARGET custom_ops_aot_lib)
    add_library(custom_ops_aot_lib INTERFACE IMPORTED GLOBAL)
  endif()
  # Whole, for its kernels register themselves; by its file, for its -march is none of the runner's.
  get_target_property(_needed custom_ops LINK_LIBRARIES)
  list(FILTER _needed EXCLUDE REGEX "NOTFOUND$")
  target_link_libraries(etprof_executorch INTERFACE
    "$<LINK_LIBRARY:WHOLE_ARCHIVE,$<TARGET_FILE:custom_ops>>" ${_needed})
  add_dependencies(etprof_executorch custom_ops)
endif()
if(ETPROF_EVENT_TRACER)
  target_compile_definitions(etprof_executorch INTERFACE ET_EVENT_TRACER_ENABLED)
endif()
# KleidiAI's SME packing is referenced by XNNPACK's reference code even when SME is compiled out.
if(APPLE)
  target_link_options(etprof_executorch INTERFACE LINKER:-dead_strip)
else()
  target_link_options(etprof_executorch INTERFACE LINKER:--gc-sections)
endif()
