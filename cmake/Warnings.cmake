# What every target of ours is compiled with: C++17, warnings, and sanitizers where asked for.
add_library(etprof_warnings INTERFACE)
add_library(etprof::warnings ALIAS etprof_warnings)
target_compile_features(etprof_warnings INTERFACE cxx_std_17)
target_compile_options(etprof_warnings INTERFACE -Wall -Wextra $<$<BOOL:${ETPROF_WERROR}>:-Werror>)

if(ETPROF_SANITIZERS)
  set(_sanitize -fsanitize=${ETPROF_SANITIZERS} -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_compile_options(etprof_warnings INTERFACE ${_sanitize})
  target_link_options(etprof_warnings INTERFACE ${_sanitize})
endif()
