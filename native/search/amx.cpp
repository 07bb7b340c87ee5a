// The one place with intrinsics: tiles have no portable form.
#include "search/amx.hpp"

#include <immintrin.h>

#include <algorithm>
#include <numeric>

#include "common/level.hpp"

namespace beamwood::amx {
namespace {

constexpr int TILE = TileMatrix::TILE;
constexpr int COLUMN_TILES = BLOCK / 16;

// The tile intrinsics do not tell the compiler which memory they read.
BEAMWOOD_INLINE void fence() { asm volatile("" ::: "memory"); }

struct alignas(64) TileShapes {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
};

// All eight tiles whole: 16 rows of 64 bytes.
void configure() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
        shapes.bytes[tile] = 64;
        shapes.rows[tile] = 16;
    }
    fence();
    _tile_loadconfig(&shapes);
}

// The value rounded to bf16, as a float32.
BEAMWOOD_INLINE Vec high_part(Vec value) {
    const IntVec bits = reinterpret_cast<IntVec>(value);
    return reinterpret_cast<Vec>((bits + 0x8000) & static_cast<std::int32_t>(0xffff0000));
}

// Two float32 vectors that already are bf16, as pairs (even, odd) of halves.
BEAMWOOD_INLINE IntVec pairs(Vec even, Vec odd) {
    typedef std::uint32_t Unsigned __attribute__((vector_size(BEAMWOOD_VECTOR_BYTES)));
    return reinterpret_cast<IntVec>((reinterpret_cast<Unsigned>(even) >> 16) | reinterpret_cast<Unsigned>(odd));
}

BEAMWOOD_INLINE void store(std::uint16_t* to, IntVec value) { std::memcpy(to, &value, sizeof value); }

// Rows 2 p and 2 p + 1 of 16 columns, split, as row p of a pair tile and of the `lo` tile behind it.
BEAMWOOD_INLINE void store_pairs(std::uint16_t* tile, int p, Vec even, Vec odd) {
    const Vec even_high = high_part(even), odd_high = high_part(odd);
    store(tile + p * 32, pairs(even_high, odd_high));
    store(tile + TILE + p * 32, pairs(high_part(even - even_high), high_part(odd - odd_high)));
}

// 32 values, split, as 32 halves in order at `to` and their `lo` at `to_low`.
BEAMWOOD_INLINE void store_row(std::uint16_t* to, std::uint16_t* to_low, Vec first, Vec second) {
    const Vec first_high = high_part(first), second_high = high_part(second);
    const auto high = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second_high), reinterpret_cast<__m512>(first_high));
    const auto low = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second - second_high),
                                         reinterpret_cast<__m512>(first - first_high));
    std::memcpy(to, &high, 64);
    std::memcpy(to_low, &low, 64);
}

// `from` [depth][stride] (a transposed matrix) into tiles; `rows` of them, whose stride reaches a whole tile.
void tile_transposed(const float* from, int stride, int depth, int rows, TileMatrix& to, int depth_tiles) {
    for (int row_tile = 0; row_tile * 16 < rows; ++row_tile) {
        for (int pair = 0; pair < depth_tiles * 16; ++pair) {
            const float* even = from + static_cast<std::size_t>(2 * pair) * stride + row_tile * 16;
            const Vec zero{};
            const Vec x = 2 * pair < depth ? load(even) : zero;
            const Vec y = 2 * pair + 1 < depth ? load(even + stride) : zero;
            const Vec x_high = high_part(x), y_high = high_part(y);
            alignas(64) std::int32_t high[16], low[16];
            const IntVec high_pairs = pairs(x_high, y_high);
            const IntVec low_pairs = pairs(high_part(x - x_high), high_part(y - y_high));
            std::memcpy(high, &high_pairs, sizeof high);
            std::memcpy(low, &low_pairs, sizeof low);
            std::uint16_t* tile = to.tile(row_tile, pair / 16) + pair % 16 * 2;
            for (int row = 0; row < 16; ++row) {
                std::memcpy(tile + row * 32, &high[row], 4);
                std::memcpy(tile + TILE + row * 32, &low[row], 4);
            }
        }
    }
}

void build(const Model& model, AmxModel& amx) {
    const Dense& attention = model.attention_in;
    amx.group = 16 / std::gcd(16, attention.outputs);
    amx.group_tiles = amx.group * attention.outputs / 16;
    amx.depth_tiles = (model.width + 3 + 31) / 32;
    amx.small_slopes = std::all_of(attention.slope.data(), attention.slope.data() + attention.stride,
                                   [](float slope) { return 0 <= slope && slope <= 1; });
    const int depth = 32 * amx.depth_tiles;
    amx.w_p.resize(static_cast<std::size_t>(attention.outputs) * depth);
    amx.w_w.resize(static_cast<std::size_t>(attention.outputs) * depth);
    for (int a = 0; a < attention.outputs; ++a) {
        for (int d = 0; d < model.width; ++d) {
            const std::size_t at = static_cast<std::size_t>(a) * depth + d;
            amx.w_p[at] = attention.weight[static_cast<std::size_t>(model.width + d) * attention.stride + a];
            amx.w_w[at] = attention.weight[static_cast<std::size_t>(2 * model.width + d) * attention.stride + a];
        }
    }
    for (std::size_t i = 1; i + 1 < model.layers.size(); ++i) {
        const Dense& layer = model.layers[i];
        TileMatrix tiles;
        tiles.resize(layer.outputs, layer.inputs);
        tile_transposed(layer.weight.data(), layer.stride, layer.inputs, layer.outputs, tiles, tiles.depth_tiles);
        amx.layers.push_back(std::move(tiles));
    }
}

void prepare(const Model& model, const AmxModel& amx, const float* nodes, const History& history,
             const Workspace& space, AmxWorkspace& tiles) {
    const Dense& attention = model.attention_in;
    const int width = model.width, depth_tiles = amx.depth_tiles, depth = 32 * depth_tiles;
    Aligned<float>& a_row = tiles.row;
    Aligned<std::int32_t>& parts = tiles.constants;  // [3][stride]
    for (std::size_t u = 0; u < history.nodes.size(); ++u) {
        std::copy_n(nodes + static_cast<std::size_t>(history.nodes[u]) * width, width, a_row.data());
        // The constant in three parts, exact: each meets a 1 among the node's inputs.
        for (int a = 0; a < attention.stride; a += LANES) {
            Vec left = load(space.constant.data() + u * attention.stride + a);
            for (int part = 0; part < 3; ++part) {
                const IntVec bits = reinterpret_cast<IntVec>(left) & static_cast<std::int32_t>(0xffff0000);
                left -= reinterpret_cast<Vec>(bits);
                const IntVec half = bits >> 16;
                std::memcpy(parts.data() + part * attention.stride + a, &half, sizeof half);
            }
        }
        for (int a = 0; a < attention.outputs; ++a) {
            const std::size_t row = u * attention.outputs + a;
            std::uint16_t* tile = tiles.folded.data() + row / 16 * depth_tiles * 2 * TILE + row % 16 * 32;
            const float* w_p = amx.w_p.data() + static_cast<std::size_t>(a) * depth;
            const float* w_w = amx.w_w.data() + static_cast<std::size_t>(a) * depth;
            for (int kt = 0; kt < depth_tiles; ++kt) {
                const int d = kt * 32;
                store_row(tile + kt * 2 * TILE, tile + kt * 2 * TILE + TILE,
                          load(w_w + d) + load(w_p + d) * load(a_row.data() + d),
                          load(w_w + d + 16) + load(w_p + d + 16) * load(a_row.data() + d + 16));
            }
            for (int part = 0; part < 3; ++part) {
                const int d = width + part;
                tile[d / 32 * 2 * TILE + d % 32] =
                    static_cast<std::uint16_t>(parts[static_cast<std::size_t>(part) * attention.stride + a]);
            }
        }
    }
    const int inputs = width + static_cast<int>(history.nodes.size());
    if (model.layers.size() > 1) {
        const Dense& layer = model.layers.front();
        tile_transposed(space.first.data(), layer.stride, inputs, layer.outputs, tiles.first, (inputs + 31) / 32);
    }
}

// Adds to tile SUMS the products of one tile of folded rows with a column tile; a tile's number must be a literal.
#define BEAMWOOD_ATTEND(SUMS, HIGH, LOW)                                                \
    do {                                                                                \
        const std::uint16_t* column = nodes;                                            \
        _tile_zero(SUMS);                                                               \
        for (int kt = 0; kt < depth_tiles; ++kt, folded += 2 * TILE, column += 2 * TILE) { \
            _tile_loadd(2, column, 64);                                                 \
            _tile_loadd(HIGH, folded, 64);                                              \
            _tile_dpbf16ps(SUMS, HIGH, 2);                                              \
            if (!split) continue;                                                       \
            _tile_loadd(3, column + TILE, 64);                                          \
            _tile_dpbf16ps(SUMS, HIGH, 3);                                              \
            _tile_loadd(LOW, folded + TILE, 64);                                        \
            _tile_dpbf16ps(SUMS, LOW, 2);                                               \
        }                                                                               \
    } while (false)

// Products of `row_tiles` tiles of folded rows with one column tile, into `sums` [row tiles][16][16]. Tiles: 0 and 1
// sums, 2 and 3 a column tile's hi and lo, 4-7 folded rows. A tile is stored while the next is computed.
void attend_tiles(const std::uint16_t* folded, int row_tiles, const std::uint16_t* nodes, int depth_tiles, bool split,
                  float* sums) {
    fence();
    BEAMWOOD_ATTEND(0, 4, 5);
    int tile = 1;
    for (; tile + 1 < row_tiles; tile += 2, sums += 512) {
        BEAMWOOD_ATTEND(1, 6, 7);
        _tile_stored(0, sums, 64);
        BEAMWOOD_ATTEND(0, 4, 5);
        _tile_stored(1, sums + 256, 64);
    }
    if (tile < row_tiles) {
        BEAMWOOD_ATTEND(1, 6, 7);
        _tile_stored(1, sums + 256, 64);
    }
    _tile_stored(0, sums, 64);
    fence();
}

// PReLU where the slope is in 0..1: two instructions instead of three.
BEAMWOOD_INLINE Vec prelu_by_max(Vec x, Vec slope) {
    return reinterpret_cast<Vec>(_mm512_max_ps(reinterpret_cast<__m512>(x), reinterpret_cast<__m512>(slope * x)));
}

// act_out(bias + sum over a of out_a act(sums_a)) for U history nodes, whose `sums` [hidden][16] follow each other, into
// rows of `to`. Several at once share the loads of slopes and outs.
template <bool BY_MAX, int U>
BEAMWOOD_INLINE void weigh(const Model& model, const float* sums, float* to) {
    const int hidden = model.attention_in.outputs;
    const float* slopes = model.attention_in.slope.data();
    const float* outs = model.attention_out.data();
    Vec weight[U];
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) weight[u] = splat(model.attention_out_bias);
    for (int a = 0; a < hidden; ++a) {
        const Vec slope = splat(slopes[a]), out = splat(outs[a]);
#pragma GCC unroll 4
        for (int u = 0; u < U; ++u) {
            const Vec x = load(sums + (static_cast<std::size_t>(u) * hidden + a) * 16);
            weight[u] += out * (BY_MAX ? prelu_by_max(x, slope) : prelu(x, slope));
        }
    }
#pragma GCC unroll 4
    for (int u = 0; u < U; ++u) beamwood::amx::store(to + u * BLOCK, prelu(weight[u], splat(model.attention_out_slope)));
}

// Attention weights of `column_tiles` tiles of nodes, into the rows of `values` behind the nodes.
template <bool BY_MAX>
void attend(const Model& model, const AmxModel& amx, int num_history, int column_tiles, bool split, AmxWorkspace& tiles) {
    const std::size_t node_step = static_cast<std::size_t>(amx.depth_tiles) * 2 * TILE;
    const std::size_t group_step = static_cast<std::size_t>(amx.group_tiles) * amx.depth_tiles * 2 * TILE;
    const int hidden = model.attention_in.outputs;
    float* values = tiles.values.data() + static_cast<std::size_t>(model.width) * BLOCK;
    const std::uint16_t* folded = tiles.folded.data();
    // The tiles work one step ahead of the vectors, so that neither waits for the other.
    const int groups = (num_history + amx.group - 1) / amx.group;
    const int steps = groups * column_tiles;
    for (int step = 0; step <= steps; ++step) {
        if (step < steps) {
            const int group = step / column_tiles, ct = step % column_tiles;
            const int rows = std::min(amx.group, num_history - group * amx.group) * hidden;
            attend_tiles(folded + group * group_step, (rows + 15) / 16, tiles.nodes.data() + ct * node_step,
                         amx.depth_tiles, split, tiles.sums.data() + (step & 1) * amx.group_tiles * 256);
        }
        if (step == 0) continue;
        const int group = (step - 1) / column_tiles, ct = (step - 1) % column_tiles;
        const float* sums = tiles.sums.data() + ((step - 1) & 1) * amx.group_tiles * 256;
        const int end = std::min((group + 1) * amx.group, num_history);
        int u = group * amx.group;
        float* to = values + static_cast<std::size_t>(u) * BLOCK + ct * 16;
        for (; u + 4 <= end; u += 4, sums += 4 * hidden * 16, to += 4 * BLOCK) weigh<BY_MAX, 4>(model, sums, to);
        for (; u < end; ++u, sums += hidden * 16, to += BLOCK) weigh<BY_MAX, 1>(model, sums, to);
    }
}

// Rows [0, depth) of `values` for `column_tiles` tiles, split, as pair tiles.
void tile_inputs(const float* values, int depth, int depth_tiles, int column_tiles, Halves& to) {
    for (int ct = 0; ct < column_tiles; ++ct) {
        for (int pair = 0; pair < depth_tiles * 16; ++pair) {
            const float* even = values + static_cast<std::size_t>(2 * pair) * BLOCK + ct * 16;
            const Vec x = 2 * pair < depth ? load(even) : Vec{};
            const Vec y = 2 * pair + 1 < depth ? load(even + BLOCK) : Vec{};
            store_pairs(to.data() + (static_cast<std::size_t>(ct) * depth_tiles + pair / 16) * 2 * TILE, pair % 16, x, y);
        }
    }
}

// Products of R row tiles and C column tiles, into `sums` [R][C][16][16]. Tiles: 0-3 sums, 4 and 5 rows, 6 and 7 columns.
template <int R, int C>
BEAMWOOD_INLINE void multiply_tiles(const std::uint16_t* rows, std::ptrdiff_t row_step, const std::uint16_t* columns,
                                    std::ptrdiff_t column_step, int depth_tiles, bool split, float* sums) {
    fence();
    _tile_zero(0);
    if constexpr (C > 1) _tile_zero(1);
    if constexpr (R > 1) _tile_zero(2);
    if constexpr (R > 1 && C > 1) _tile_zero(3);
    const auto products = [] {
        _tile_dpbf16ps(0, 4, 6);
        if constexpr (C > 1) _tile_dpbf16ps(1, 4, 7);
        if constexpr (R > 1) _tile_dpbf16ps(2, 5, 6);
        if constexpr (R > 1 && C > 1) _tile_dpbf16ps(3, 5, 7);
    };
    for (int kt = 0; kt < depth_tiles; ++kt, rows += 2 * TILE, columns += 2 * TILE) {
        _tile_loadd(6, columns, 64);
        if constexpr (C > 1) _tile_loadd(7, columns + column_step, 64);
        if (split) {
            _tile_loadd(4, rows + TILE, 64);
            if constexpr (R > 1) _tile_loadd(5, rows + row_step + TILE, 64);
            products();
        }
        _tile_loadd(4, rows, 64);
        if constexpr (R > 1) _tile_loadd(5, rows + row_step, 64);
        products();
        if (split) {
            _tile_loadd(6, columns + TILE, 64);
            if constexpr (C > 1) _tile_loadd(7, columns + column_step + TILE, 64);
            products();
        }
    }
    _tile_stored(0, sums, 64);
    if constexpr (C > 1) _tile_stored(1, sums + 256, 64);
    if constexpr (R > 1) _tile_stored(2, sums + C * 256, 64);
    if constexpr (R > 1 && C > 1) _tile_stored(3, sums + (C + 1) * 256, 64);
    fence();
}

// `values` [outputs to a whole tile][BLOCK] = act(matrix inputs + bias).
template <int R, int C>
void dense_tiles(const Dense& layer, const TileMatrix& matrix, int depth_tiles, int row_tile, int column_tile, bool split,
                 AmxWorkspace& tiles) {
    const std::ptrdiff_t column_step = static_cast<std::ptrdiff_t>(depth_tiles) * 2 * TILE;
    float* sums = tiles.sums.data();
    multiply_tiles<R, C>(matrix.tile(row_tile, 0), static_cast<std::ptrdiff_t>(matrix.depth_tiles) * 2 * TILE,
                         tiles.inputs.data() + column_tile * column_step, column_step, depth_tiles, split, sums);
    for (int r = 0; r < R; ++r) {
        const int last = std::min(16, layer.outputs - (row_tile + r) * 16);
        for (int row = 0; row < last; ++row) {
            const int out = (row_tile + r) * 16 + row;
            const Vec bias = splat(layer.bias[out]), slope = splat(layer.slope[out]);
            for (int c = 0; c < C; ++c)
                beamwood::amx::store(
                    tiles.values.data() + static_cast<std::size_t>(out) * BLOCK + (column_tile + c) * 16,
                    prelu(load(sums + (r * C + c) * 256 + row * 16) + bias, slope));
        }
    }
}

void dense(const Dense& layer, const TileMatrix& matrix, int depth, int column_tiles, bool split, AmxWorkspace& tiles) {
    const int depth_tiles = (depth + 31) / 32;
    tile_inputs(tiles.values.data(), depth, depth_tiles, column_tiles, tiles.inputs);
    for (int row_tile = 0; row_tile < matrix.row_tiles; row_tile += 2) {
        const bool two_rows = row_tile + 1 < matrix.row_tiles;
        for (int ct = 0; ct < column_tiles; ct += 2) {
            const bool two_columns = ct + 1 < column_tiles;
            if (two_rows && two_columns) dense_tiles<2, 2>(layer, matrix, depth_tiles, row_tile, ct, split, tiles);
            else if (two_rows) dense_tiles<2, 1>(layer, matrix, depth_tiles, row_tile, ct, split, tiles);
            else if (two_columns) dense_tiles<1, 2>(layer, matrix, depth_tiles, row_tile, ct, split, tiles);
            else dense_tiles<1, 1>(layer, matrix, depth_tiles, row_tile, ct, split, tiles);
        }
    }
}

void score_block(const Model& model, const AmxModel& amx, int num_history, int count, bool split, const Workspace& space,
                 AmxWorkspace& tiles, float* scores) {
    const int width = model.width, column_tiles = (count + 15) / 16;
    // Three rows of 1 behind the node's meet the constant; attention then writes its weights there.
    for (int d = width; d < width + 3; ++d)
        std::fill_n(tiles.values.data() + static_cast<std::size_t>(d) * BLOCK, BLOCK, 1.0f);
    tile_inputs(tiles.values.data(), width + 3, amx.depth_tiles, column_tiles, tiles.nodes);
    if (amx.small_slopes) attend<true>(model, amx, num_history, column_tiles, split, tiles);
    else attend<false>(model, amx, num_history, column_tiles, split, tiles);
    int depth = width + num_history;
    const float* last = space.first.data();
    for (std::size_t i = 0; i + 1 < model.layers.size(); ++i) {
        dense(model.layers[i], i == 0 ? tiles.first : amx.layers[i - 1], depth, column_tiles, split, tiles);
        depth = model.layers[i].outputs;
        last = model.layers[i + 1].weight.data();
    }
    // The last layer has one row: too little for tiles.
    const Dense& layer = model.layers.back();
    for (int ct = 0; ct < column_tiles; ++ct) {
        Vec sum = splat(layer.bias[0]);
        for (int k = 0; k < depth; ++k)
            sum += splat(last[static_cast<std::size_t>(k) * layer.stride]) *
                   load(tiles.values.data() + static_cast<std::size_t>(k) * BLOCK + ct * 16);
        alignas(64) float out[16];
        beamwood::amx::store(out, prelu(sum, splat(layer.slope[0])));
        std::copy_n(out, std::min(16, count - ct * 16), scores + ct * 16);
    }
}

void score(const Model& model, const AmxModel& amx, const float* nodes, int num_history, const std::int32_t* wanted,
           std::int64_t total, bool split, const Workspace& space, AmxWorkspace& tiles, float* scores) {
    const int width = model.width;
    configure();
    for (std::int64_t begin = 0; begin < total; begin += BLOCK) {
        const int count = static_cast<int>(std::min<std::int64_t>(BLOCK, total - begin));
        const int columns = (count + 15) / 16 * 16;
        for (int column = 0; column < columns; ++column) {
            // Columns past the end repeat the last node; their scores are not read.
            const float* node = nodes + static_cast<std::size_t>(wanted[begin + std::min(column, count - 1)]) * width;
            for (int d = 0; d < width; ++d) tiles.values[static_cast<std::size_t>(d) * BLOCK + column] = node[d];
        }
        score_block(model, amx, num_history, count, split, space, tiles, scores + begin);
    }
    _tile_release();
}

}  // namespace

const AmxKernels* amx_kernels() {
    static constexpr AmxKernels table{build, prepare, score};
    return &table;
}

}  // namespace beamwood::amx
