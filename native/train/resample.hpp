// Systematic resampling: counts of drawn candidates per row, and the softmax against the drawn ones.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

// One softmax of a row: `draws` draws among the columns [first, stop), with `share` of the loss.
struct DrawnPart {
    std::int64_t first, stop, draws;
    float share;
};

// Row b draws by softmax(scores - log_q) among unmasked columns. Draw j is at (j + start) equal steps of the cumulated
// weights, summed in the order of CHAINS interleaved chains: columns 0, 16, 32, .., 1, 17, .. A fully masked row has no
// draws. scores, masked [rows, columns]; log_q [columns]; starts [rows, parts], each in [0, 1).
struct ResampleKernels {
    // counts [rows, columns], with one part of all columns.
    void (*systematic)(std::int64_t rows, std::int64_t columns, const float* scores, const float* log_q,
                       const bool* masked, const float* starts, std::int64_t draws, float* counts, int threads);
    // losses[b] = sum over parts of share * (-positive + log(exp(positive) + sum of exp(scores) of the draws)).
    // `scores` becomes its gradient; own[b]: the gradient by `positive`, plus 1; drawn[columns]: the counts of draws.
    void (*softmax)(std::int64_t rows, std::int64_t columns, float* scores, const float* log_q, const bool* masked,
                    const float* positive, const float* starts, const DrawnPart* parts, int num_parts, float* losses,
                    float* own, std::int64_t* drawn, int threads);
};

BEAMWOOD_DECLARE_KERNELS(ResampleKernels, resample_kernels)

}  // namespace beamwood
