// The network that predicts a list's NDCG, with its gradients in the same call.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

// `size` predictions a list, layers of `width`; `mlp` and `degree` (0, 1, 2: none, NFM of that degree) say which parts.
struct SurrogateSizes {
    std::int64_t size, width, degree;
    bool mlp;

    static constexpr std::int64_t LAST = 8;

    // What the layer behind the pooling takes.
    std::int64_t pooled() const { return degree == 1 ? width : size; }
    std::int64_t weights() const {
        std::int64_t count = (width + 1) * LAST + LAST + 1;
        if (mlp) count += (2 * size + 1) * width + (width + 1) * width;
        if (degree) count += 3 * width + (pooled() + 1) * width;
        return count;
    }
};

struct SurrogateKernels {
    // p, labels [rows, size]; weights: of each layer the matrix [out, in], then the bias, in the order v1, v2, g, e,
    // h1, h2. Writes predicted [rows]. With `gradient` [rows], or `target` [rows] for that of half the squared misses
    // (gradient = predicted - target), also d_p [rows, size] and d_weights, where not null.
    void (*run)(const SurrogateSizes& sizes, std::int64_t rows, const float* p, const float* labels,
                const float* weights, const float* gradient, const float* target, float* predicted, float* d_p,
                float* d_weights);
};

BEAMWOOD_DECLARE_KERNELS(SurrogateKernels, surrogate_kernels)

}  // namespace beamwood
