#include "train/prelu.hpp"

#include <algorithm>
#include <vector>

#include "common/level.hpp"
#include "common/parallel.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

// The number of ranges of rows, independent of the number of threads; their sums are added in order.
constexpr std::int64_t PARTS = 64;

void backward(std::int64_t rows, std::int64_t columns, const float* x, const float* slope, const float* gradient,
              float* d_x, float* d_slope, int threads) {
    if (columns == 0) return;
    const std::int64_t parts = std::min(rows, PARTS);
    std::vector<float> sums(parts * columns);
    parallel_rows(parts, threads, [&](int, std::int64_t part) {
        float* __restrict sum = &sums[part * columns];
        for (std::int64_t row = part * rows / parts; row < (part + 1) * rows / parts; ++row) {
            const float *in = x + row * columns, *d = gradient + row * columns;
            float* __restrict to = d_x + row * columns;
            std::int64_t c = 0;
            for (; c + LANES <= columns; c += LANES) {
                const Vec value = load(in + c), out = load(d + c), zero{};
                store(to + c, value > 0 ? out : load(slope + c) * out);
                store(sum + c, load(sum + c) + (value > 0 ? zero : value * out));
            }
            for (; c < columns; ++c) {
                to[c] = in[c] > 0 ? d[c] : slope[c] * d[c];
                sum[c] += in[c] > 0 ? 0.0f : in[c] * d[c];
            }
        }
    });
    for (std::int64_t c = 0; c < columns; ++c) {
        double total = 0;
        for (std::int64_t part = 0; part < parts; ++part) total += sums[part * columns + c];
        d_slope[c] = static_cast<float>(total);
    }
}

}  // namespace

const PreluKernels* prelu_kernels() {
    static const PreluKernels table{backward};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
