// The NDCG of short lists.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

namespace beamwood {

// values[row]: the NDCG@k of each list, with gain 2^label - 1 and ties by the lower label. It is 0 without a positive gain,
// and NaN if a score or a label is NaN. scores, labels [rows, size].
inline void list_ndcg(std::int64_t rows, std::int64_t size, std::int64_t k, const float* scores, const float* labels,
                      float* values) {
    const std::int64_t places = std::min(size, k);
    std::vector<double> discounts(places);
    for (std::int64_t place = 0; place < places; ++place) discounts[place] = 1 / std::log2(place + 2.0);
    std::vector<std::int64_t> order(size);
    for (std::int64_t row = 0; row < rows; ++row) {
        const float *score = scores + row * size, *label = labels + row * size;
        const bool odd = std::any_of(score, score + size, [](float x) { return std::isnan(x); }) ||
                         std::any_of(label, label + size, [](float x) { return std::isnan(x); });
        if (odd) {
            values[row] = std::numeric_limits<float>::quiet_NaN();
            continue;
        }
        const auto dcg = [&](auto before) {
            for (std::int64_t i = 0; i < size; ++i) order[i] = i;
            std::partial_sort(order.begin(), order.begin() + places, order.end(), before);
            double sum = 0;
            for (std::int64_t place = 0; place < places; ++place)
                sum += (std::exp2(static_cast<double>(label[order[place]])) - 1) * discounts[place];
            return sum;
        };
        const double ideal = dcg([&](std::int64_t a, std::int64_t b) { return label[a] > label[b]; });
        const double got = dcg([&](std::int64_t a, std::int64_t b) {
            return score[a] > score[b] || (score[a] == score[b] && label[a] < label[b]);
        });
        values[row] = static_cast<float>(ideal > 0 ? got / ideal : got);
    }
}

}  // namespace beamwood
