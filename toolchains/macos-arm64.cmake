# macOS on Apple silicon: the compiler of Xcode on a Mac, Zig's elsewhere.
#
# Elsewhere, what is built can be linked and inspected, but not run: pip install ziglang.

if(CMAKE_HOST_SYSTEM_NAME STREQUAL "Darwin")
  return()
endif()
if(ETPROF_EXECUTORCH_PROVIDER STREQUAL "source")
  message(FATAL_ERROR "The macos-sme2 presets build ExecuTorch on a Mac only; here, use macos-arm64, "
                      "linux-aarch64-source-* or android-*.")
endif()
list(APPEND CMAKE_TRY_COMPILE_PLATFORM_VARIABLES ETPROF_EXECUTORCH_PROVIDER)

set(CMAKE_SYSTEM_NAME Darwin)
set(CMAKE_SYSTEM_PROCESSOR arm64)
find_program(ETPROF_PYTHON NAMES python3 python)
execute_process(
  COMMAND "${ETPROF_PYTHON}" -c "import pathlib, ziglang; print(pathlib.Path(ziglang.__file__).parent)"
  OUTPUT_VARIABLE _ziglang OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
find_program(ETPROF_ZIG NAMES zig HINTS "${_ziglang}")
if(NOT ETPROF_ZIG)
  message(FATAL_ERROR "There is no compiler for macOS here: pip install ziglang, or build on a Mac.")
endif()
# As a shell quotes: Zig may lie in any folder.
string(REPLACE "'" "'\\''" _zig "${ETPROF_ZIG}")
execute_process(COMMAND "${ETPROF_ZIG}" version OUTPUT_VARIABLE _zig_version OUTPUT_STRIP_TRAILING_WHITESPACE)
# One word each, and of a name that says how it is called: ccache passes on anything else unread.
# 14.0 is the oldest system that the wheel of ExecuTorch takes. The system's ar writes archives that
# Zig's linker cannot read; Zig's writes their index as well.
foreach(_tool "clang|cc -target aarch64-macos.14.0" "clang++|c++ -target aarch64-macos.14.0" "ar|ar")
  string(REGEX MATCH "^([^|]+)\\|(.+)$" _ "${_tool}")
  set(_program "${CMAKE_BINARY_DIR}/zig/${CMAKE_MATCH_1}")
  file(WRITE "${_program}" "#!/bin/sh\n# Zig ${_zig_version}\nexec '${_zig}' ${CMAKE_MATCH_2} \"$@\"\n")
  file(CHMOD "${_program}" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
endforeach()
set(CMAKE_C_COMPILER "${CMAKE_BINARY_DIR}/zig/clang")
set(CMAKE_CXX_COMPILER "${CMAKE_BINARY_DIR}/zig/clang++")
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_AR "${CMAKE_BINARY_DIR}/zig/ar" CACHE FILEPATH "Makes archives")
set(CMAKE_RANLIB ":" CACHE FILEPATH "Indexes archives")
set(CMAKE_INSTALL_NAME_TOOL ":" CACHE FILEPATH "Changes paths of installed programs; none are")
set(CMAKE_BUILD_WITH_INSTALL_RPATH ON)

set(ETPROF_WHEEL_PLATFORM
    --platform macosx_14_0_arm64 --python-version 3.11 --implementation cp)
