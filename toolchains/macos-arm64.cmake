# macOS on Apple silicon, with the compiler of Xcode.

if(NOT CMAKE_HOST_SYSTEM_NAME STREQUAL "Darwin")
  message(FATAL_ERROR "The macos-* presets build on a Mac only; here, use linux-aarch64-source-* or android-*.")
endif()
