// DIN's attention weights for training: forward, and a backward that computes the hidden layer again.
//
// Groups G (a user on a level, or one for a table of pairs), history entries L, nodes M, width D, hidden width A.
// All arrays are row-major and contiguous.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

struct AttentionSizes {
    std::int64_t groups, entries, nodes;
    int width, hidden;
};

// weight_in [A, 3 D] on [a; a * w; w]; weight_out [A]; bias_out and slope_out one value each.
struct AttentionInputs {
    const float* a;        // [G, L, D]
    const float* w;        // [G, M, D]
    const bool* present;   // [G, L]
    const float *weight_in, *bias_in, *slope_in, *weight_out, *bias_out, *slope_out;
};

// The gradient of each input, shaped like it.
struct AttentionGradients {
    float *a, *w, *weight_in, *bias_in, *slope_in, *weight_out, *bias_out, *slope_out;
};

struct AttentionKernels {
    // weights [G, M, L], 0 where the entry is absent.
    void (*forward)(const AttentionSizes&, const AttentionInputs&, float* weights, int threads);
    // The same bits for every number of threads: partial sums are over fixed parts and added in a fixed order.
    void (*backward)(const AttentionSizes&, const AttentionInputs&, const float* gradient, const AttentionGradients&,
                     int threads);
};

BEAMWOOD_DECLARE_KERNELS(AttentionKernels, attention_kernels)

}  // namespace beamwood
