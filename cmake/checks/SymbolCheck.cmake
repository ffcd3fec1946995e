# Checks a runner after the link, and lets it tell the result.
#
# The runner is linked twice: first without the result, to look into it, then with it. The second
# one is looked into as well.
function(etprof_check_symbols RUNNER)
  set(_probe "${RUNNER}-unchecked")
  get_target_property(_sources ${RUNNER} SOURCES)
  get_target_property(_libraries ${RUNNER} LINK_LIBRARIES)
  add_executable(${_probe} ${_sources})
  target_link_libraries(${_probe} PRIVATE ${_libraries})

  set(_archives "")
  foreach(_target IN LISTS ETPROF_EXECUTORCH_LIBRARIES)
    list(APPEND _archives "$<TARGET_FILE:${_target}>")
  endforeach()
  set(_script "${PROJECT_SOURCE_DIR}/cmake/checks/symbols.cmake")
  set(_check "${CMAKE_CURRENT_BINARY_DIR}/${RUNNER}_symbols.cpp")
  set(_look "${CMAKE_COMMAND}" "-DNM=${CMAKE_NM}" "-DSME=${XNNPACK_ENABLE_ARM_SME2}")
  add_custom_command(
    OUTPUT "${_check}"
    COMMAND ${_look} "-DBINARY=$<TARGET_FILE:${_probe}>" "-DOUTPUT=${_check}"
            "-DLIBRARIES=$<JOIN:${_archives},|>" -P "${_script}"
    DEPENDS ${_probe} ${_archives} "${_script}"
    COMMENT "Checking the runner's microkernels against its preset"
    VERBATIM)
  target_sources(${RUNNER} PRIVATE "${_check}")
  add_custom_command(TARGET ${RUNNER} POST_BUILD
    COMMAND ${_look} "-DBINARY=$<TARGET_FILE:${RUNNER}>" -P "${_script}"
    VERBATIM)
endfunction()
