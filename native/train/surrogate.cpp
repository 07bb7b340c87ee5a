#include "train/surrogate.hpp"

#include <algorithm>
#include <utility>

#include "common/aligned.hpp"
#include "common/exp.hpp"
#include "common/level.hpp"

namespace beamwood::BEAMWOOD_LEVEL {
namespace {

// One lane per list: value i of a layer is the vector at i * LANES, so widths need no padding.
BEAMWOOD_INLINE Vec at(const float* values, std::int64_t i) { return load(values + i * LANES); }
BEAMWOOD_INLINE void put(float* values, std::int64_t i, Vec value) { store(values + i * LANES, value); }
BEAMWOOD_INLINE void add(float* values, std::int64_t i, Vec value) { put(values, i, at(values, i) + value); }

// The offsets of a layer in the flat weights and in the sums of their gradients.
struct Layer {
    std::int64_t matrix, bias, in, out;
};

// out = tanh(matrix in + bias).
void forward(const Layer& layer, const float* weights, const float* in, float* out) {
    const float *matrix = weights + layer.matrix, *bias = weights + layer.bias;
    std::int64_t o = 0;
    for (; o + 4 <= layer.out; o += 4) {  // four independent sums, to hide latency
        Vec sums[4];
        for (int j = 0; j < 4; ++j) sums[j] = splat(bias[o + j]);
        for (std::int64_t i = 0; i < layer.in; ++i) {
            const Vec x = at(in, i);
            for (int j = 0; j < 4; ++j) sums[j] += splat(matrix[(o + j) * layer.in + i]) * x;
        }
        for (int j = 0; j < 4; ++j) put(out, o + j, tanh_of(sums[j]));
    }
    for (; o < layer.out; ++o) {
        Vec sum = splat(bias[o]);
        for (std::int64_t i = 0; i < layer.in; ++i) sum += splat(matrix[o * layer.in + i]) * at(in, i);
        put(out, o, tanh_of(sum));
    }
}

// From the gradient of `out`, which becomes that before tanh: adds the weights' gradients to `sums`, and sets `d_in`.
void backward(const Layer& layer, const float* weights, const float* in, const float* out, float* d_out, float* sums,
              float* d_in) {
    const float* matrix = weights + layer.matrix;
    if (d_in) std::fill(d_in, d_in + layer.in * LANES, 0.0f);
    for (std::int64_t o = 0; o < layer.out; ++o) {
        const Vec y = at(out, o), d = at(d_out, o) * (splat(1.0f) - y * y);
        put(d_out, o, d);
        const float* row = matrix + o * layer.in;
        if (sums) {
            float* d_row = sums + (layer.matrix + o * layer.in) * LANES;
            for (std::int64_t i = 0; i < layer.in; ++i) add(d_row, i, d * at(in, i));
            add(sums, layer.bias + o, d);
        }
        if (d_in)
            for (std::int64_t i = 0; i < layer.in; ++i) add(d_in, i, splat(row[i]) * d);
    }
}

// The layers' values and gradients for one list per lane.
struct Block {
    Aligned<float> memory;
    float *x, *v1, *v2, *z, *mean, *pooled, *e, *joined, *h1, *out;
    float *d_x, *d_v1, *d_v2, *d_mean, *d_pooled, *d_e, *d_joined, *d_h1, *d_out;

    Block(std::int64_t size, std::int64_t width) {
        const std::int64_t pooled_room = std::max(size, width), last = SurrogateSizes::LAST;
        memory.resize((4 * size + size * width + 8 * width + 2 * pooled_room + 2 * width + 2 * last + 2) * LANES);
        float* next = memory.data();
        const auto take = [&](std::int64_t count) { return std::exchange(next, next + count * LANES); };
        x = take(2 * size), d_x = take(2 * size), z = take(size * width);
        v1 = take(width), d_v1 = take(width), v2 = take(width), d_v2 = take(width);
        e = take(width), d_e = take(width), mean = take(width), d_mean = take(width);
        pooled = take(pooled_room), d_pooled = take(pooled_room);
        joined = take(width), d_joined = take(width);
        h1 = take(last), d_h1 = take(last), out = take(1), d_out = take(1);
    }
};

class Network {
public:
    Network(const SurrogateSizes& sizes, const float* weights) : sizes_(sizes), weights_(weights) {
        std::int64_t next = 0;
        const auto layer = [&](std::int64_t in, std::int64_t out) {
            const Layer made{next, next + in * out, in, out};
            next += (in + 1) * out;
            return made;
        };
        if (sizes.mlp) v1_ = layer(2 * sizes.size, sizes.width), v2_ = layer(sizes.width, sizes.width);
        if (sizes.degree) g_ = layer(2, sizes.width), e_ = layer(sizes.pooled(), sizes.width);
        h1_ = layer(sizes.width, SurrogateSizes::LAST), h2_ = layer(SurrogateSizes::LAST, 1);
    }

    void forward(Block& b) const {
        const std::int64_t width = sizes_.width;
        if (sizes_.mlp) {
            BEAMWOOD_LEVEL::forward(v1_, weights_, b.x, b.v1);
            BEAMWOOD_LEVEL::forward(v2_, weights_, b.v1, b.v2);
        }
        if (sizes_.degree) {
            pool(b);
            BEAMWOOD_LEVEL::forward(e_, weights_, b.pooled, b.e);
        }
        for (std::int64_t d = 0; d < width; ++d)
            put(b.joined, d, !sizes_.degree ? at(b.v2, d) : sizes_.mlp ? at(b.v2, d) * at(b.e, d) : at(b.e, d));
        BEAMWOOD_LEVEL::forward(h1_, weights_, b.joined, b.h1);
        BEAMWOOD_LEVEL::forward(h2_, weights_, b.h1, b.out);
    }

    // Called after `forward`, with d_out set. Adds the weights' gradients to `sums` (may be null); sets d_x if `want_x`.
    void backward(Block& b, float* sums, bool want_x) const {
        const std::int64_t width = sizes_.width;
        BEAMWOOD_LEVEL::backward(h2_, weights_, b.h1, b.out, b.d_out, sums, b.d_h1);
        BEAMWOOD_LEVEL::backward(h1_, weights_, b.joined, b.h1, b.d_h1, sums, b.d_joined);
        const bool both = sizes_.mlp && sizes_.degree;
        for (std::int64_t d = 0; d < width; ++d) {
            const Vec joined = at(b.d_joined, d);
            put(b.d_v2, d, both ? joined * at(b.e, d) : joined);
            put(b.d_e, d, both ? joined * at(b.v2, d) : joined);
        }
        std::fill(b.d_x, b.d_x + 2 * sizes_.size * LANES, 0.0f);
        if (sizes_.mlp) {
            BEAMWOOD_LEVEL::backward(v2_, weights_, b.v1, b.v2, b.d_v2, sums, b.d_v1);
            BEAMWOOD_LEVEL::backward(v1_, weights_, b.x, b.v1, b.d_v1, sums, want_x ? b.d_x : nullptr);
        }
        if (sizes_.degree) {
            BEAMWOOD_LEVEL::backward(e_, weights_, b.pooled, b.e, b.d_e, sums, b.d_pooled);
            pool_back(b, sums, want_x);
        }
    }

private:
    // z_k = tanh(g (p_k, y_k)), their mean over the list, and the input of the next layer: the mean, or Z mean.
    void pool(Block& b) const {
        const std::int64_t size = sizes_.size, width = sizes_.width;
        const float *matrix = weights_ + g_.matrix, *bias = weights_ + g_.bias;
        const Vec share = splat(1.0f / static_cast<float>(size));
        std::fill(b.mean, b.mean + width * LANES, 0.0f);
        for (std::int64_t k = 0; k < size; ++k) {
            const Vec p = at(b.x, k), y = at(b.x, size + k);
            for (std::int64_t d = 0; d < width; ++d) {
                const Vec z = tanh_of(splat(matrix[2 * d]) * p + splat(matrix[2 * d + 1]) * y + splat(bias[d]));
                put(b.z, k * width + d, z);
                add(b.mean, d, z);
            }
        }
        for (std::int64_t d = 0; d < width; ++d) put(b.mean, d, at(b.mean, d) * share);
        if (sizes_.degree == 1) {
            std::copy(b.mean, b.mean + width * LANES, b.pooled);
            return;
        }
        for (std::int64_t k = 0; k < size; ++k) {
            Vec sum{};
            for (std::int64_t d = 0; d < width; ++d) sum += at(b.z, k * width + d) * at(b.mean, d);
            put(b.pooled, k, sum);
        }
    }

    void pool_back(Block& b, float* sums, bool want_x) const {
        const std::int64_t size = sizes_.size, width = sizes_.width;
        const float* matrix = weights_ + g_.matrix;
        const Vec share = splat(1.0f / static_cast<float>(size)), one = splat(1.0f);
        for (std::int64_t d = 0; d < width; ++d) {
            Vec mean = sizes_.degree == 1 ? at(b.d_pooled, d) : Vec{};
            if (sizes_.degree == 2)
                for (std::int64_t k = 0; k < size; ++k) mean += at(b.d_pooled, k) * at(b.z, k * width + d);
            put(b.d_mean, d, mean * share);
        }
        for (std::int64_t k = 0; k < size; ++k) {
            const Vec p = at(b.x, k), y = at(b.x, size + k);
            const Vec pooled = sizes_.degree == 2 ? at(b.d_pooled, k) : Vec{};
            Vec d_p{};
            for (std::int64_t d = 0; d < width; ++d) {
                const Vec z = at(b.z, k * width + d);
                const Vec d_z = (pooled * at(b.mean, d) + at(b.d_mean, d)) * (one - z * z);
                d_p += splat(matrix[2 * d]) * d_z;
                if (!sums) continue;
                add(sums, g_.matrix + 2 * d, d_z * p);
                add(sums, g_.matrix + 2 * d + 1, d_z * y);
                add(sums, g_.bias + d, d_z);
            }
            if (want_x) add(b.d_x, k, d_p);
        }
    }

    SurrogateSizes sizes_;
    const float* weights_;
    Layer v1_{}, v2_{}, g_{}, e_{}, h1_{}, h2_{};
};

void run(const SurrogateSizes& sizes, std::int64_t rows, const float* p, const float* labels, const float* weights,
         const float* gradient, const float* target, float* predicted, float* d_p, float* d_weights) {
    const std::int64_t size = sizes.size;
    const Network network(sizes, weights);
    Block block(size, sizes.width);
    Aligned<float> sums(d_weights ? sizes.weights() * LANES : 0);
    for (std::int64_t first = 0; first < rows; first += LANES) {
        const std::int64_t here = std::min<std::int64_t>(LANES, rows - first);
        for (std::int64_t lane = 0; lane < LANES; ++lane)
            for (std::int64_t k = 0; k < size; ++k) {  // lanes without a list are zero and have no gradient
                const std::int64_t from = (first + lane) * size + k;
                block.x[k * LANES + lane] = lane < here ? p[from] : 0.0f;
                block.x[(size + k) * LANES + lane] = lane < here ? labels[from] : 0.0f;
            }
        network.forward(block);
        std::copy(block.out, block.out + here, predicted + first);
        if (!gradient && !target) continue;
        for (std::int64_t lane = 0; lane < LANES; ++lane) {
            const std::int64_t row = first + lane;
            block.d_out[lane] = lane >= here ? 0.0f : target ? predicted[row] - target[row] : gradient[row];
        }
        network.backward(block, d_weights ? sums.data() : nullptr, d_p != nullptr);
        if (!d_p) continue;
        for (std::int64_t lane = 0; lane < here; ++lane)
            for (std::int64_t k = 0; k < size; ++k) d_p[(first + lane) * size + k] = block.d_x[k * LANES + lane];
    }
    for (std::int64_t i = 0; d_weights && i < sizes.weights(); ++i) {
        float sum = 0;
        for (int lane = 0; lane < LANES; ++lane) sum += sums[i * LANES + lane];
        d_weights[i] = sum;
    }
}

}  // namespace

const SurrogateKernels* surrogate_kernels() {
    static const SurrogateKernels table{run};
    return &table;
}

}  // namespace beamwood::BEAMWOOD_LEVEL
