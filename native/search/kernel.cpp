#include "search/kernel.hpp"

#include "common/level.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
const SearchKernels* search_kernels() {
    static const SearchKernels table{LANES};
    return &table;
}
}  // namespace beamwood::BEAMWOOD_LEVEL
