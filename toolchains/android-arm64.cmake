# Android on arm64: finds an NDK, refuses one that cannot compile SME2, and takes the NDK's own
# toolchain file.
#
# Environment: ANDROID_NDK names the NDK; else ANDROID_NDK_HOME, ANDROID_NDK_ROOT, and the newest
# one that Android Studio has installed under ANDROID_HOME are tried, in this order.

set(_least_ndk 27) # its Clang is 18, the first one that XNNPACK trusts with SME2

foreach(_name ANDROID_NDK ANDROID_NDK_HOME ANDROID_NDK_ROOT)
  if(NOT ETPROF_ANDROID_NDK AND NOT "$ENV{${_name}}" STREQUAL "")
    set(ETPROF_ANDROID_NDK "$ENV{${_name}}")
  endif()
endforeach()
if(NOT ETPROF_ANDROID_NDK AND NOT "$ENV{ANDROID_HOME}" STREQUAL "")
  file(GLOB _installed "$ENV{ANDROID_HOME}/ndk/*")
  list(SORT _installed COMPARE NATURAL ORDER DESCENDING)
  if(_installed)
    list(GET _installed 0 ETPROF_ANDROID_NDK)
  endif()
endif()
if(NOT ETPROF_ANDROID_NDK)
  message(FATAL_ERROR "There is no Android NDK: set ANDROID_NDK to the folder of NDK r${_least_ndk} or newer, from https://developer.android.com/ndk/downloads.")
endif()

set(_toolchain "${ETPROF_ANDROID_NDK}/build/cmake/android.toolchain.cmake")
if(NOT EXISTS "${_toolchain}" OR NOT EXISTS "${ETPROF_ANDROID_NDK}/source.properties")
  message(FATAL_ERROR "${ETPROF_ANDROID_NDK} is no Android NDK: set ANDROID_NDK to the folder that has build/cmake/android.toolchain.cmake and source.properties.")
endif()
file(STRINGS "${ETPROF_ANDROID_NDK}/source.properties" _revision REGEX "^Pkg\\.Revision")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" ETPROF_NDK_VERSION "${_revision}")
if(ETPROF_NDK_VERSION VERSION_LESS _least_ndk)
  message(FATAL_ERROR "${ETPROF_ANDROID_NDK} is NDK ${ETPROF_NDK_VERSION}, whose Clang cannot compile SME2: set ANDROID_NDK to NDK r${_least_ndk} or newer.")
endif()

# try_compile reads this file again, in a project of its own.
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ETPROF_ANDROID_NDK)
include("${_toolchain}")

# CTest runs what was built on the attached device, where the tests find each other in this folder.
set(ETPROF_DEVICE_FOLDER "/data/local/tmp/etprof-tests")
set(CMAKE_CROSSCOMPILING_EMULATOR
    "${CMAKE_CURRENT_LIST_DIR}/run-on-device.sh;${CMAKE_BINARY_DIR};${ETPROF_DEVICE_FOLDER}")

# No device has a shared C++ library: run-on-device.sh, and etprof, copy the one beside the runner.
get_property(_is_try_compile GLOBAL PROPERTY IN_TRY_COMPILE)
if(NOT _is_try_compile)
  set(_library "${CMAKE_SYSROOT}/usr/lib/aarch64-linux-android/libc++_shared.so")
  set(_copy "${CMAKE_BINARY_DIR}/cpp/runner/libc++_shared.so")
  if(NOT ANDROID_STL STREQUAL "c++_shared")
    file(REMOVE "${_copy}")
  elseif(EXISTS "${_library}")
    file(MAKE_DIRECTORY "${CMAKE_BINARY_DIR}/cpp/runner")
    file(COPY_FILE "${_library}" "${_copy}" ONLY_IF_DIFFERENT)
  else()
    message(WARNING "There is no ${_library}, which no device has either: programs that need it end in its linker. Leave out ANDROID_STL=c++_shared.")
  endif()
endif()
