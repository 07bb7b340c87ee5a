#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "common/cpu.hpp"
#include "search/kernel.hpp"

namespace nb = nanobind;

namespace beamwood {
void register_search(nb::module_& module) {
    module.def("search_lanes", [](const std::string& level) {
        return BEAMWOOD_PICK_KERNELS(search_kernels, choose_level(level))->lanes;
    }, nb::arg("level") = "");
}
}  // namespace beamwood
