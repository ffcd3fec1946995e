"""The version of etprof: here alone; CMake and the build read it too."""

__version__ = "0.2.0"
