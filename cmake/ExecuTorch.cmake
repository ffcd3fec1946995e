# Provides etprof::executorch, the C++ runtime that the runner links: kernels, XNNPACK, ETDump.
#
# Provider "wheel" takes the C++ SDK inside the pinned Python wheel; provider "source" builds
# ExecuTorch itself, for platforms that have no wheel and for runners without SME or event tracer.

# The one pin is the dependency in pyproject.toml.
file(STRINGS "${PROJECT_SOURCE_DIR}/pyproject.toml" _pin_line REGEX "\"executorch==[0-9.]+\"")
string(REGEX MATCH "[0-9]+\\.[0-9]+\\.[0-9]+" ETPROF_EXECUTORCH_VERSION "${_pin_line}")
if(NOT ETPROF_EXECUTORCH_VERSION)
  message(FATAL_ERROR "pyproject.toml has no line \"executorch==X.Y.Z\"; the build needs that pin.")
endif()
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS "${PROJECT_SOURCE_DIR}/pyproject.toml")

set(ETPROF_EXECUTORCH_PROVIDER "wheel" CACHE STRING "Where ExecuTorch comes from: wheel or source")
set_property(CACHE ETPROF_EXECUTORCH_PROVIDER PROPERTY STRINGS wheel source)

find_package(Python3 REQUIRED COMPONENTS Interpreter)

add_library(etprof_executorch INTERFACE)
add_library(etprof::executorch ALIAS etprof_executorch)
if(ETPROF_EXECUTORCH_PROVIDER STREQUAL "wheel")
  include(ExecuTorchWheel)
elseif(ETPROF_EXECUTORCH_PROVIDER STREQUAL "source")
  include(ExecuTorchSource)
else()
  message(FATAL_ERROR "ETPROF_EXECUTORCH_PROVIDER is \"${ETPROF_EXECUTORCH_PROVIDER}\"; use wheel or source.")
endif()
