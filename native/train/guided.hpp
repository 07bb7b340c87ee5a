// The loss of a move of GuidedRec, from scores to gradients in one call.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "train/ndcg.hpp"
#include "train/surrogate.hpp"

namespace beamwood {

struct GuidedMove {
    double loss, predicted, truth;  // the last two are means over the lists; truth is 0 for k = 0
};

// scores, labels [rows, size], predictions from sigmoid(scores). k >= 1: half the squared error of the lists' NDCG@k;
// k = 0: minus the sum of the predictions. d_scores [rows, size] and d_weights may be null.
inline GuidedMove guided_move(const SurrogateKernels& kernels, const SurrogateSizes& sizes, std::int64_t rows,
                              const float* scores, const float* labels, const float* weights, std::int64_t k,
                              float* d_scores, float* d_weights) {
    const std::int64_t count = rows * sizes.size;
    std::vector<float> p(count), predicted(rows), given(rows, -1.0f);
    for (std::int64_t i = 0; i < count; ++i) p[i] = 1.0f / (1.0f + std::exp(-scores[i]));
    if (k) list_ndcg(rows, sizes.size, k, scores, labels, given.data());
    const float *gradient = k ? nullptr : given.data(), *target = k ? given.data() : nullptr;
    kernels.run(sizes, rows, p.data(), labels, weights, gradient, target, predicted.data(), d_scores, d_weights);
    if (d_scores)
        for (std::int64_t i = 0; i < count; ++i) d_scores[i] *= p[i] * (1.0f - p[i]);
    GuidedMove move{};
    for (std::int64_t row = 0; row < rows; ++row) {
        const double miss = double(predicted[row]) - double(given[row]);
        move.loss += k ? miss * miss / 2 : -double(predicted[row]);
        move.predicted += predicted[row];
        move.truth += k ? given[row] : 0.0f;
    }
    if (rows) move.predicted /= double(rows), move.truth /= double(rows);
    return move;
}

}  // namespace beamwood
