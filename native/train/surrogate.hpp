// The network that predicts a list's NDCG, with its gradients in the same call.
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"

namespace beamwood {

// `size` predictions per list, layers of `width`; `mlp`: whether it has the MLP; `degree`: of the NFM, 0: none.
struct SurrogateSizes {
    std::int64_t size, width, degree;
    bool mlp;

    static constexpr std::int64_t LAST = 8;

    // The inputs of the layer after the pooling.
    std::int64_t pooled() const { return degree == 1 ? width : size; }
    std::int64_t weights() const {
        std::int64_t count = (width + 1) * LAST + LAST + 1;
        if (mlp) count += (2 * size + 1) * width + (width + 1) * width;
        if (degree) count += 3 * width + (pooled() + 1) * width;
        return count;
    }
};

struct SurrogateKernels {
    // p, labels [rows, size]; weights: the matrix [out, in] and the bias of each layer, in the order v1, v2, g, e, h1, h2.
    // Writes predicted [rows]. With `gradient` [rows], or with `target` [rows] (gradient = predicted - target, of half the
    // squared error), also writes d_p [rows, size] and d_weights, where not null.
    void (*run)(const SurrogateSizes& sizes, std::int64_t rows, const float* p, const float* labels,
                const float* weights, const float* gradient, const float* target, float* predicted, float* d_p,
                float* d_weights);
};

BEAMWOOD_DECLARE_KERNELS(SurrogateKernels, surrogate_kernels)

}  // namespace beamwood
