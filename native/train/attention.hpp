// DIN's attention weights for training; backward recomputes the hidden layer.
//
// Legend: G groups (a user on a level, or one group for a table), L history entries, M nodes, D width, A hidden width.
// All arrays are row-major and contiguous.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

struct AttentionSizes {
    std::int64_t groups, entries, nodes;
    int width, hidden;
};

// weight_in [A, 3 D] on [a; a * w; w]; weight_out [A]; bias_out, slope_out [1].
struct AttentionInputs {
    const float* a;        // [G, L, D]
    const float* w;        // [G, M, D]
    const bool* present;   // [G, L]
    const float *weight_in, *bias_in, *slope_in, *weight_out, *bias_out, *slope_out;
};

// The gradient of each input, in its shape.
struct AttentionGradients {
    float *a, *w, *weight_in, *bias_in, *slope_in, *weight_out, *bias_out, *slope_out;
};

struct AttentionKernels {
    // weights [G, M, L], 0 for absent entries.
    void (*forward)(const AttentionSizes&, const AttentionInputs&, float* weights, int threads);
    // Bit-identical for any number of threads: partial sums are over fixed parts and added in a fixed order.
    void (*backward)(const AttentionSizes&, const AttentionInputs&, const float* gradient, const AttentionGradients&,
                     int threads);
};

BEAMWOOD_DECLARE_KERNELS(AttentionKernels, attention_kernels)

}  // namespace beamwood
