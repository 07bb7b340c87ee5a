// The light head: an inner product of few columns that selects the candidates of the scorer.
//
// With s = sum over l of place_l h(a_l), the user's query on a level is q = s plus a small residual network of s. A node's
// score is q . v(n) + b(n). Vectors are int8 with one scale each. q is rounded to multiples of its largest entry / UNITS,
// so products are integers. Their sums are equal on all instruction sets and in numpy. Sparse terms of the scorer
// (neighbours, seen items) are added exactly (search/steer.cpp).
#pragma once

#include <cstdint>
#include <vector>

#include "common/aligned.hpp"
#include "common/dispatch.hpp"

namespace beamwood {

struct LightModel {
    // The largest entry of a rounded query; sums over 16383 columns fit into 31 bits.
    static constexpr int UNITS = 1023;

    const std::int8_t* nodes = nullptr;    // [V, W], owned by the caller like all pointers here; null: no light head
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
    float unit = 0;                     // the value of one unit

    explicit LightSpace(const LightModel& model);
};

struct LightKernels {
    // Computes the query of a user into `space`, from `rows` of the `history` table and their weights.
    void (*enter)(const LightModel& model, const std::int64_t* rows, const float* weights, std::int64_t count,
                  LightSpace& space);
    // `products` [count]: inner products of the query's units and rows `first` + `wanted` of the `nodes` table.
    void (*multiply)(const LightModel& model, const LightSpace& space, std::int64_t first, const std::int32_t* wanted,
                     std::int64_t count, std::int32_t* products);
};

BEAMWOOD_DECLARE_KERNELS(LightKernels, light_kernels)

}  // namespace beamwood
