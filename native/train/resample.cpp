#include "train/resample.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "common/exp.hpp"
#include "common/level.hpp"
#include "common/parallel.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

constexpr int CHAINS = 16, ABREAST = CHAINS / LANES;

typedef signed char ByteVec __attribute__((vector_size(LANES)));

BEAMWOOD_INLINE Vec larger(Vec a, Vec b) { return a > b ? a : b; }

BEAMWOOD_INLINE float largest(Vec x) {
    float top = x[0];
    for (int lane = 1; lane < LANES; ++lane) top = x[lane] > top ? x[lane] : top;
    return top;
}

// The buffers of one worker for one row: scores, weights and counts, padded to whole chains.
struct Row {
    std::vector<float> scores, weights;
    std::vector<std::int32_t> counts;
    std::int64_t padded = 0;

    explicit Row(std::int64_t columns) {
        const std::int64_t room = (columns + CHAINS - 1) / CHAINS * CHAINS;
        scores.resize(room), weights.resize(room), counts.resize(room);
    }

    // Computes weights exp(score - log_q), scaled to a maximum of 1. Returns false if no candidate can be drawn.
    bool weigh(std::int64_t columns, const float* from, const float* log_q, const bool* masked) {
        padded = (columns + CHAINS - 1) / CHAINS * CHAINS;
        float *__restrict s = scores.data(), *__restrict w = weights.data();
        const float infinite = std::numeric_limits<float>::infinity();
        const std::int64_t whole = columns / LANES * LANES;
        Vec top = splat(-infinite);
        for (std::int64_t c = 0; c < whole; c += LANES) {
            ByteVec bytes;
            std::memcpy(&bytes, masked + c, sizeof bytes);
            const Vec score = load(from + c), log_q_c = load(log_q + c);
            const Vec x = __builtin_convertvector(bytes, IntVec) != 0 ? splat(-infinite) : score - log_q_c;
            store(s + c, score);
            store(w + c, x);
            top = larger(x, top);
        }
        float highest = largest(top);
        for (std::int64_t c = whole; c < padded; ++c) {
            s[c] = c < columns ? from[c] : 0.0f;
            w[c] = c < columns && !masked[c] ? from[c] - log_q[c] : -infinite;
            highest = w[c] > highest ? w[c] : highest;
        }
        if (!(highest > -infinite)) return false;
        for (std::int64_t c = 0; c < padded; c += LANES) store(w + c, exp_of(load(w + c) - splat(highest)));
        return true;
    }

    // Computes counts of `draws` draws by the weights. Returns false if these are not finite. Every chain sums in the same
    // order in both passes, so places do not decrease along the row and a weight of 0 is never drawn.
    bool draw(std::int64_t draws, float start) {
        const float* __restrict w = weights.data();
        std::int32_t* __restrict to = counts.data();
        Vec sum[ABREAST] = {}, base[ABREAST];
        for (std::int64_t c = 0; c < padded; c += CHAINS)
            for (int v = 0; v < ABREAST; ++v) sum[v] += load(w + c + v * LANES);
        float total = 0;
        for (int chain = 0; chain < CHAINS; ++chain) {
            base[chain / LANES][chain % LANES] = total;
            total += sum[chain / LANES][chain % LANES];
        }
        if (!(total > 0 && total < std::numeric_limits<float>::infinity())) return false;
        const Vec scale = splat(static_cast<float>(draws) / total), shift = splat(start);
        const Vec most = splat(static_cast<float>(draws));
        auto place = [&](Vec x) {
            const Vec at = x * scale + shift;
            return __builtin_convertvector(at < most ? at : most, IntVec);
        };
        IntVec before[ABREAST];
        Vec running[ABREAST] = {};
        for (int v = 0; v < ABREAST; ++v) before[v] = place(base[v]);
        for (std::int64_t c = 0; c < padded; c += CHAINS)
            for (int v = 0; v < ABREAST; ++v) {
                running[v] += load(w + c + v * LANES);
                const IntVec now = place(base[v] + running[v]), count = now - before[v];
                std::memcpy(to + c + v * LANES, &count, sizeof count);
                before[v] = now;
            }
        // Draws lost by rounding go to the best candidate.
        const std::int64_t left = draws - before[ABREAST - 1][LANES - 1];
        if (left > 0) to[std::find(w, w + padded, 1.0f) - w] += static_cast<std::int32_t>(left);
        return true;
    }

    // The softmax of a positive against the draws. Weights become the candidates' summands; their sum is returned. `top`:
    // the maximum, subtracted from every exponent.
    float share(float positive, float& top) {
        const float* __restrict s = scores.data();
        const std::int32_t* __restrict n = counts.data();
        float* __restrict w = weights.data();
        auto counted = [&](std::int64_t c) {
            IntVec count;
            std::memcpy(&count, n + c, sizeof count);
            return count;
        };
        Vec highest = splat(positive);
        for (std::int64_t c = 0; c < padded; c += LANES) {
            const Vec score = load(s + c);
            highest = larger(counted(c) > 0 ? score : highest, highest);
        }
        top = largest(highest);
        Vec total{};
        for (std::int64_t c = 0; c < padded; c += LANES) {
            const IntVec count = counted(c);
            // Candidates that were not drawn may be above `top`, outside the domain of `exp_of`.
            const Vec x = count > 0 ? load(s + c) - splat(top) : splat(-std::numeric_limits<float>::infinity());
            const Vec part = exp_of(x) * __builtin_convertvector(count, Vec);
            store(w + c, part);
            total += part;
        }
        float sum = 0;
        for (int lane = 0; lane < LANES; ++lane) sum += total[lane];
        return sum;
    }
};

void systematic(std::int64_t rows, std::int64_t columns, const float* scores, const float* log_q, const bool* masked,
                const float* starts, std::int64_t draws, float* counts, int threads) {
    if (columns == 0) return;
    threads = threads_for(rows, threads);
    std::vector<Row> workers(threads, Row(columns));
    parallel_rows(rows, threads, [&](int worker, std::int64_t row) {
        Row& r = workers[worker];
        const std::int64_t first = row * columns;
        const bool some = r.weigh(columns, scores + first, log_q, masked + first) && r.draw(draws, starts[row]);
        for (std::int64_t c = 0; c < columns; ++c) counts[first + c] = some ? static_cast<float>(r.counts[c]) : 0.0f;
    });
}

void softmax(std::int64_t rows, std::int64_t columns, float* scores, const float* log_q, const bool* masked,
             const float* positive, const float* starts, const DrawnPart* parts, int num_parts, float* losses,
             float* own, std::int64_t* drawn, int threads) {
    threads = threads_for(rows, threads);
    std::vector<Row> workers(threads, Row(columns));
    std::vector<std::vector<std::int64_t>> tallies(threads, std::vector<std::int64_t>(columns, 0));
    parallel_rows(rows, threads, [&](int worker, std::int64_t row) {
        Row& r = workers[worker];
        float loss = 0, kept = 0;
        for (int p = 0; p < num_parts; ++p) {
            const DrawnPart& part = parts[p];
            const std::int64_t first = row * columns + part.first, width = part.stop - part.first;
            float* __restrict gradient = scores + first;
            float top = positive[row], sum = 0, factor = 0;
            if (r.weigh(width, scores + first, log_q + part.first, masked + first)) {
                if (r.draw(part.draws, starts[row * num_parts + p])) {
                    sum = r.share(positive[row], top);
                    std::int64_t* __restrict tally = &tallies[worker][part.first];
                    for (std::int64_t c = 0; c < width; ++c) tally[c] += r.counts[c];
                } else {
                    sum = std::numeric_limits<float>::quiet_NaN();
                }
            }
            const float mine = std::exp(positive[row] - top), total = sum + mine;
            factor = sum == 0 ? 0.0f : part.share / total;
            const float* __restrict w = r.weights.data();
            for (std::int64_t c = 0; c < width; ++c) gradient[c] = factor == 0 ? 0.0f : w[c] * factor;
            loss += part.share * (std::log(total) + top - positive[row]);
            kept += part.share * mine / total;
        }
        losses[row] = loss;
        own[row] = kept;
    });
    for (std::int64_t c = 0; c < columns; ++c) drawn[c] = 0;
    for (const auto& tally : tallies)
        for (std::int64_t c = 0; c < columns; ++c) drawn[c] += tally[c];
}

}  // namespace

const ResampleKernels* resample_kernels() {
    static const ResampleKernels table{systematic, softmax};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
