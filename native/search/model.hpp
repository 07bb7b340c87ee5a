// A DIN scorer in the layout of the search kernels, and their workspace for one user on one level.
//
// Legend: D embedding width, A attention hidden width, T windows, L history length, H width of the first MLP layer.
// For history nodes a_l and a node w, with W1 = [W_1 .. W_T, W_w] split by input block,
//
//     weight_l = act(v . act((W_p diag(a_l) + W_w') w + (W_a a_l + b)) + b_out)
//     hidden   = act(sum over l of weight_l (W_t(l) a_l) + W_w w + b_1)        then the rest of the MLP.
//
// A similarity adds sum over l of place_l s(a_l) . s(w), where s is a second, fixed vector of each node. On the last level
// it adds repeat_l for each a_l that is w.
// Neighbours add gain log(1 + sum over l of place_l chance(l, w) / share(w)) for the few w above the leaves in the list of
// the l-th leaf; chance(l, w) is the sum of these leaves' chances.
//
// A user on a level is represented by the nodes a_l, `constant` = W_a a + b, and the rows `first` = W_t(l) a_l. The matrix
// `folded` = W_p diag(a) + W_w' is computed from the node when needed. History entries with the same node share their
// attention weight, so their `first` rows are summed and the node is attended to once.
#pragma once

#include <cstdint>
#include <vector>

#include "common/aligned.hpp"
#include "search/light.hpp"

namespace beamwood {

// The maximum of rows per step of the matrix kernel, and of nodes per block.
inline constexpr int ROWS = 12;
inline constexpr int BLOCK = 64;

inline int round_up(int value, int multiple) { return (value + multiple - 1) / multiple * multiple; }
// The stride of a row of `size` values, padded to whole row blocks and whole vectors.
inline int padded(int size) { return round_up(round_up(size, ROWS), 16); }

// `act(weight x + bias)`: weight transposed, [inputs][stride], with zeros beyond `outputs`.
struct Dense {
    int inputs = 0, outputs = 0, stride = 0;
    Aligned<float> weight, bias, slope;

    Dense() = default;
    // `weight` [outputs, inputs], `bias` and `slope` [outputs].
    Dense(int inputs, int outputs, const float* weight, const float* bias, const float* slope);
};

struct Model {
    const float* nodes = nullptr;  // [V, D], owned by the caller
    int width = 0;                 // D
    int history_length = 0;        // L
    int num_windows = 0;           // T
    std::vector<std::int32_t> window_of;  // [L]
    Dense attention_in;                   // [3 D] -> [A]: blocks a, a * w, w
    Aligned<float> attention_out;         // [stride of attention_in], zeros beyond A
    float attention_out_bias = 0, attention_out_slope = 0;
    std::vector<Dense> layers;
    int widest = 0;  // the largest stride of the layers
    // By level, [size, size]: attention weights of each history node for each candidate, which do not depend on the user.
    // Empty for levels above the caller's limit of nodes.
    std::vector<Aligned<float>> tables;
    const float* similar = nullptr;  // [V, R], owned by the caller; null: none
    int similar_width = 0;           // R
    std::vector<float> places, repeats;  // [L]
    const std::int32_t* near_leaves = nullptr;  // [V, K], used on the last level, -1 none, owned by the caller; null: none
    const float* near_chances = nullptr;        // [V, K], likewise
    const float* near_shares = nullptr;         // [V], owned by the caller
    int num_near = 0;                           // K
    std::vector<float> near_places;             // [L]
    float near_gain = 0;
    LightModel light;
};

// The present entries of a history on one level; nodes ascending and distinct.
struct History {
    std::vector<std::int32_t> nodes;       // [U]
    std::vector<std::int32_t> slots;       // [entries], the index into `nodes`
    std::vector<std::int32_t> windows;     // [entries]
};

// The workspace for one user on one level.
struct Workspace {
    Aligned<float> history;   // [U][D]
    Aligned<float> constant;  // [U][stride of attention_in]
    Aligned<float> folded;    // [D][stride of attention_in], of one history node
    Aligned<float> first;     // [D + U][stride of layer 0]: W_w transposed, then one row per history node
    Aligned<float> inputs;    // [D + U][BLOCK]: nodes transposed, then their attention weights
    Aligned<float> outputs[2];  // [widest][BLOCK]
    std::vector<const float*> table_rows;  // [U]: rows of the level's table, if any
    bool table = false;

    explicit Workspace(const Model& model);
};

}  // namespace beamwood
