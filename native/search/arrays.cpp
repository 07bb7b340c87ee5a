#include "search/arrays.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace beamwood {
namespace {

// For arrays that every search reads. Arrays with a row per node are memory-mapped and not checked here. A search throws
// if a score is not finite (search/beam.hpp), and Python can check these arrays in full.
template <class Value>
void require_finite(const Value* values, std::size_t count, const std::string& name) {
    // The sum is 0 unless a value is infinite or NaN.
    Value sum = 0;
    for (std::size_t i = 0; i < count; ++i) sum += values[i] * 0;
    require(sum == 0, name + " holds NaN or infinity");
}

template <class... Own>
bool is_there(const nb::ndarray<Own...>& array) {
    return array.is_valid();
}
bool is_there(float) { return true; }

// Where None is accepted for the tuple, nanobind also accepts None for each part.
template <class... Part>
void require_all(const std::optional<std::tuple<Part...>>& parts, const std::string& name) {
    if (!parts) return;
    const bool whole = std::apply([](const auto&... part) { return (is_there(part) && ...); }, *parts);
    require(whole, name + ": None is not an array; omit all parts or none");
}

Dense checked_layer(const LayerArrays& arrays, int inputs, const std::string& name) {
    const auto& [weight, bias, slope] = arrays;
    require(weight.shape(1) == static_cast<std::size_t>(inputs) && weight.shape(0) >= 1 && weight.shape(0) < (1u << 16) &&
                bias.shape(0) == weight.shape(0) && slope.shape(0) == weight.shape(0),
            name + ": weight, bias and slope do not match " + std::to_string(inputs) + " inputs");
    require_finite(weight.data(), weight.size(), name + ".weight");
    require_finite(bias.data(), bias.size(), name + ".bias");
    require_finite(slope.data(), slope.size(), name + ".slope");
    return Dense(inputs, static_cast<int>(weight.shape(0)), weight.data(), bias.data(), slope.data());
}

void read_layers(const Array<float, 2>& nodes, const std::vector<LayerArrays>& layers,
                 const Array<std::int64_t, 1>& windows, Model& model) {
    require(nodes.shape(1) >= 1 && nodes.shape(1) < (1u << 14), "nodes must have 1..16383 columns");
    require(layers.size() >= 3, "layers must have the two attention layers and at least one more");
    model.nodes = nodes.data();
    model.width = static_cast<int>(nodes.shape(1));
    model.num_windows = static_cast<int>(windows.shape(0));
    require(model.num_windows >= 1 && model.num_windows < (1 << 14), "windows must have 1..16383 lengths");
    for (int t = 0; t < model.num_windows; ++t) {
        const std::int64_t length = windows.data()[t];
        require(length >= 1, "windows must have lengths of 1 or more");
        require(length < (1 << 20) - static_cast<std::int64_t>(model.window_of.size()),
                "windows cover more than 1048575 history entries");
        model.window_of.insert(model.window_of.end(), length, t);
    }
    model.history_length = static_cast<int>(model.window_of.size());
    model.attention_in = checked_layer(layers[0], 3 * model.width, "attention_in");
    const Dense out = checked_layer(layers[1], model.attention_in.outputs, "attention_out");
    require(out.outputs == 1, "attention_out must have one output");
    model.attention_out.resize(model.attention_in.stride);
    for (int a = 0; a < out.inputs; ++a) model.attention_out[a] = out.weight[static_cast<std::size_t>(a) * out.stride];
    model.attention_out_bias = out.bias[0];
    model.attention_out_slope = out.slope[0];
    int inputs = (model.num_windows + 1) * model.width;
    for (std::size_t i = 2; i < layers.size(); ++i) {
        model.layers.push_back(checked_layer(layers[i], inputs, "layers." + std::to_string(i - 2)));
        inputs = model.layers.back().outputs;
        model.widest = std::max(model.widest, model.layers.back().stride);
    }
    require(inputs == 1, "the last layer must have one output");
}

void read_similarity(const SimilarityArrays& similarity, std::size_t num_nodes, Model& model) {
    const auto& [vectors, places, repeats] = similarity;
    require(vectors.shape(0) == num_nodes && vectors.shape(1) >= 1 && vectors.shape(1) < (1u << 14),
            "similarity must have one vector of 1..16383 columns per node");
    const auto length = static_cast<std::size_t>(model.history_length);
    require(places.shape(0) == length && repeats.shape(0) == length,
            "similarity must have one weight per place of the history");
    require_finite(places.data(), places.size(), "similarity.places");
    require_finite(repeats.data(), repeats.size(), "similarity.repeats");
    model.similar = vectors.data();
    model.similar_width = static_cast<int>(vectors.shape(1));
    model.places.assign(places.data(), places.data() + length);
    model.repeats.assign(repeats.data(), repeats.data() + length);
}

void read_neighbours(const NeighbourArrays& neighbours, std::size_t num_nodes, Model& model) {
    const auto& [leaves, chances, shares, places, gain] = neighbours;
    require(leaves.shape(0) == num_nodes && leaves.shape(1) >= 1 && leaves.shape(1) < (1u << 14) &&
                chances.shape(0) == leaves.shape(0) && chances.shape(1) == leaves.shape(1),
            "neighbours must have 1..16383 leaves and chances per node");
    require(shares.shape(0) == num_nodes, "neighbours must have one share per node");
    const auto length = static_cast<std::size_t>(model.history_length);
    require(places.shape(0) == length, "neighbours must have one weight per place of the history");
    require_finite(places.data(), places.size(), "neighbours.places");
    require_finite(&gain, 1, "neighbours.gain");
    model.near_leaves = leaves.data();
    model.near_chances = chances.data();
    model.near_shares = shares.data();
    model.num_near = static_cast<int>(leaves.shape(1));
    model.near_places.assign(places.data(), places.data() + length);
    model.near_gain = gain;
}

void read_light(const LightArrays& arrays, std::size_t num_nodes, Model& model) {
    const auto& [nodes, scales, biases, history, history_scales, places, up, up_bias, down, down_bias] = arrays;
    const std::size_t size = num_nodes, width = nodes.shape(1), hidden = up.shape(0);
    require(nodes.shape(0) == size && 1 <= width && width < (1u << 14) && history.shape(0) == size &&
                history.shape(1) == width && scales.shape(0) == size && biases.shape(0) == size &&
                history_scales.shape(0) == size,
            "light must have two vectors of 1..16383 columns, their scales and a bias per node");
    require(places.shape(0) == static_cast<std::size_t>(model.history_length),
            "light must have one weight per place of the history");
    require(1 <= hidden && hidden < (1u << 14) && up.shape(1) == width && up_bias.shape(0) == hidden &&
                down.shape(0) == width && down.shape(1) == hidden && down_bias.shape(0) == width,
            "the layers of light do not match its width");
    const std::pair<const Array<float, 1>*, const char*> rows[] = {
        {&places, "places"}, {&up_bias, "up_bias"}, {&down_bias, "down_bias"}};
    for (const auto& [row, name] : rows) require_finite(row->data(), row->size(), std::string("light.") + name);
    require_finite(up.data(), up.size(), "light.up");
    require_finite(down.data(), down.size(), "light.down");
    LightModel& light = model.light;
    light.nodes = nodes.data();
    light.node_scales = scales.data();
    light.biases = biases.data();
    light.history = history.data();
    light.history_scales = history_scales.data();
    light.width = static_cast<int>(width);
    light.hidden = static_cast<int>(hidden);
    light.places.assign(places.data(), places.data() + places.size());
    light.up.resize(width * hidden);
    light.down.resize(width * hidden);
    light.up_bias.resize(hidden);
    light.down_bias.resize(width);
    std::copy_n(up_bias.data(), hidden, light.up_bias.data());
    std::copy_n(down_bias.data(), width, light.down_bias.data());
    for (std::size_t at = 0; at < width; ++at)
        for (std::size_t j = 0; j < hidden; ++j) {
            light.up[at * hidden + j] = up.data()[j * width + at];
            light.down[j * width + at] = down.data()[at * hidden + j];
        }
}

}  // namespace

TreeShape shape_of(const ShapeNumbers& numbers, std::size_t num_nodes) {
    const auto& [root_fanout, branching, depth] = numbers;
    require(root_fanout >= 1 && branching >= 2 && depth >= 1 && depth <= 31, "the shape is not that of a tree");
    std::int64_t size = root_fanout, total = 0;
    // Bounded before the products, which would otherwise overflow 64 bits.
    require(branching <= MOST / 4, "the tree is too large");
    for (int j = 1; j <= depth; ++j, size *= branching) {
        require(size <= MOST / 4, "the tree is too large");
        total += size;
    }
    require(static_cast<std::size_t>(total) == num_nodes, "nodes must have one row per node of the tree");
    return {root_fanout, branching, static_cast<int>(depth)};
}

Model model_of(const ModelArrays& arrays, const std::vector<LayerArrays>& layers, const Array<std::int64_t, 1>& windows) {
    Model model;
    const std::size_t num_nodes = arrays.nodes.shape(0);
    require_all(arrays.similarity, "similarity");
    require_all(arrays.neighbours, "neighbours");
    require_all(arrays.light, "light");
    read_layers(arrays.nodes, layers, windows, model);
    if (arrays.similarity) read_similarity(*arrays.similarity, num_nodes, model);
    if (arrays.neighbours) read_neighbours(*arrays.neighbours, num_nodes, model);
    if (arrays.light) read_light(*arrays.light, num_nodes, model);
    return model;
}

}  // namespace beamwood
