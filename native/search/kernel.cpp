#include "search/kernel.hpp"

#include <cstddef>
#include <cstring>

#include "common/level.hpp"
#include "search/columns.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

// Vectors of nodes per step: ROWS / 2 x COLUMNS sums fit into registers.
constexpr int COLUMNS = BEAMWOOD_VECTOR_REGISTERS == 32 ? 4 : 2;
static_assert(BLOCK % (LANES * COLUMNS) == 0);

// Rows per step with V vectors; a single vector needs more rows for enough independent sums.
template <int V>
constexpr int ROWS_WITH = V == 1 ? ROWS : ROWS / 2;

// sums += matrix rows times inputs: `matrix` [depth][stride], `inputs` [depth][BLOCK].
template <int R, int V>
BEAMWOOD_INLINE void multiply(const float* matrix, std::ptrdiff_t stride, const float* inputs, int depth,
                              Vec (&sums)[R][V]) {
    for (int k = 0; k < depth; ++k, matrix += stride, inputs += BLOCK) {
        Vec x[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) x[v] = load(inputs + v * LANES);
#pragma GCC unroll 12
        for (int row = 0; row < R; ++row) {
            const Vec factor = splat(matrix[row]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v) sums[row][v] += factor * x[v];
        }
    }
}

template <int R, int V>
BEAMWOOD_INLINE void start(const float* values, Vec (&sums)[R][V]) {
#pragma GCC unroll 12
    for (int row = 0; row < R; ++row) {
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) sums[row][v] = splat(values[row]);
    }
}

// Attention weights of V vectors of nodes, from column `column` of `inputs`, into the rows after the nodes.
template <int V>
void attend(const Model& model, int num_history, Workspace& space, int column) {
    constexpr int R = ROWS_WITH<V>;
    const Dense& layer = model.attention_in;
    const int width = model.width, stride = layer.stride;
    const float* w_p = layer.weight.data() + static_cast<std::size_t>(width) * stride;
    const float* w_w = w_p + static_cast<std::size_t>(width) * stride;
    const float* nodes = space.inputs.data() + column;
    float* folded = space.folded.data();
    for (int u = 0; u < num_history; ++u) {
        const float* a = space.history.data() + static_cast<std::size_t>(u) * width;
        const float* constant = space.constant.data() + static_cast<std::size_t>(u) * stride;
        // Recomputed for each block of nodes, so that it is in the first-level cache.
        for (int d = 0; d < width; ++d) {
            const Vec value = splat(a[d]);
            for (int at = d * stride; at < (d + 1) * stride; at += LANES)
                store(folded + at, load(w_w + at) + value * load(w_p + at));
        }
        Vec weight[V];
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) weight[v] = splat(model.attention_out_bias);
        for (int row = 0; row < layer.outputs; row += R) {
            Vec sums[R][V];
            start(constant + row, sums);
            multiply(folded + row, stride, nodes, width, sums);
#pragma GCC unroll 12
            for (int r = 0; r < R; ++r) {
                const Vec slope = splat(layer.slope[row + r]), out = splat(model.attention_out[row + r]);
#pragma GCC unroll 8
                for (int v = 0; v < V; ++v) weight[v] += out * prelu(sums[r][v], slope);
            }
        }
        float* to = space.inputs.data() + static_cast<std::size_t>(width + u) * BLOCK + column;
#pragma GCC unroll 8
        for (int v = 0; v < V; ++v) store(to + v * LANES, prelu(weight[v], splat(model.attention_out_slope)));
    }
}

// `to` [outputs padded][BLOCK] = act(matrix from + bias) for V vectors of nodes.
template <int V>
void dense(const Dense& layer, const float* matrix, int depth, const float* from, float* to, int column) {
    constexpr int R = ROWS_WITH<V>;
    for (int row = 0; row < layer.outputs; row += R) {
        Vec sums[R][V];
        start(layer.bias.data() + row, sums);
        multiply(matrix + row, layer.stride, from + column, depth, sums);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
            const Vec slope = splat(layer.slope[row + r]);
#pragma GCC unroll 8
            for (int v = 0; v < V; ++v)
                store(to + static_cast<std::size_t>(row + r) * BLOCK + column + v * LANES, prelu(sums[r][v], slope));
        }
    }
}

// Calls `work` on the `count` nodes, with as many whole vectors at once as possible.
template <class Work>
BEAMWOOD_INLINE void over_columns(int count, Work&& work) {
    int column = 0;
    for (; column + LANES * (COLUMNS - 1) < count; column += LANES * COLUMNS) work.template operator()<COLUMNS>(column);
    const int left = (count - column + LANES - 1) / LANES;
    if (left == 1) work.template operator()<1>(column);
    if constexpr (COLUMNS > 2) {
        if (left == 2) work.template operator()<2>(column);
        if (left == 3) work.template operator()<3>(column);
    }
}

// `to` [stride] = `from` + values times `matrix` [depth][stride]. Several vectors at once hide the latency of the sums.
void combine(const float* values, const float* matrix, int depth, int stride, const float* from, float* to) {
    const auto over = [&]<int V>(int column) {
        Vec sums[V];
#pragma GCC unroll 9
        for (int v = 0; v < V; ++v) sums[v] = load(from + column + v * LANES);
        const float* row = matrix + column;
        for (int d = 0; d < depth; ++d, row += stride) {
            const Vec value = splat(values[d]);
#pragma GCC unroll 9
            for (int v = 0; v < V; ++v) sums[v] += value * load(row + v * LANES);
        }
#pragma GCC unroll 9
        for (int v = 0; v < V; ++v) store(to + column + v * LANES, sums[v]);
    };
    int column = 0;
    for (; column + 9 * LANES <= stride; column += 9 * LANES) over.template operator()<9>(column);
    for (; column + 3 * LANES <= stride; column += 3 * LANES) over.template operator()<3>(column);
    for (; column < stride; column += LANES) over.template operator()<1>(column);
}

void prepare(const Model& model, const float* nodes, const History& history, const std::vector<const char*>& ahead,
             Workspace& space) {
    const Dense& attention = model.attention_in;
    const Dense& layer = model.layers.front();
    const int width = model.width;
    std::memset(space.first.data() + static_cast<std::size_t>(width) * layer.stride, 0,
                history.nodes.size() * layer.stride * sizeof(float));
    for (std::size_t u = 0; u < history.nodes.size(); ++u) {
        float* a = space.history.data() + u * width;
        std::memcpy(a, nodes + static_cast<std::size_t>(history.nodes[u]) * width, width * sizeof(float));
        if (space.table) continue;
        combine(a, attention.weight.data(), width, attention.stride, attention.bias.data(),
                space.constant.data() + u * attention.stride);
    }
    for (std::size_t entry = 0, line = 0; entry < history.slots.size(); ++entry) {
        for (; line < ahead.size() * (entry + 1) / history.slots.size(); ++line) __builtin_prefetch(ahead[line]);
        const int u = history.slots[entry];
        const float* a = space.history.data() + static_cast<std::size_t>(u) * width;
        const float* part = layer.weight.data() + static_cast<std::size_t>(history.windows[entry]) * width * layer.stride;
        float* row = space.first.data() + static_cast<std::size_t>(width + u) * layer.stride;
        combine(a, part, width, layer.stride, row, row);
    }
}

void score(const Model& model, const float* nodes, int num_history, const std::int32_t* wanted, std::int64_t total,
           Workspace& space, float* scores) {
    const int width = model.width;
    for (std::int64_t begin = 0; begin < total; begin += BLOCK) {
        const int count = static_cast<int>(total - begin < BLOCK ? total - begin : BLOCK);
        float* inputs = space.inputs.data();
        gather(nodes, wanted + begin, count, width, inputs);
        if (space.table) {
            look_up(space, num_history, wanted + begin, count, inputs + static_cast<std::size_t>(width) * BLOCK);
        } else {
            over_columns(count, [&]<int V>(int column) { attend<V>(model, num_history, space, column); });
        }
        const float* from = inputs;
        const float* matrix = space.first.data();
        int depth = width + num_history;
        int side = 0;
        for (const Dense& layer : model.layers) {
            float* to = space.outputs[side].data();
            over_columns(count, [&]<int V>(int column) { dense<V>(layer, matrix, depth, from, to, column); });
            from = to;
            side ^= 1;
            if (&layer != &model.layers.back()) {
                matrix = (&layer + 1)->weight.data();
                depth = layer.outputs;
            }
        }
        for (int column = 0; column < count; ++column) scores[begin + column] = from[column];
    }
}

void tabulate(const Model& model, const float* nodes, int size, Workspace& space, float* table) {
    const int width = model.width, length = model.history_length;
    History history;
    std::int32_t wanted[BLOCK];
    for (int first = 0; first < size; first += length) {
        history.nodes.clear();
        for (int node = first; node < size && node < first + length; ++node) history.nodes.push_back(node);
        prepare(model, nodes, history, {}, space);
        const int num_history = static_cast<int>(history.nodes.size());
        for (int begin = 0; begin < size; begin += BLOCK) {
            const int count = size - begin < BLOCK ? size - begin : BLOCK;
            for (int i = 0; i < count; ++i) wanted[i] = begin + i;
            gather(nodes, wanted, count, width, space.inputs.data());
            over_columns(count, [&]<int V>(int column) { attend<V>(model, num_history, space, column); });
            for (int u = 0; u < num_history; ++u)
                std::memcpy(table + static_cast<std::size_t>(first + u) * size + begin,
                            space.inputs.data() + static_cast<std::size_t>(width + u) * BLOCK, count * sizeof(float));
        }
    }
}

void add_products(const float* vectors, int width, const float* query, const std::int32_t* wanted, std::int64_t count,
                  float* scores) {
    // Rows are scattered; upcoming ones are prefetched.
    constexpr std::int64_t AHEAD = 4;
    for (std::int64_t i = 0; i < count; ++i) {
        if (i + AHEAD < count) {
            const float* next = vectors + static_cast<std::size_t>(wanted[i + AHEAD]) * width;
            for (int at = 0; at < width; at += 16) __builtin_prefetch(next + at);
        }
        const float* row = vectors + static_cast<std::size_t>(wanted[i]) * width;
        Vec sums[4] = {};
        int at = 0;
        for (; at + 4 * LANES <= width; at += 4 * LANES)
            for (int v = 0; v < 4; ++v) sums[v] += load(row + at + v * LANES) * load(query + at + v * LANES);
        for (; at + LANES <= width; at += LANES) sums[0] += load(row + at) * load(query + at);
        float parts[LANES];
        store(parts, (sums[0] + sums[1]) + (sums[2] + sums[3]));
        float sum = 0;
        for (const float part : parts) sum += part;
        for (; at < width; ++at) sum += row[at] * query[at];
        scores[i] += sum;
    }
}

}  // namespace

const SearchKernels* search_kernels() {
    static constexpr SearchKernels table{prepare, score, tabulate, add_products};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
