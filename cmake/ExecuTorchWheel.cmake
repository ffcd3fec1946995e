# Provider "wheel": the C++ SDK inside the pinned Python wheel. The installed package is taken when
# it has that version and this platform, else the wheel is fetched with pip into the build tree.

set(ETPROF_EXECUTORCH_SDK "" CACHE PATH
    "ExecuTorch package to link; empty: the installed package, else fetched with pip")

# Sets OUT to the installed package's folder if it has the pinned version, else to "".
function(etprof_find_installed_sdk OUT)
  set(${OUT} "" PARENT_SCOPE)
  if(CMAKE_CROSSCOMPILING)
    return()
  endif()
  execute_process(
    COMMAND
      "${Python3_EXECUTABLE}" -c
      "from importlib.metadata import distribution as d; p = d('executorch'); print(p.version, p.locate_file('executorch'), sep=';')"
    OUTPUT_VARIABLE _found OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  list(LENGTH _found _length)
  if(NOT _length EQUAL 2)
    return()
  endif()
  list(GET _found 0 _installed_version)
  list(GET _found 1 _package)
  if(_installed_version STREQUAL ETPROF_EXECUTORCH_VERSION
     AND EXISTS "${_package}/lib/cmake/executorch/executorch-config.cmake")
    set(${OUT} "${_package}" PARENT_SCOPE)
  endif()
endfunction()

# Sets OUT to the package folder of the pinned wheel, fetched once into the build tree. Further
# arguments go to `pip download`, to ask for the wheel of another platform.
function(etprof_fetch_sdk OUT)
  set(_folder "${PROJECT_BINARY_DIR}/executorch-sdk-${ETPROF_EXECUTORCH_VERSION}")
  if(NOT EXISTS "${_folder}/complete")
    message(STATUS "Fetching the ExecuTorch ${ETPROF_EXECUTORCH_VERSION} wheel with pip")
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -m pip --version
      RESULT_VARIABLE _failed OUTPUT_QUIET ERROR_QUIET)
    if(_failed)
      message(
        FATAL_ERROR
          "${Python3_EXECUTABLE} has no pip, which fetches ExecuTorch; on Debian and Ubuntu: "
          "apt install python3-pip. Or activate the environment where etprof is installed, and "
          "configure again with --fresh.")
    endif()
    file(REMOVE_RECURSE "${_folder}")
    file(STRINGS "${PROJECT_SOURCE_DIR}/cmake/executorch-wheels.txt" _hashes REGEX "^--hash=")
    list(JOIN _hashes " " _hashes)
    file(WRITE "${_folder}/pinned.txt" "executorch==${ETPROF_EXECUTORCH_VERSION} ${_hashes}\n")
    execute_process(
      COMMAND "${Python3_EXECUTABLE}" -m pip download --quiet --no-deps --only-binary=:all: ${ARGN}
              --dest "${_folder}" --require-hashes --requirement "${_folder}/pinned.txt"
      RESULT_VARIABLE _failed ERROR_VARIABLE _reason)
    if(_failed)
      message(
        FATAL_ERROR
          "pip could not fetch executorch==${ETPROF_EXECUTORCH_VERSION}:\n${_reason}\n"
          "Check the network, or unpack that wheel yourself and pass "
          "-DETPROF_EXECUTORCH_SDK=<folder>/executorch.")
    endif()
    file(GLOB _wheel "${_folder}/*.whl")
    file(ARCHIVE_EXTRACT INPUT "${_wheel}" DESTINATION "${_folder}")
    file(REMOVE "${_wheel}")
    file(TOUCH "${_folder}/complete")
  endif()
  set(${OUT} "${_folder}/executorch" PARENT_SCOPE)
endfunction()

set(_sdk "${ETPROF_EXECUTORCH_SDK}")
if(NOT _sdk)
  etprof_find_installed_sdk(_sdk)
endif()
if(NOT _sdk)
  etprof_fetch_sdk(_sdk ${ETPROF_WHEEL_PLATFORM})
endif()
message(STATUS "ExecuTorch ${ETPROF_EXECUTORCH_VERSION}: ${_sdk}")

# Exact paths, because a toolchain file may confine find_package to the target's sysroot.
set(executorch_DIR "${_sdk}/lib/cmake/executorch")
find_package(executorch ${ETPROF_EXECUTORCH_VERSION} EXACT CONFIG REQUIRED
  COMPONENTS runtime kernels_optimized kernels_quantized backend_xnnpack threadpool etdump
  NO_DEFAULT_PATH NO_CMAKE_FIND_ROOT_PATH)

set(_components runtime kernels_optimized kernels_quantized backend_xnnpack threadpool etdump)
foreach(_component IN LISTS _components)
  if(APPLE AND _component STREQUAL "backend_xnnpack")
    # Its initialiser reads the table that the SME switch changes, and a library's initialisers run
    # before all of the executable's. So main loads it, after the switch.
    target_compile_definitions(etprof_executorch INTERFACE
      "ETPROF_LOADED_LIBRARY=\"@rpath/$<TARGET_FILE_NAME:executorch::${_component}>\"")
    continue()
  endif()
  target_link_libraries(etprof_executorch INTERFACE executorch::${_component})
  # The SDK's targets put their own absolute folder into RUNPATH. In an installed runner that would
  # be a deleted temporary folder, where others could plant libraries. CMake adds the path itself
  # in the build tree and takes it out again on installation.
  get_target_property(_options executorch::${_component} INTERFACE_LINK_OPTIONS)
  list(FILTER _options EXCLUDE REGEX "-rpath,")
  set_target_properties(executorch::${_component} PROPERTIES INTERFACE_LINK_OPTIONS "${_options}")
endforeach()
# The SDK's headers are not ours to keep free of warnings.
target_include_directories(etprof_executorch SYSTEM INTERFACE ${EXECUTORCH_INCLUDE_DIRS})
# Which commit it was built from; an SDK that was kept without this file does not say.
set(_revision "")
if(EXISTS "${_sdk}/version.py")
  file(STRINGS "${_sdk}/version.py" _revision REGEX "^git_version")
endif()
string(REGEX MATCH "[0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f][0-9a-f]+" ETPROF_EXECUTORCH_REVISION
       "${_revision}")
# The wheel is built with its event tracer.
set(ETPROF_EVENT_TRACER ON)
