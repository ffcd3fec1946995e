# What exactly a source build is made of: commit of each part, and whether it has other changes.

find_package(Git QUIET)

# Sets OUT to C++ lines that write one object per part of CHECKOUT to a JsonWriter named json.
function(etprof_describe_sources OUT CHECKOUT)
  set(_lines "")
  foreach(_part . ${ETPROF_EXECUTORCH_SUBMODULES})
    get_filename_component(_name "${_part}" NAME)
    if(_part STREQUAL ".")
      set(_name executorch)
    endif()
    etprof_read_commit(_commit _is_modified "${CHECKOUT}/${_part}")
    etprof_append_part(_lines "${_name}" "${_commit}" "${_is_modified}")
  endforeach()
  etprof_read_kleidiai_commit(_commit _is_modified "${CHECKOUT}")
  etprof_append_part(_lines kleidiai "${_commit}" "${_is_modified}")
  set(${OUT} "${_lines}" PARENT_SCOPE)
endfunction()

function(etprof_append_part LINES NAME COMMIT IS_MODIFIED)
  set(_text "\"${COMMIT}\"")
  if(NOT COMMIT)
    set(_text "nullptr")
    set(IS_MODIFIED nullptr)
  endif()
  string(APPEND ${LINES}
    "    json.begin_object();\n    json.field(\"name\", \"${NAME}\");\n"
    "    json.field(\"commit\", ${_text});\n    json.field(\"modified\", ${IS_MODIFIED});\n"
    "    json.end_object();\n")
  set(${LINES} "${${LINES}}" PARENT_SCOPE)
endfunction()

# Sets COMMIT to "" for a folder that is no git work tree of its own, such as an unpacked archive.
function(etprof_read_commit COMMIT IS_MODIFIED FOLDER)
  set(${COMMIT} "" PARENT_SCOPE)
  set(${IS_MODIFIED} false PARENT_SCOPE)
  if(NOT GIT_EXECUTABLE OR NOT EXISTS "${FOLDER}/.git")
    return()
  endif()
  # No lock, not even for the index: the checkout is only read.
  set(_git "${GIT_EXECUTABLE}" --no-optional-locks -C "${FOLDER}")
  execute_process(COMMAND ${_git} rev-parse HEAD
    OUTPUT_VARIABLE _commit OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
  execute_process(
    COMMAND ${_git} status --porcelain --untracked-files=no --ignore-submodules=all
    OUTPUT_VARIABLE _changes ERROR_QUIET)
  set(${COMMIT} "${_commit}" PARENT_SCOPE)
  if(_changes)
    set(${IS_MODIFIED} true PARENT_SCOPE)
  endif()
endfunction()

# XNNPACK itself says which KleidiAI it downloads, unless a checkout is given.
function(etprof_read_kleidiai_commit COMMIT IS_MODIFIED CHECKOUT)
  set(_recipe "${CHECKOUT}/backends/xnnpack/third-party/XNNPACK/cmake/DownloadKleidiAI.cmake")
  if(KLEIDIAI_SOURCE_DIR AND NOT KLEIDIAI_SOURCE_DIR STREQUAL "${CMAKE_BINARY_DIR}/kleidiai-source")
    etprof_read_commit(_commit _is_modified "${KLEIDIAI_SOURCE_DIR}")
  else()
    file(STRINGS "${_recipe}" _url REGEX "URL https://")
    string(REGEX MATCH "[0-9a-f]+\\.zip" _commit "${_url}")
    string(REPLACE ".zip" "" _commit "${_commit}")
    set(_is_modified false)
  endif()
  set(${COMMIT} "${_commit}" PARENT_SCOPE)
  set(${IS_MODIFIED} "${_is_modified}" PARENT_SCOPE)
endfunction()
