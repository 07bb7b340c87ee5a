#pragma once
#include "common/dispatch.hpp"
namespace beamwood {
struct SearchKernels {
    int lanes;
};
BEAMWOOD_DECLARE_KERNELS(SearchKernels, search_kernels)
}  // namespace beamwood
