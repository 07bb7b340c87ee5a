// Systematic resampling: how often each candidate is drawn, row by row, in one pass over the scores.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

struct ResampleKernels {
    // Row b draws `draws` times by softmax(scores - less) among what is not masked; draw j stands at (j + starts[b])
    // equal steps of the cumulated weights. scores, masked, counts [rows, columns]; less [columns]. A row that is
    // masked throughout has counts 0.
    void (*systematic)(std::int64_t rows, std::int64_t columns, const float* scores, const float* less,
                       const bool* masked, const float* starts, std::int64_t draws, float* counts, int threads);
};

BEAMWOOD_DECLARE_KERNELS(ResampleKernels, resample_kernels)

}  // namespace beamwood
