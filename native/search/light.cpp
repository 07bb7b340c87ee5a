#include "search/light.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#if defined(__AVX2__)
#include <immintrin.h>
#endif

#include "common/level.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

void enter(const LightModel& model, const std::int64_t* rows, const float* weights, std::int64_t count,
           LightSpace& space) {
    const int width = model.width, hidden = model.hidden;
    float* sum = space.sum.data();
    float* inner = space.hidden.data();
    float* query = space.query.data();
    std::fill_n(sum, width, 0.0f);
    for (std::int64_t i = 0; i < count; ++i) {
        const std::int8_t* row = model.history + rows[i] * width;
        const float weight = weights[i] * model.history_scales[rows[i]];
        for (int at = 0; at < width; ++at) sum[at] += weight * static_cast<float>(row[at]);
    }
    std::memcpy(inner, model.up_bias.data(), hidden * sizeof(float));
    for (int at = 0; at < width; ++at) {
        const float* row = model.up.data() + static_cast<std::size_t>(at) * hidden;
        for (int j = 0; j < hidden; ++j) inner[j] += sum[at] * row[j];
    }
    for (int at = 0; at < width; ++at) query[at] = sum[at] + model.down_bias[at];
    for (int j = 0; j < hidden; ++j) {
        if (!(inner[j] > 0)) continue;
        const float* row = model.down.data() + static_cast<std::size_t>(j) * width;
        for (int at = 0; at < width; ++at) query[at] += inner[j] * row[at];
    }
    float largest = 0, nothing = 0;
    for (int at = 0; at < width; ++at) {
        largest = std::max(largest, std::fabs(query[at]));
        nothing += query[at] * 0;
    }
    // NaN marks a query that is not finite.
    space.unit = largest / LightModel::UNITS + nothing;
    for (int at = 0; at < width; ++at)
        space.units[at] = space.unit > 0 ? static_cast<std::int16_t>(std::lrint(query[at] / space.unit)) : 0;
}

// Children of a node are adjacent, so rows are mostly read sequentially.
void multiply(const LightModel& model, const LightSpace& space, std::int64_t first, const std::int32_t* wanted,
              std::int64_t count, std::int32_t* products) {
    const int width = model.width;
    const std::int16_t* units = space.units.data();
    const std::int8_t* table = model.nodes + first * width;
    constexpr std::int64_t AHEAD = 16;
    for (std::int64_t i = 0; i < count; ++i) {
        if (i + AHEAD < count) __builtin_prefetch(table + static_cast<std::int64_t>(wanted[i + AHEAD]) * width);
        const std::int8_t* row = table + static_cast<std::int64_t>(wanted[i]) * width;
        std::int32_t sum = 0;
        int at = 0;
#if defined(__AVX2__)
        __m256i sums = _mm256_setzero_si256();
        for (; at + 16 <= width; at += 16) {
            const __m256i values = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(row + at)));
            const __m256i query = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(units + at));
            sums = _mm256_add_epi32(sums, _mm256_madd_epi16(values, query));
        }
        __m128i half = _mm_add_epi32(_mm256_castsi256_si128(sums), _mm256_extracti128_si256(sums, 1));
        half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0x4e));
        half = _mm_add_epi32(half, _mm_shuffle_epi32(half, 0xb1));
        sum = _mm_cvtsi128_si32(half);
#endif
        for (; at < width; ++at) sum += static_cast<std::int32_t>(row[at]) * units[at];
        products[i] = sum;
    }
}

}  // namespace

const LightKernels* light_kernels() {
    static constexpr LightKernels table{enter, multiply};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
