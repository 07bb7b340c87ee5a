// Rectified labels: the nearest leaves on both sides of the target's leaf with a better item.
#pragma once

#include <cstdint>

namespace beamwood {

// For each row, in leaf order: the positions of the nearest better items left and right of `places[row]`, or -1.
// Better: a higher score, or the same score and a lower item index. `nearest` [rows, 2].
inline void nearest_better(std::int64_t rows, std::int64_t num_items, const float* scores, const std::int32_t* items,
                           const std::int64_t* places, std::int64_t* nearest) {
    for (std::int64_t row = 0; row < rows; ++row) {
        const float* score = scores + row * num_items;
        const std::int64_t place = places[row];
        const float own = score[place];
        const std::int32_t item = items[place];
        const auto better = [&](std::int64_t at) {
            return score[at] > own || (score[at] == own && items[at] < item);
        };
        std::int64_t left = place - 1, right = place + 1;
        while (left >= 0 && !better(left)) --left;
        while (right < num_items && !better(right)) ++right;
        nearest[2 * row] = left;
        nearest[2 * row + 1] = right < num_items ? right : -1;
    }
}

}  // namespace beamwood
