// The Python module beamwood._native.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "common/cpu.hpp"

namespace nb = nanobind;

namespace beamwood {
void register_background(nb::module_& module);
void register_search(nb::module_& module);
void register_rows(nb::module_& module);
void register_train(nb::module_& module);
}  // namespace beamwood

NB_MODULE(_native, module) {
    // A daemon thread that is still searching when the interpreter ends keeps its searcher alive until the process ends.
    nb::set_leak_warnings(false);
    module.doc() = "Kernels of beamwood; use them through beamwood.kernels, which checks arguments.";
    module.def("levels", [] { return beamwood::levels(); },
               "Compiled instruction sets that this processor runs, the best last.");
    module.def("has_amx", &beamwood::has_amx, "Whether AMX tiles can be used.");
    beamwood::register_background(module);
    beamwood::register_search(module);
    beamwood::register_rows(module);
    beamwood::register_train(module);
}
