# Puts the runner's sources into the wheel: `etprof emulator setup` builds the Arm runners from them
# where there is no checkout.
set(_destination etprof/source)
install(FILES CMakeLists.txt CMakePresets.json pyproject.toml DESTINATION ${_destination})
install(DIRECTORY cmake cpp toolchains DESTINATION ${_destination})
# What the build itself imports, to describe microkernels.
install(FILES python/etprof/_version.py DESTINATION ${_destination}/python/etprof)
install(FILES python/etprof/backends/__init__.py python/etprof/backends/kernel_names.py
        DESTINATION ${_destination}/python/etprof/backends)
