// PReLU's backward in one pass over the data.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

struct PreluKernels {
    // x, gradient, d_x [rows, columns]; slope, d_slope [columns]. Bit-identical for any number of threads.
    void (*backward)(std::int64_t rows, std::int64_t columns, const float* x, const float* slope, const float* gradient,
                     float* d_x, float* d_slope, int threads);
};

BEAMWOOD_DECLARE_KERNELS(PreluKernels, prelu_kernels)

}  // namespace beamwood
