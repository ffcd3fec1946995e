# Linux on aarch64: a cross compiler elsewhere, the machine's own compiler on an aarch64 host.
#
# Environment: ETPROF_QEMU and ETPROF_AARCH64_SYSROOT name the emulator and the aarch64 root for
# tests; without them, what `etprof emulator setup` fetched is used, then what is installed.
# ETPROF_AARCH64_COMPILER=clang takes Clang with the cross compiler's libraries instead of GCC.

if(CMAKE_HOST_SYSTEM_PROCESSOR MATCHES "^(aarch64|arm64)$")
  return()
endif()

set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)

# Debian and Ubuntu put the version into the name unless the default package is installed.
set(_versions -15 -14 -13 -12)
list(TRANSFORM _versions PREPEND aarch64-linux-gnu-gcc OUTPUT_VARIABLE _c_names)
list(TRANSFORM _versions PREPEND aarch64-linux-gnu-g++ OUTPUT_VARIABLE _cxx_names)
find_program(ETPROF_AARCH64_CC NAMES aarch64-linux-gnu-gcc ${_c_names})
find_program(ETPROF_AARCH64_CXX NAMES aarch64-linux-gnu-g++ ${_cxx_names})
if(NOT ETPROF_AARCH64_CXX OR NOT ETPROF_AARCH64_CC)
  message(FATAL_ERROR "There is no aarch64 C++ compiler; on Debian and Ubuntu install the package "
                      "g++-aarch64-linux-gnu.")
endif()
set(CMAKE_C_COMPILER "${ETPROF_AARCH64_CC}")
set(CMAKE_CXX_COMPILER "${ETPROF_AARCH64_CXX}")
if(DEFINED ENV{ETPROF_AARCH64_COMPILER})
  set(ETPROF_AARCH64_COMPILER "$ENV{ETPROF_AARCH64_COMPILER}" CACHE STRING "gcc or clang")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ETPROF_AARCH64_COMPILER)
if(ETPROF_AARCH64_COMPILER STREQUAL "clang")
  find_program(ETPROF_CLANG NAMES clang clang-21 clang-20 clang-19 clang-18)
  find_program(ETPROF_CLANGXX NAMES clang++ clang++-21 clang++-20 clang++-19 clang++-18)
  if(NOT ETPROF_CLANG OR NOT ETPROF_CLANGXX)
    message(FATAL_ERROR "There is no Clang; on Debian and Ubuntu install the package clang-19, or "
                        "unset ETPROF_AARCH64_COMPILER.")
  endif()
  set(CMAKE_C_COMPILER "${ETPROF_CLANG}")
  set(CMAKE_CXX_COMPILER "${ETPROF_CLANGXX}")
  set(CMAKE_C_COMPILER_TARGET aarch64-linux-gnu)
  set(CMAKE_CXX_COMPILER_TARGET aarch64-linux-gnu)
  set(CMAKE_ASM_COMPILER_TARGET aarch64-linux-gnu)
elseif(ETPROF_AARCH64_COMPILER AND NOT ETPROF_AARCH64_COMPILER STREQUAL "gcc")
  message(FATAL_ERROR "ETPROF_AARCH64_COMPILER is \"${ETPROF_AARCH64_COMPILER}\"; use gcc or clang.")
endif()
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)

# The wheel whose SDK is linked; its Python version plays no part.
set(ETPROF_WHEEL_PLATFORM
    --platform manylinux_2_28_aarch64 --python-version 3.11 --implementation cp)

# How CTest runs what was built.
set(_cache "$ENV{ETPROF_CACHE}")
if(NOT _cache AND DEFINED ENV{XDG_CACHE_HOME})
  set(_cache "$ENV{XDG_CACHE_HOME}/etprof")
elseif(NOT _cache)
  set(_cache "$ENV{HOME}/.cache/etprof")
endif()
if(DEFINED ENV{ETPROF_QEMU})
  set(ETPROF_QEMU "$ENV{ETPROF_QEMU}" CACHE FILEPATH "Emulator of aarch64 programs")
endif()
# What an earlier configuration found may be gone, as with `etprof emulator setup --remove`.
foreach(_part ETPROF_QEMU ETPROF_AARCH64_SYSROOT)
  if(${_part} AND NOT EXISTS "${${_part}}")
    message(STATUS "${_part} was ${${_part}}, which is gone: looking for another")
    unset(${_part} CACHE)
  endif()
endforeach()
find_program(ETPROF_QEMU NAMES qemu-aarch64
  HINTS "${_cache}/emulator/qemu/usr/bin" NO_CMAKE_FIND_ROOT_PATH)
find_path(ETPROF_AARCH64_SYSROOT NAMES lib/ld-linux-aarch64.so.1
  HINTS "$ENV{ETPROF_AARCH64_SYSROOT}" "${_cache}/emulator/sysroot/usr/aarch64-linux-gnu"
  PATHS /usr/aarch64-linux-gnu NO_CMAKE_FIND_ROOT_PATH)
if(ETPROF_QEMU AND ETPROF_AARCH64_SYSROOT)
  set(CMAKE_CROSSCOMPILING_EMULATOR "${ETPROF_QEMU};-L;${ETPROF_AARCH64_SYSROOT};-cpu;max")
endif()
