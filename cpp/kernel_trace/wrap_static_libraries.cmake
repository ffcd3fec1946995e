# The kernel trace of a source build: every reference to a microkernel is wrapped at link time.

if(APPLE)
  message(STATUS "Apple's linker wraps no symbols: this trace build has XNNPACK's log, no counters")
  target_sources(etprof_kernel_trace PRIVATE no_kernel_trace.cpp)
  return()
endif()

set(_libraries "")
foreach(_target XNNPACK xnnpack-microkernels-prod kleidiai pthreadpool xnnpack_backend
        extension_threadpool)
  list(APPEND _libraries "$<TARGET_FILE:${_target}>")
endforeach()
set(_symbols "${CMAKE_CURRENT_BINARY_DIR}/wrapped_symbols.inc")
set(_options "${CMAKE_CURRENT_BINARY_DIR}/wrap_options.txt")
add_custom_command(
  OUTPUT "${_symbols}" "${_options}"
  COMMAND "${Python3_EXECUTABLE}" "${CMAKE_CURRENT_SOURCE_DIR}/generate_wrapped_symbols.py"
          --nm "${CMAKE_NM}" --output "${_symbols}" --options "${_options}" ${_libraries}
  DEPENDS generate_wrapped_symbols.py generate_symbols.py
          "${PROJECT_SOURCE_DIR}/python/etprof/backends/kernel_names.py" ${_libraries}
  COMMENT "Listing the microkernels of ExecuTorch's libraries"
  VERBATIM)
target_sources(etprof_kernel_trace PRIVATE
  clock_tracer.cpp execution.cpp kernel_counters.cpp kernel_trace.cpp operator_clock.cpp
  trace_document.cpp "${_symbols}")
target_include_directories(etprof_kernel_trace PRIVATE "${CMAKE_CURRENT_BINARY_DIR}")
# In the executable itself: a linker that reads each library once would not come back for them.
add_library(etprof_wrapped_calls OBJECT wrapped_calls.cpp "${_symbols}")
target_include_directories(etprof_wrapped_calls PRIVATE
  "${PROJECT_SOURCE_DIR}/cpp" "${CMAKE_CURRENT_BINARY_DIR}")
target_link_libraries(etprof_wrapped_calls PRIVATE etprof::warnings)
# A stand-in that nothing refers to after all must not keep its microkernel in the runner.
target_compile_options(etprof_wrapped_calls PRIVATE -ffunction-sections)
target_sources(etprof_kernel_trace INTERFACE $<TARGET_OBJECTS:etprof_wrapped_calls>)
target_link_options(etprof_kernel_trace INTERFACE "@${_options}")
set_property(TARGET etprof_kernel_trace APPEND PROPERTY INTERFACE_LINK_DEPENDS "${_options}")
