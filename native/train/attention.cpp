// For a history entry a, the hidden layer is linear in the node: h = (W_p diag(a) + W_w) w + (W_a a + b). Each entry is a
// GEMM [A x D] [D x M] whose result is used in registers, and nothing of size A M L is stored. Backward is three GEMMs of
// that size: h again, the gradient of the folded matrix, and the gradient of the nodes.
#include "train/attention.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "common/level.hpp"
#include "common/parallel.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

constexpr int ROWS = 4;
// ROWS * MAX_VECTORS accumulators, one operand row and a broadcast must fit into the registers.
constexpr int MAX_VECTORS = BEAMWOOD_VECTOR_REGISTERS == 32 ? 6 : 3;

int round_up(std::int64_t value, int multiple) {
    return static_cast<int>((value + multiple - 1) / multiple * multiple);
}

float sum(Vec value) {
    float lane[LANES];
    store(lane, value);
    for (int half = LANES / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
    return lane[0];
}

// Calls `body.template operator()<N>()` for N = vectors in 1..MAX_VECTORS.
template <class Body>
BEAMWOOD_INLINE void with_vectors(int vectors, Body&& body) {
    switch (vectors) {
        case 1: body.template operator()<1>(); break;
        case 2: body.template operator()<2>(); break;
        case 3: body.template operator()<3>(); break;
#if BEAMWOOD_VECTOR_REGISTERS == 32
        case 4: body.template operator()<4>(); break;
        case 5: body.template operator()<5>(); break;
        case 6: body.template operator()<6>(); break;
#endif
    }
}

// The parameters, with rows padded to whole vectors and A to whole blocks of rows; padding is zero.
struct Parameters {
    int width, hidden, padded_width, padded_hidden;
    std::vector<float> w_a, w_p, w_w, bias, slope, out;
    float bias_out, slope_out;

    Parameters(const AttentionSizes& sizes, const AttentionInputs& in)
        : width(sizes.width),
          hidden(sizes.hidden),
          padded_width(round_up(sizes.width, LANES)),
          padded_hidden(round_up(sizes.hidden, ROWS)),
          w_a(matrix()), w_p(matrix()), w_w(matrix()),
          bias(padded_hidden), slope(padded_hidden), out(padded_hidden),
          bias_out(*in.bias_out), slope_out(*in.slope_out) {
        for (int row = 0; row < hidden; ++row) {
            const float* from = in.weight_in + std::size_t(row) * 3 * width;
            std::copy_n(from, width, &w_a[std::size_t(row) * padded_width]);
            std::copy_n(from + width, width, &w_p[std::size_t(row) * padded_width]);
            std::copy_n(from + 2 * width, width, &w_w[std::size_t(row) * padded_width]);
        }
        std::copy_n(in.bias_in, hidden, bias.data());
        std::copy_n(in.slope_in, hidden, slope.data());
        std::copy_n(in.weight_out, hidden, out.data());
    }

    std::size_t matrix_size() const { return std::size_t(padded_hidden) * padded_width; }
    std::vector<float> matrix() const { return std::vector<float>(matrix_size()); }
};

// The nodes of a group in blocks of at most MAX_VECTORS vectors.
struct Blocks {
    int count, vectors;

    explicit Blocks(std::int64_t nodes)
        : count(0), vectors(static_cast<int>((nodes + LANES - 1) / LANES)) {
        count = (vectors + MAX_VECTORS - 1) / MAX_VECTORS;
    }
    int first(int block) const { return static_cast<int>(std::int64_t(block) * vectors / count); }
    int padded_nodes() const { return vectors * LANES; }
};

// The buffers of one worker, allocated once per call.
struct Workspace {
    std::vector<float> folded, constant, nodes_by_dim, entry, hidden, out;
    std::vector<float> nodes, d_out, d_folded, d_constant, d_nodes_by_dim;

    Workspace(const Parameters& p, const Blocks& blocks, std::int64_t num_nodes, bool backward)
        : folded(p.matrix_size()), constant(p.padded_hidden),
          nodes_by_dim(std::size_t(p.padded_width) * blocks.padded_nodes()), entry(p.padded_width),
          hidden(backward ? std::size_t(p.padded_hidden) * MAX_VECTORS * LANES : 0), out(MAX_VECTORS * LANES) {
        if (!backward) return;
        nodes.resize(std::size_t(num_nodes) * p.padded_width);
        d_out.resize(MAX_VECTORS * LANES);
        d_folded.resize(p.matrix_size());
        d_constant.resize(p.padded_hidden);
        d_nodes_by_dim.resize(nodes_by_dim.size());
    }
};

// nodes_by_dim, block after block: [D, nodes of the block].
void pack_nodes(const float* w, std::int64_t num_nodes, const Parameters& p, const Blocks& blocks, float* packed) {
    for (int block = 0; block < blocks.count; ++block) {
        const int begin = blocks.first(block) * LANES, wide = blocks.first(block + 1) * LANES - begin;
        float* to = packed + std::size_t(begin) * p.padded_width;
        for (int d = 0; d < p.padded_width; ++d)
            for (int i = 0; i < wide; ++i)
                to[std::size_t(d) * wide + i] =
                    d < p.width && begin + i < num_nodes ? w[std::size_t(begin + i) * p.width + d] : 0.0f;
    }
}

void fold(const Parameters& p, const float* a, Workspace& work) {
    std::copy_n(a, p.width, work.entry.data());
    for (int row = 0; row < p.hidden; ++row) {
        const std::size_t at = std::size_t(row) * p.padded_width;
        Vec constant{};
        for (int d = 0; d < p.padded_width; d += LANES) {
            const Vec entry = load(&work.entry[d]);
            store(&work.folded[at + d], load(&p.w_p[at + d]) * entry + load(&p.w_w[at + d]));
            constant += load(&p.w_a[at + d]) * entry;
        }
        work.constant[row] = p.bias[row] + sum(constant);
    }
}

// out[m] = weight_out . act(h[:, m]) for one block; h is stored only if KEEP.
template <int V, bool KEEP>
void hidden_block(const Parameters& p, const float* nodes, Workspace& work) {
    Vec out[V] = {};
    for (int row = 0; row < p.padded_hidden; row += ROWS) {
        const float* folded = &work.folded[std::size_t(row) * p.padded_width];
        Vec sums[ROWS][V];
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < V; ++v) sums[r][v] = splat(work.constant[row + r]);
        for (int d = 0; d < p.width; ++d) {
            Vec w[V];
            for (int v = 0; v < V; ++v) w[v] = load(nodes + (std::size_t(d) * V + v) * LANES);
            for (int r = 0; r < ROWS; ++r) {
                const Vec f = splat(folded[std::size_t(r) * p.padded_width + d]);
                for (int v = 0; v < V; ++v) sums[r][v] += f * w[v];
            }
        }
        for (int r = 0; r < ROWS; ++r) {
            const Vec slope = splat(p.slope[row + r]), weight = splat(p.out[row + r]);
            for (int v = 0; v < V; ++v) {
                if constexpr (KEEP) store(&work.hidden[(std::size_t(row + r) * V + v) * LANES], sums[r][v]);
                out[v] += weight * prelu(sums[r][v], slope);
            }
        }
    }
    for (int v = 0; v < V; ++v) store(&work.out[v * LANES], out[v] + splat(p.bias_out));
}

// A call is divided into parts: ranges of groups, or of entries of one group if there are few groups. The division depends
// only on the sizes, not on the number of threads.
struct Parts {
    static constexpr std::int64_t ENOUGH = 8, MOST = 64;
    std::int64_t groups, entries, group_parts, entry_parts;

    explicit Parts(const AttentionSizes& sizes) : groups(sizes.groups), entries(sizes.entries) {
        group_parts = std::min(groups, MOST);
        entry_parts = 1;
        if (groups > 0 && groups < ENOUGH)
            entry_parts = std::clamp<std::int64_t>(std::min(entries, (ENOUGH + groups - 1) / groups), 1, ENOUGH);
    }
    std::int64_t count() const { return group_parts * entry_parts; }
    std::int64_t group_begin(std::int64_t part) const { return part / entry_parts * groups / group_parts; }
    std::int64_t group_end(std::int64_t part) const { return (part / entry_parts + 1) * groups / group_parts; }
    std::int64_t entry_begin(std::int64_t part) const { return part % entry_parts * entries / entry_parts; }
    std::int64_t entry_end(std::int64_t part) const { return (part % entry_parts + 1) * entries / entry_parts; }
};

void forward(const AttentionSizes& sizes, const AttentionInputs& in, float* weights, int threads) {
    const std::int64_t M = sizes.nodes, L = sizes.entries, D = sizes.width;
    if (M == 0 || L == 0 || sizes.groups == 0) return;
    const Parameters p(sizes, in);
    const Blocks blocks(M);
    const Parts parts(sizes);
    threads = threads_for(parts.count(), threads);
    std::vector<Workspace> workspaces(threads, Workspace(p, blocks, M, false));
    parallel_rows(parts.count(), threads, [&](int worker, std::int64_t part) {
        Workspace& work = workspaces[worker];
        for (std::int64_t g = parts.group_begin(part); g < parts.group_end(part); ++g) {
            pack_nodes(in.w + g * M * D, M, p, blocks, work.nodes_by_dim.data());
            for (std::int64_t l = parts.entry_begin(part); l < parts.entry_end(part); ++l) {
                float* to = weights + g * M * L + l;
                if (!in.present[g * L + l]) {
                    for (std::int64_t m = 0; m < M; ++m) to[m * L] = 0.0f;
                    continue;
                }
                fold(p, in.a + (g * L + l) * D, work);
                for (int block = 0; block < blocks.count; ++block) {
                    const std::int64_t begin = std::int64_t(blocks.first(block)) * LANES;
                    const int vectors = blocks.first(block + 1) - blocks.first(block);
                    const float* nodes = &work.nodes_by_dim[std::size_t(begin) * p.padded_width];
                    with_vectors(vectors, [&]<int V>() { hidden_block<V, false>(p, nodes, work); });
                    const std::int64_t many = std::min<std::int64_t>(M - begin, vectors * LANES);
                    for (std::int64_t m = 0; m < many; ++m) {
                        const float out = work.out[m];
                        to[(begin + m) * L] = out > 0 ? out : p.slope_out * out;
                    }
                }
            }
        }
    });
}

// Sums of the parameters' gradients over one part. slope and out have a vector per row, summed at the end.
struct ParameterSums {
    std::vector<float> w_a, w_p, w_w, bias, slope, out;
    float bias_out = 0, slope_out = 0;

    explicit ParameterSums(const Parameters& p)
        : w_a(p.matrix()), w_p(p.matrix()), w_w(p.matrix()), bias(p.padded_hidden),
          slope(std::size_t(p.padded_hidden) * LANES), out(std::size_t(p.padded_hidden) * LANES) {}
};

// From h and the gradient of the output: the gradient of h, in place, and the gradients that are sums over nodes.
template <int V>
void activation_gradients(const Parameters& p, Workspace& work, ParameterSums& sums) {
    Vec d_out[V];
    for (int v = 0; v < V; ++v) d_out[v] = load(&work.d_out[v * LANES]);
    for (int row = 0; row < p.padded_hidden; ++row) {
        const Vec slope = splat(p.slope[row]), weight = splat(p.out[row]);
        float* hidden = &work.hidden[std::size_t(row) * V * LANES];
        Vec d_weight{}, d_slope{}, d_constant{};
        for (int v = 0; v < V; ++v) {
            const Vec h = load(hidden + v * LANES), d_active = weight * d_out[v], zero{};
            d_weight += prelu(h, slope) * d_out[v];
            d_slope += h > 0 ? zero : h * d_active;
            const Vec d_hidden = h > 0 ? d_active : slope * d_active;
            d_constant += d_hidden;
            store(hidden + v * LANES, d_hidden);
        }
        const std::size_t at = std::size_t(row) * LANES;
        store(&sums.out[at], load(&sums.out[at]) + d_weight);
        store(&sums.slope[at], load(&sums.slope[at]) + d_slope);
        work.d_constant[row] += sum(d_constant);
    }
}

// d_folded[:, columns] += d_hidden nodes, over the `many` nodes of a block of `wide` columns.
template <int V>
void folded_gradient(const Parameters& p, const float* nodes, int wide, std::int64_t many, int column,
                     Workspace& work) {
    for (int row = 0; row < p.padded_hidden; row += ROWS) {
        const float* d_hidden = &work.hidden[std::size_t(row) * wide];
        float* to = &work.d_folded[std::size_t(row) * p.padded_width + column];
        Vec sums[ROWS][V];
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < V; ++v) sums[r][v] = load(to + std::size_t(r) * p.padded_width + v * LANES);
        for (std::int64_t m = 0; m < many; ++m) {
            Vec w[V];
            for (int v = 0; v < V; ++v) w[v] = load(nodes + m * p.padded_width + column + v * LANES);
            for (int r = 0; r < ROWS; ++r) {
                const Vec d = splat(d_hidden[std::size_t(r) * wide + m]);
                for (int v = 0; v < V; ++v) sums[r][v] += d * w[v];
            }
        }
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < V; ++v) store(to + std::size_t(r) * p.padded_width + v * LANES, sums[r][v]);
    }
}

// d_nodes [D, nodes of the block] += folded^T d_hidden.
template <int V>
void node_gradient(const Parameters& p, float* d_nodes, const Workspace& work) {
    static_assert(LANES % ROWS == 0);
    for (int d = 0; d < p.width; d += ROWS) {
        float* to = d_nodes + std::size_t(d) * V * LANES;
        Vec sums[ROWS][V];
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < V; ++v) sums[r][v] = load(to + (r * V + v) * LANES);
        for (int row = 0; row < p.hidden; ++row) {
            Vec d_hidden[V];
            for (int v = 0; v < V; ++v) d_hidden[v] = load(&work.hidden[(std::size_t(row) * V + v) * LANES]);
            for (int r = 0; r < ROWS; ++r) {
                const Vec f = splat(work.folded[std::size_t(row) * p.padded_width + d + r]);
                for (int v = 0; v < V; ++v) sums[r][v] += f * d_hidden[v];
            }
        }
        for (int r = 0; r < ROWS; ++r)
            for (int v = 0; v < V; ++v) store(to + (r * V + v) * LANES, sums[r][v]);
    }
}

// From the gradients of the folded matrix and the constant: those of the entry (written) and of the weights (added).
void unfold(const Parameters& p, const Workspace& work, ParameterSums& sums, float* d_a) {
    for (int d = 0; d < p.padded_width; d += LANES) {
        const Vec entry = load(&work.entry[d]);
        Vec d_entry{};
        for (int row = 0; row < p.hidden; ++row) {
            const std::size_t at = std::size_t(row) * p.padded_width + d;
            const Vec d_folded = load(&work.d_folded[at]), d_constant = splat(work.d_constant[row]);
            store(&sums.w_w[at], load(&sums.w_w[at]) + d_folded);
            store(&sums.w_p[at], load(&sums.w_p[at]) + d_folded * entry);
            store(&sums.w_a[at], load(&sums.w_a[at]) + d_constant * entry);
            d_entry += d_folded * load(&p.w_p[at]) + d_constant * load(&p.w_a[at]);
        }
        float lane[LANES];
        store(lane, d_entry);
        std::copy_n(lane, std::min(LANES, p.width - d), d_a + d);
    }
    for (int row = 0; row < p.hidden; ++row) sums.bias[row] += work.d_constant[row];
}

void entry_gradients(const Parameters& p, const Blocks& blocks, std::int64_t num_nodes, std::int64_t stride,
                     const float* a, const float* gradient, float* d_a, Workspace& work, ParameterSums& sums) {
    fold(p, a, work);
    std::fill(work.d_folded.begin(), work.d_folded.end(), 0.0f);
    std::fill(work.d_constant.begin(), work.d_constant.end(), 0.0f);
    for (int block = 0; block < blocks.count; ++block) {
        const std::int64_t begin = std::int64_t(blocks.first(block)) * LANES;
        const int vectors = blocks.first(block + 1) - blocks.first(block);
        const std::int64_t many = std::min<std::int64_t>(num_nodes - begin, vectors * LANES);
        const std::size_t packed = std::size_t(begin) * p.padded_width;
        with_vectors(vectors, [&]<int V>() { hidden_block<V, true>(p, &work.nodes_by_dim[packed], work); });
        std::fill(work.d_out.begin(), work.d_out.end(), 0.0f);
        for (std::int64_t m = 0; m < many; ++m) {
            const float out = work.out[m], d = gradient[(begin + m) * stride];
            work.d_out[m] = out > 0 ? d : p.slope_out * d;
            sums.slope_out += out > 0 ? 0.0f : out * d;
            sums.bias_out += work.d_out[m];
        }
        with_vectors(vectors, [&]<int V>() {
            activation_gradients<V>(p, work, sums);
            node_gradient<V>(p, &work.d_nodes_by_dim[packed], work);
        });
        for (int column = 0; column < p.padded_width; column += MAX_VECTORS * LANES) {
            const int columns = std::min(MAX_VECTORS, (p.padded_width - column) / LANES);
            const float* nodes = &work.nodes[std::size_t(begin) * p.padded_width];
            with_vectors(columns, [&]<int V>() {
                folded_gradient<V>(p, nodes, vectors * LANES, many, column, work);
            });
        }
    }
    unfold(p, work, sums, d_a);
}

// to[i] = sum over parts k of part(k, i), in the order of the parts.
template <class Part>
void add_parts(std::size_t num_parts, std::size_t size, float* to, Part&& part) {
    for (std::size_t i = 0; i < size; ++i) {
        double total = 0;
        for (std::size_t k = 0; k < num_parts; ++k) total += part(k, i);
        to[i] = static_cast<float>(total);
    }
}

void write_parameters(const Parameters& p, const std::vector<ParameterSums>& sums, const AttentionGradients& out) {
    const std::size_t parts = sums.size();
    for (int row = 0; row < p.hidden; ++row) {
        const std::size_t at = std::size_t(row) * p.padded_width, lanes = std::size_t(row) * LANES;
        float* to = out.weight_in + std::size_t(row) * 3 * p.width;
        add_parts(parts, p.width, to, [&](std::size_t k, std::size_t i) { return sums[k].w_a[at + i]; });
        add_parts(parts, p.width, to + p.width, [&](std::size_t k, std::size_t i) { return sums[k].w_p[at + i]; });
        add_parts(parts, p.width, to + 2 * p.width, [&](std::size_t k, std::size_t i) { return sums[k].w_w[at + i]; });
        add_parts(parts, 1, out.bias_in + row, [&](std::size_t k, std::size_t) { return sums[k].bias[row]; });
        add_parts(parts, 1, out.slope_in + row, [&](std::size_t k, std::size_t) { return sum(load(&sums[k].slope[lanes])); });
        add_parts(parts, 1, out.weight_out + row, [&](std::size_t k, std::size_t) { return sum(load(&sums[k].out[lanes])); });
    }
    add_parts(parts, 1, out.bias_out, [&](std::size_t k, std::size_t) { return sums[k].bias_out; });
    add_parts(parts, 1, out.slope_out, [&](std::size_t k, std::size_t) { return sums[k].slope_out; });
}

void write_zeros(const AttentionSizes& sizes, const AttentionGradients& out) {
    const std::int64_t hidden = sizes.hidden, width = sizes.width;
    std::fill_n(out.a, sizes.groups * sizes.entries * width, 0.0f);
    std::fill_n(out.w, sizes.groups * sizes.nodes * width, 0.0f);
    std::fill_n(out.weight_in, hidden * 3 * width, 0.0f);
    for (float* to : {out.bias_in, out.slope_in, out.weight_out}) std::fill_n(to, hidden, 0.0f);
    *out.bias_out = *out.slope_out = 0.0f;
}

void backward(const AttentionSizes& sizes, const AttentionInputs& in, const float* gradient,
              const AttentionGradients& out, int threads) {
    const std::int64_t M = sizes.nodes, L = sizes.entries, D = sizes.width;
    if (M == 0 || L == 0 || sizes.groups == 0) return write_zeros(sizes, out);
    const Parameters p(sizes, in);
    const Blocks blocks(M);
    const Parts parts(sizes);
    threads = threads_for(parts.count(), threads);
    std::vector<Workspace> workspaces(threads, Workspace(p, blocks, M, true));
    std::vector<ParameterSums> sums(parts.count(), ParameterSums(p));
    // With several parts per group, each part has its own gradient of the group's nodes.
    std::vector<float> node_parts(parts.entry_parts > 1 ? parts.count() * M * D : 0);
    parallel_rows(parts.count(), threads, [&](int worker, std::int64_t part) {
        Workspace& work = workspaces[worker];
        for (std::int64_t g = parts.group_begin(part); g < parts.group_end(part); ++g) {
            const float* w = in.w + g * M * D;
            pack_nodes(w, M, p, blocks, work.nodes_by_dim.data());
            for (std::int64_t m = 0; m < M; ++m) std::copy_n(w + m * D, D, &work.nodes[m * p.padded_width]);
            std::fill(work.d_nodes_by_dim.begin(), work.d_nodes_by_dim.end(), 0.0f);
            for (std::int64_t l = parts.entry_begin(part); l < parts.entry_end(part); ++l) {
                float* d_a = out.a + (g * L + l) * D;
                if (in.present[g * L + l])
                    entry_gradients(p, blocks, M, L, in.a + (g * L + l) * D, gradient + g * M * L + l, d_a, work,
                                    sums[part]);
                else
                    std::fill_n(d_a, D, 0.0f);
            }
            float* d_w = parts.entry_parts > 1 ? &node_parts[part * M * D] : out.w + g * M * D;
            for (int block = 0; block < blocks.count; ++block) {
                const std::int64_t begin = std::int64_t(blocks.first(block)) * LANES;
                const std::int64_t wide = std::int64_t(blocks.first(block + 1)) * LANES - begin;
                const float* from = &work.d_nodes_by_dim[std::size_t(begin) * p.padded_width];
                for (std::int64_t m = 0; m < std::min(wide, M - begin); ++m)
                    for (std::int64_t d = 0; d < D; ++d) d_w[(begin + m) * D + d] = from[d * wide + m];
            }
        }
    });
    if (parts.entry_parts > 1)
        for (std::int64_t g = 0; g < sizes.groups; ++g)
            add_parts(parts.entry_parts, M * D, out.w + g * M * D, [&](std::size_t k, std::size_t i) {
                return node_parts[(g * parts.entry_parts + k) * M * D + i];
            });
    write_parameters(p, sums, out);
}

}  // namespace

const AttentionKernels* attention_kernels() {
    static const AttentionKernels table{forward, backward};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
