// The light head: an inner product of few columns that steers a search; the scorer judges what it lets through.
//
// A user on a level is a vector q = place_l h(a_l) over l, plus a small residual network of it; a node's score is
// q . v(n) + b(n). Vectors are int8 with a scale each, and q is rounded to units of its largest entry / UNITS, so that
// products are whole numbers: no instruction set, and no numpy, sums them up otherwise. What single nodes get beside
// the scorer, neighbours and what was seen, is added as it is (search/steer.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "common/aligned.hpp"
#include "common/dispatch.hpp"

namespace beamwood {

struct LightModel {
    // A query's entries are at most so many units, of which sums of 16383 columns stay within 31 bits.
    static constexpr int UNITS = 1023;

    const std::int8_t* nodes = nullptr;    // [V, W], owned by the caller like all pointers here; null: no head
    const float* node_scales = nullptr;    // [V]
    const float* biases = nullptr;         // [V]
    const std::int8_t* history = nullptr;  // [V, W]
    const float* history_scales = nullptr; // [V]
    int width = 0, hidden = 0;             // W, F
    std::vector<float> places;             // [L]
    Aligned<float> up, up_bias;            // [W][F], [F]
    Aligned<float> down, down_bias;        // [F][W], [W]
};

struct LightSpace {
    Aligned<float> sum, hidden, query;  // [W], [F], [W]
    std::vector<std::int16_t> units;    // [W]
    float unit = 0;                     // what one of them is

    explicit LightSpace(const LightModel& model);
};

struct LightKernels {
    // Makes `space` that of a user: `rows` of the `history` table with what each weighs.
    void (*enter)(const LightModel& model, const std::int64_t* rows, const float* weights, std::int64_t count,
                  LightSpace& space);
    // `products` [count]: of the query's units with the rows `first` + `wanted` of the `nodes` table.
    void (*multiply)(const LightModel& model, const LightSpace& space, std::int64_t first, const std::int32_t* wanted,
                     std::int64_t count, std::int32_t* products);
};

BEAMWOOD_DECLARE_KERNELS(LightKernels, light_kernels)

}  // namespace beamwood
