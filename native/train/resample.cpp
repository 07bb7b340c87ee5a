#include "train/resample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/level.hpp"
#include "common/parallel.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

// exp(x) for x <= 0 to about 2 units of float32; 0 below -87, where float32 ends.
BEAMWOOD_INLINE Vec exp_of(Vec x) {
    const Vec lowest = splat(-87.0f), magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to a whole number
    const Vec kept = x < lowest ? lowest : x;
    const Vec shifted = kept * splat(1.44269504f) + magic, whole = shifted - magic;
    const Vec f = (kept - whole * splat(0.693359375f)) - whole * splat(-2.12194440e-4f);
    Vec p = splat(1.9875691500e-4f);
    p = p * f + splat(1.3981999507e-3f);
    p = p * f + splat(8.3334519073e-3f);
    p = p * f + splat(4.1665795894e-2f);
    p = p * f + splat(1.6666665459e-1f);
    p = p * f + splat(5.0000001201e-1f);
    p = p * f * f + f + splat(1.0f);
    IntVec bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000;  // the low bits of `shifted` hold the whole number
    Vec scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return x < lowest ? Vec{} : p * scale;
}

void systematic(std::int64_t rows, std::int64_t columns, const float* scores, const float* less, const bool* masked,
                const float* starts, std::int64_t draws, float* counts, int threads) {
    if (columns == 0) return;
    const std::int64_t padded = (columns + LANES - 1) / LANES * LANES;
    std::vector<float> weights(padded * std::max(threads, 1));
    std::vector<double> sums(padded * std::max(threads, 1));
    parallel_rows(rows, std::max(threads, 1), [&](int worker, std::int64_t row) {
        float* __restrict w = &weights[worker * padded];
        double* __restrict s = &sums[worker * padded];
        const float* from = scores + row * columns;
        const bool* none = masked + row * columns;
        const float infinite = std::numeric_limits<float>::infinity();
        float top = -infinite;
        for (std::int64_t c = 0; c < columns; ++c) {
            w[c] = none[c] ? -infinite : from[c] - less[c];
            top = w[c] > top ? w[c] : top;
        }
        float* __restrict to = counts + row * columns;
        if (!(top > -infinite)) {
            std::fill_n(to, columns, 0.0f);
            return;
        }
        std::fill(w + columns, w + padded, -infinite);
        for (std::int64_t c = 0; c < padded; c += LANES) store(w + c, exp_of(load(w + c) - splat(top)));
        double total = 0;
        for (std::int64_t c = 0; c < columns; ++c) s[c] = total += w[c];
        const double scale = draws / total, start = starts[row];
        std::int64_t last = columns - 1;
        while (w[last] == 0) --last;
        for (std::int64_t c = 0; c < columns; ++c) s[c] = std::floor(s[c] * scale + start);
        // Whatever rounding says, all draws are made by the last candidate that can be drawn.
        for (std::int64_t c = last; c < columns; ++c) s[c] = static_cast<double>(draws);
        to[0] = static_cast<float>(s[0]);
        for (std::int64_t c = 1; c < columns; ++c) to[c] = static_cast<float>(s[c] - s[c - 1]);
    });
}

}  // namespace

const ResampleKernels* resample_kernels() {
    static const ResampleKernels table{systematic};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
