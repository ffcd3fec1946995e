#include <pybind11/pybind11.h>
PYBIND11_MODULE(_etdump, m) { m.attr("__version__") = ETPROF_VERSION; }
