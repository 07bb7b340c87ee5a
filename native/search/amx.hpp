// Scoring on AMX tiles in bf16, with split values (three products) or rounded values (one product).
//
// A float32 x is split into hi + lo with hi = bf16(x) and lo = bf16(x - hi), with an error of about 2^-17 |x|. The split
// form computes hi hi' + lo hi' + hi lo' in float32 sums and omits lo lo', about 2^-17 of each product. The search scores
// nodes near a cut in float32, which makes its selection exact (search/choose.cpp).
#pragma once

#include <cstdint>

#include "common/dispatch.hpp"
#include "search/model.hpp"

namespace beamwood {

// bf16 values in tile order.
using Halves = Aligned<std::uint16_t>;

// A matrix [rows, depth] as tiles: [row tiles][depth tiles][hi, lo][16 rows][32 columns], zeros beyond its ends.
struct TileMatrix {
    static constexpr int TILE = 16 * 32;
    int row_tiles = 0, depth_tiles = 0;
    Halves values;

    void resize(int rows, int depth) {
        row_tiles = (rows + 15) / 16;
        depth_tiles = (depth + 31) / 32;
        values.resize(static_cast<std::size_t>(row_tiles) * depth_tiles * 2 * TILE);
    }
    std::uint16_t* tile(int row_tile, int depth_tile) {
        return values.data() + (static_cast<std::size_t>(row_tile) * depth_tiles + depth_tile) * 2 * TILE;
    }
    const std::uint16_t* tile(int row_tile, int depth_tile) const {
        return const_cast<TileMatrix*>(this)->tile(row_tile, depth_tile);
    }
};

struct AmxModel {
    std::vector<TileMatrix> layers;  // all but the first, which depends on the user, and the last
    int rows = 0;          // A rounded up to a multiple of 4, zeros beyond A
    int group = 1;         // the smallest number of history nodes whose rows fill whole tiles
    int group_tiles = 1;   // row tiles of a group
    int depth_tiles = 0;   // tiles of a node's D values and three 1s, which multiply the constant
    // out act(x) = out slope x + out (1 - slope) relu(x); the linear part is one additional row per history node.
    Aligned<float> outs;        // [rows], out (1 - slope)
    Aligned<float> slopes;      // [stride of attention_in], out slope
    Aligned<float> w_p, w_w;    // [A + 1][32 depth_tiles], blocks of attention_in, zeros beyond D; the linear row last
};

struct AmxWorkspace {
    Halves folded;       // [U rows / 16][depth tiles][hi, lo][16 rows][32]: `rows` rows per history node, without gaps
    Halves linear;       // [U / 16][depth tiles][hi, lo][16 rows][32]: one row per history node
    TileMatrix first;    // the first layer for D + U inputs
    Halves nodes;        // [BLOCK / 16][depth tiles][hi, lo][16 pairs of rows][16 nodes][2]
    Halves inputs;       // the same for a layer's inputs
    Aligned<float> sums;    // products in tile layout
    Aligned<float> row;  // [32 depth_tiles], a history node, zeros beyond D
    Aligned<std::int32_t> constants;  // [3][stride of attention_in + 16], three parts; linear row last
    Aligned<float> values;  // [D + U or widest][BLOCK]: nodes and weights, then each layer's outputs

    AmxWorkspace(const Model& model, const AmxModel& amx);
};

struct AmxKernels {
    void (*build)(const Model& model, AmxModel& amx);
    // Called after SearchKernels::prepare with the same `nodes`, `history` and `space`.
    void (*prepare)(const Model& model, const AmxModel& amx, const float* nodes, const History& history,
                    const Workspace& space, AmxWorkspace& tiles);
    void (*score)(const Model& model, const AmxModel& amx, const float* nodes, int num_history,
                  const std::int32_t* wanted, std::int64_t count, bool split, const Workspace& space,
                  AmxWorkspace& tiles, float* scores);
};

BEAMWOOD_ON_amx(namespace amx { const AmxKernels* amx_kernels(); })

// The AMX kernels, or null if they were not compiled.
inline const AmxKernels* amx_kernels() {
#ifdef BEAMWOOD_HAS_amx
    return amx::amx_kernels();
#else
    return nullptr;
#endif
}

}  // namespace beamwood
