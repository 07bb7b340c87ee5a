// AMX kernels. They use intrinsics, as tiles have no portable form.
#include "search/amx.hpp"

#include <immintrin.h>

#include <algorithm>
#include <numeric>

#include "common/level.hpp"
#include "search/columns.hpp"

namespace beamwood::amx {
namespace {

constexpr int TILE = TileMatrix::TILE;

// The tile intrinsics do not declare the memory that they access.
BEAMWOOD_INLINE void fence() { asm volatile("" ::: "memory"); }

struct alignas(64) TileShapes {
    std::uint8_t palette = 1, start_row = 0, reserved[14] = {};
    std::uint16_t bytes[16] = {};
    std::uint8_t rows[16] = {};
};

// Configures all eight tiles at full size: 16 rows of 64 bytes.
void configure() {
    TileShapes shapes;
    for (int tile = 0; tile < 8; ++tile) {
        shapes.bytes[tile] = 64;
        shapes.rows[tile] = 16;
    }
    fence();
    _tile_loadconfig(&shapes);
}

constexpr std::int32_t HIGH_HALF = static_cast<std::int32_t>(0xffff0000);

// Bits whose high half is the value rounded to bf16; the low half is undefined. NaN keeps its bits: of all ones, as in a
// damaged file, the sum would be 0.
BEAMWOOD_INLINE IntVec rounded(Vec value) {
    return reinterpret_cast<IntVec>(value) + ((value == value) & 0x8000);
}

// The value rounded to bf16, as a float32.
BEAMWOOD_INLINE Vec high_part(Vec value) { return reinterpret_cast<Vec>(rounded(value) & HIGH_HALF); }

// The high halves of two vectors as pairs (even, odd).
BEAMWOOD_INLINE IntVec pairs(IntVec even, IntVec odd) {
    const __m512i low = _mm512_srli_epi32(reinterpret_cast<__m512i>(even), 16);
    return reinterpret_cast<IntVec>(_mm512_mask_blend_epi16(0xaaaaaaaa, low, reinterpret_cast<__m512i>(odd)));
}

// The hi and lo parts of two vectors, as pairs (even, odd).
BEAMWOOD_INLINE void split_pairs(Vec even, Vec odd, IntVec& high, IntVec& low) {
    const IntVec even_bits = rounded(even), odd_bits = rounded(odd);
    high = pairs(even_bits, odd_bits);
    low = pairs(rounded(even - reinterpret_cast<Vec>(even_bits & HIGH_HALF)),
                rounded(odd - reinterpret_cast<Vec>(odd_bits & HIGH_HALF)));
}

BEAMWOOD_INLINE void store(std::uint16_t* to, IntVec value) { std::memcpy(to, &value, sizeof value); }

// Stores rows 2 p and 2 p + 1 of 16 columns, split, as row p of a pair tile and of the `lo` tile after it.
BEAMWOOD_INLINE void store_pairs(std::uint16_t* tile, int p, Vec even, Vec odd) {
    IntVec high, low;
    split_pairs(even, odd, high, low);
    store(tile + p * 32, high);
    store(tile + TILE + p * 32, low);
}

// Stores 32 values, split: hi parts at `to`, lo parts at `to_low`.
BEAMWOOD_INLINE void store_row(std::uint16_t* to, std::uint16_t* to_low, Vec first, Vec second) {
    const Vec first_high = high_part(first), second_high = high_part(second);
    const auto high = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second_high), reinterpret_cast<__m512>(first_high));
    const auto low = _mm512_cvtne2ps_pbh(reinterpret_cast<__m512>(second - second_high),
                                         reinterpret_cast<__m512>(first - first_high));
    std::memcpy(to, &high, 64);
    std::memcpy(to_low, &low, 64);
}

// Copies `rows` rows of the transposed matrix `from` [depth][stride] into tiles; `stride` covers whole tiles.
void tile_transposed(const float* from, int stride, int depth, int rows, TileMatrix& to, int depth_tiles) {
    for (int row_tile = 0; row_tile * 16 < rows; ++row_tile) {
        for (int pair = 0; pair < depth_tiles * 16; ++pair) {
            const float* even = from + static_cast<std::size_t>(2 * pair) * stride + row_tile * 16;
            const Vec zero{};
            const Vec x = 2 * pair < depth ? load(even) : zero;
            const Vec y = 2 * pair + 1 < depth ? load(even + stride) : zero;
            IntVec high_pairs, low_pairs;
            split_pairs(x, y, high_pairs, low_pairs);
            alignas(64) std::int32_t high[16], low[16];
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
    const int width = model.width;
    amx.rows = round_up(attention.outputs, 4);
    amx.group = 16 / std::gcd(16, amx.rows);
    amx.group_tiles = amx.group * amx.rows / 16;
    amx.depth_tiles = (width + 3 + 31) / 32;
    const int depth = 32 * amx.depth_tiles;
    amx.outs.resize(amx.rows);
    amx.slopes.resize(attention.stride);
    amx.w_p.resize(static_cast<std::size_t>(attention.outputs + 1) * depth);
    amx.w_w.resize(static_cast<std::size_t>(attention.outputs + 1) * depth);
    float* linear_p = amx.w_p.data() + static_cast<std::size_t>(attention.outputs) * depth;
    float* linear_w = amx.w_w.data() + static_cast<std::size_t>(attention.outputs) * depth;
    for (int a = 0; a < attention.outputs; ++a) {
        amx.outs[a] = model.attention_out[a] * (1 - attention.slope[a]);
        amx.slopes[a] = model.attention_out[a] * attention.slope[a];
        for (int d = 0; d < width; ++d) {
            const std::size_t at = static_cast<std::size_t>(a) * depth + d;
            amx.w_p[at] = attention.weight[static_cast<std::size_t>(width + d) * attention.stride + a];
            amx.w_w[at] = attention.weight[static_cast<std::size_t>(2 * width + d) * attention.stride + a];
            linear_p[d] += amx.slopes[a] * amx.w_p[at];
            linear_w[d] += amx.slopes[a] * amx.w_w[at];
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

// Takes the high half of each value and leaves the remainder; three halves represent a float32 exactly.
BEAMWOOD_INLINE IntVec take_half(Vec& left) {
    const IntVec bits = reinterpret_cast<IntVec>(left) & HIGH_HALF;
    left -= reinterpret_cast<Vec>(bits);
    return bits >> 16;
}

// Folds the history's nodes into the attention's rows, and computes the linear parts of these rows.
void fold_history(const Model& model, const AmxModel& amx, const float* nodes, const History& history,
                  const Workspace& space, AmxWorkspace& tiles) {
    const Dense& attention = model.attention_in;
    const int width = model.width, depth_tiles = amx.depth_tiles, depth = 32 * depth_tiles;
    const std::size_t tile_step = static_cast<std::size_t>(depth_tiles) * 2 * TILE;
    Aligned<float>& a_row = tiles.row;
    Aligned<std::int32_t>& parts = tiles.constants;  // [3][stride + one vector for the linear part]
    const int parts_stride = attention.stride + LANES;
    std::size_t ones[3];  // the position of each part in a row of tiles
    for (int part = 0; part < 3; ++part) ones[part] = (width + part) / 32 * 2 * TILE + (width + part) % 32;
    // Writes row `a` of the blocks, with the history node of `a_row` folded in, and its constant as a row of `to`.
    const auto fold = [&](int a, std::size_t row, std::uint16_t* to, int constant) {
        std::uint16_t* tile = to + row / 16 * tile_step + row % 16 * 32;
        const float* w_p = amx.w_p.data() + static_cast<std::size_t>(a) * depth;
        const float* w_w = amx.w_w.data() + static_cast<std::size_t>(a) * depth;
        for (int kt = 0; kt < depth_tiles; ++kt) {
            const int d = kt * 32;
            store_row(tile + kt * 2 * TILE, tile + kt * 2 * TILE + TILE,
                      load(w_w + d) + load(w_p + d) * load(a_row.data() + d),
                      load(w_w + d + 16) + load(w_p + d + 16) * load(a_row.data() + d + 16));
        }
        const std::int32_t* part = parts.data() + constant;
        for (int i = 0; i < 3; ++i, part += parts_stride) tile[ones[i]] = static_cast<std::uint16_t>(*part);
    };
    for (std::size_t u = 0; u < history.nodes.size(); ++u) {
        std::copy_n(nodes + static_cast<std::size_t>(history.nodes[u]) * width, width, a_row.data());
        // The constant in three parts, each multiplied by a 1 among the node's inputs.
        Vec linear{};
        for (int a = 0; a < attention.stride; a += LANES) {
            Vec left = load(space.constant.data() + u * attention.stride + a);
            linear += left * load(amx.slopes.data() + a);
            for (int part = 0; part < 3; ++part) {
                const IntVec half = take_half(left);
                std::memcpy(parts.data() + part * parts_stride + a, &half, sizeof half);
            }
        }
        Vec left = splat(_mm512_reduce_add_ps(reinterpret_cast<__m512>(linear)) + model.attention_out_bias);
        for (int part = 0; part < 3; ++part) {
            const IntVec half = take_half(left);
            std::memcpy(parts.data() + part * parts_stride + attention.stride, &half, sizeof half);
        }
        for (int a = 0; a < attention.outputs; ++a) fold(a, u * amx.rows + a, tiles.folded.data(), a);
        fold(attention.outputs, u, tiles.linear.data(), attention.stride);
    }
}

void prepare(const Model& model, const AmxModel& amx, const float* nodes, const History& history,
             const Workspace& space, AmxWorkspace& tiles) {
    if (!space.table) fold_history(model, amx, nodes, history, space, tiles);
    const int inputs = model.width + static_cast<int>(history.nodes.size());
    if (model.layers.size() > 1) {
        const Dense& layer = model.layers.front();
        tile_transposed(space.first.data(), layer.stride, inputs, layer.outputs, tiles.first, (inputs + 31) / 32);
    }
}

// Tile SUMS = a tile of rows times a column tile; tile numbers must be literals. The hi and lo of a column that is one tile
// deep stay in tiles 6 and 7, and are loaded only if it is `fresh`.
#define BEAMWOOD_MULTIPLY(SUMS, HIGH, LOW)                                   \
    do {                                                                     \
        _tile_zero(SUMS);                                                    \
        for (int kt = 0; kt < depth_tiles; ++kt, rows += 2 * TILE, column += 2 * TILE) { \
            if (fresh || depth_tiles > 1) {                                  \
                _tile_loadd(6, column, 64);                                  \
                if (split) _tile_loadd(7, column + TILE, 64);                \
            }                                                                \
            _tile_loadd(HIGH, rows, 64);                                     \
            _tile_dpbf16ps(SUMS, HIGH, 6);                                   \
            if (!split) continue;                                            \
            _tile_dpbf16ps(SUMS, HIGH, 7);                                   \
            _tile_loadd(LOW, rows + TILE, 64);                               \
            _tile_dpbf16ps(SUMS, LOW, 6);                                    \
        }                                                                    \
    } while (false)

BEAMWOOD_INLINE Vec relu(Vec x) {
    return reinterpret_cast<Vec>(_mm512_max_ps(_mm512_setzero_ps(), reinterpret_cast<__m512>(x)));
}

// Adds out_a relu(row a) to the weights of 16 nodes, tile by tile of the folded rows, one history node after the other.
class Weigher {
  public:
    Weigher(const Model& model, const AmxModel& amx)
        : outs_(amx.outs.data()), quads_(amx.rows / 4), slope_(splat(model.attention_out_slope)) {}

    // The next tile is the first of a group; `weights` [history nodes][BLOCK] hold the linear part.
    void start(float* weights) {
        weights_ = weights;
        quad_ = 0;
        clear();
    }

    BEAMWOOD_INLINE void take(const float* sums) {
        for (int i = 0; i < 4; ++i, sums += 64) {
            const float* out = outs_ + 4 * quad_;
            a_ += splat(out[0]) * relu(load(sums));
            b_ += splat(out[1]) * relu(load(sums + 16));
            c_ += splat(out[2]) * relu(load(sums + 32));
            d_ += splat(out[3]) * relu(load(sums + 48));
            if (++quad_ < quads_) continue;
            beamwood::amx::store(weights_, prelu(load(weights_) + ((a_ + b_) + (c_ + d_)), slope_));
            weights_ += BLOCK;
            quad_ = 0;
            clear();
        }
    }

  private:
    void clear() { a_ = b_ = c_ = d_ = Vec{}; }

    const float* outs_;
    float* weights_ = nullptr;
    int quads_, quad_ = 0;
    Vec slope_, a_{}, b_{}, c_{}, d_{};
};

// Attention weights of `column_tiles` tiles of nodes, into the rows of `values` after the nodes.
void attend(const Model& model, const AmxModel& amx, int num_history, int column_tiles, bool split, AmxWorkspace& tiles) {
    const int depth_tiles = amx.depth_tiles;
    const std::size_t step = static_cast<std::size_t>(depth_tiles) * 2 * TILE;
    float* values = tiles.values.data() + static_cast<std::size_t>(model.width) * BLOCK;
    for (int ct = 0; ct < column_tiles; ++ct) {
        for (int tile = 0; tile * 16 < num_history; ++tile) {
            const std::uint16_t* rows = tiles.linear.data() + tile * step;
            const std::uint16_t* column = tiles.nodes.data() + ct * step;
            const bool fresh = tile == 0;
            fence();
            BEAMWOOD_MULTIPLY(0, 2, 3);
            _tile_stored(0, values + static_cast<std::size_t>(tile) * 16 * BLOCK + ct * 16, BLOCK * sizeof(float));
            fence();
        }
    }
    // A pipeline: while the products of one tile are computed, the sums of the previous one are stored, and those before
    // are weighted.
    Weigher weigher(model, amx);
    float* sums = tiles.sums.data();
    float *weights[2] = {}, *next = nullptr;
    int turn = 0;
    const auto behind = [&](bool store) {
        if (store) {
            fence();
            if (turn & 1) _tile_stored(0, sums, 64);
            else _tile_stored(1, sums + 256, 64);
            fence();
        }
        if (turn > 1) {
            if (weights[turn & 1]) weigher.start(weights[turn & 1]);
            weigher.take(sums + (turn & 1) * 256);
        }
        weights[turn++ & 1] = next;
    };
    for (int first = 0; first < num_history; first += amx.group) {
        const std::uint16_t* folded = tiles.folded.data() + first / amx.group * amx.group_tiles * step;
        const int row_tiles = (std::min(amx.group, num_history - first) * amx.rows + 15) / 16;
        for (int ct = 0; ct < column_tiles; ++ct) {
            next = values + static_cast<std::size_t>(first) * BLOCK + ct * 16;
            for (int tile = 0; tile < row_tiles; ++tile, next = nullptr) {
                const std::uint16_t* rows = folded + tile * step;
                const std::uint16_t* column = tiles.nodes.data() + ct * step;
                const bool fresh = tile == 0;
                fence();
                if (turn & 1) BEAMWOOD_MULTIPLY(1, 4, 5);
                else BEAMWOOD_MULTIPLY(0, 2, 3);
                behind(turn > 0);
            }
        }
    }
    behind(true);
    behind(false);
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

// Pending products: their first row and column tile, and the number of each.
struct Products {
    int row_tile = 0, column_tile = 0, rows = 0, columns = 0;
    const float* sums = nullptr;
};

// `values` [outputs to a whole tile][BLOCK] = act(sums + bias).
void finish(const Dense& layer, const Products& products, float* values) {
    for (int r = 0; r < products.rows; ++r) {
        const int first = (products.row_tile + r) * 16, last = std::min(16, layer.outputs - first);
        for (int row = 0; row < last; ++row) {
            const Vec bias = splat(layer.bias[first + row]), slope = splat(layer.slope[first + row]);
            float* to = values + static_cast<std::size_t>(first + row) * BLOCK + products.column_tile * 16;
            for (int c = 0; c < products.columns; ++c)
                beamwood::amx::store(
                    to + c * 16, prelu(load(products.sums + (r * products.columns + c) * 256 + row * 16) + bias, slope));
        }
    }
}

void dense(const Dense& layer, const TileMatrix& matrix, int depth, int column_tiles, bool split, AmxWorkspace& tiles) {
    const int depth_tiles = (depth + 31) / 32;
    const std::ptrdiff_t row_step = static_cast<std::ptrdiff_t>(matrix.depth_tiles) * 2 * TILE;
    const std::ptrdiff_t column_step = static_cast<std::ptrdiff_t>(depth_tiles) * 2 * TILE;
    tile_inputs(tiles.values.data(), depth, depth_tiles, column_tiles, tiles.inputs);
    // Pending products are finished while the next ones are computed.
    Products waiting;
    float* sums = tiles.sums.data();
    for (int row_tile = 0; row_tile < matrix.row_tiles; row_tile += 2) {
        const int rows = std::min(2, matrix.row_tiles - row_tile);
        for (int ct = 0; ct < column_tiles; ct += 2) {
            const int columns = std::min(2, column_tiles - ct);
            const std::uint16_t* from = matrix.tile(row_tile, 0);
            const std::uint16_t* inputs = tiles.inputs.data() + ct * column_step;
            if (rows == 2 && columns == 2) multiply_tiles<2, 2>(from, row_step, inputs, column_step, depth_tiles, split, sums);
            else if (rows == 2) multiply_tiles<2, 1>(from, row_step, inputs, column_step, depth_tiles, split, sums);
            else if (columns == 2) multiply_tiles<1, 2>(from, row_step, inputs, column_step, depth_tiles, split, sums);
            else multiply_tiles<1, 1>(from, row_step, inputs, column_step, depth_tiles, split, sums);
            finish(layer, waiting, tiles.values.data());
            waiting = {row_tile, ct, rows, columns, sums};
            sums = tiles.sums.data() + (sums == tiles.sums.data() ? 4 * 256 : 0);
        }
    }
    finish(layer, waiting, tiles.values.data());
}

void score_block(const Model& model, const AmxModel& amx, int num_history, const std::int32_t* wanted, int count,
                 bool split, const Workspace& space, AmxWorkspace& tiles, float* scores) {
    const int width = model.width, column_tiles = (count + 15) / 16;
    if (space.table) {
        look_up(space, num_history, wanted, count, tiles.values.data() + static_cast<std::size_t>(width) * BLOCK);
    } else {
        // Three rows of 1 after the node's rows multiply the constant; attention then overwrites them with its weights.
        for (int d = width; d < width + 3; ++d)
            std::fill_n(tiles.values.data() + static_cast<std::size_t>(d) * BLOCK, BLOCK, 1.0f);
        tile_inputs(tiles.values.data(), width + 3, amx.depth_tiles, column_tiles, tiles.nodes);
        attend(model, amx, num_history, column_tiles, split, tiles);
    }
    int depth = width + num_history;
    const float* last = space.first.data();
    for (std::size_t i = 0; i + 1 < model.layers.size(); ++i) {
        dense(model.layers[i], i == 0 ? tiles.first : amx.layers[i - 1], depth, column_tiles, split, tiles);
        depth = model.layers[i].outputs;
        last = model.layers[i + 1].weight.data();
    }
    // The last layer has one row, which is too small for tiles.
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
    configure();
    for (std::int64_t begin = 0; begin < total; begin += BLOCK) {
        const int count = static_cast<int>(std::min<std::int64_t>(BLOCK, total - begin));
        gather(nodes, wanted + begin, count, model.width, tiles.values.data());
        score_block(model, amx, num_history, wanted + begin, count, split, space, tiles, scores + begin);
    }
    _tile_release();
}

}  // namespace

const AmxKernels* amx_kernels() {
    static constexpr AmxKernels table{build, prepare, score};
    return &table;
}

}  // namespace beamwood::amx
