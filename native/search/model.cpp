#include "search/model.hpp"

#include <algorithm>

#include "search/amx.hpp"

namespace beamwood {

Dense::Dense(int inputs, int outputs, const float* weight, const float* bias, const float* slope)
    : inputs(inputs), outputs(outputs), stride(padded(outputs)) {
    this->weight.resize(static_cast<std::size_t>(inputs) * stride);
    this->bias.resize(stride);
    this->slope.resize(stride);
    for (int row = 0; row < outputs; ++row) {
        for (int column = 0; column < inputs; ++column)
            this->weight[static_cast<std::size_t>(column) * stride + row] =
                weight[static_cast<std::size_t>(row) * inputs + column];
        this->bias[row] = bias[row];
        this->slope[row] = slope[row];
    }
}

Workspace::Workspace(const Model& model) {
    const std::size_t length = model.history_length, width = model.width;
    const std::size_t stride = model.attention_in.stride;
    const Dense& layer = model.layers.front();
    history.resize(length * width);
    constant.resize(length * stride);
    folded.resize(width * stride);
    first.resize((width + length) * layer.stride);
    inputs.resize((width + length) * BLOCK);
    for (auto& output : outputs) output.resize(static_cast<std::size_t>(model.widest) * BLOCK);
    const float* node_part = layer.weight.data() + static_cast<std::size_t>(model.num_windows) * width * layer.stride;
    std::copy_n(node_part, width * layer.stride, first.data());
}

AmxWorkspace::AmxWorkspace(const Model& model, const AmxModel& amx) {
    const std::size_t length = model.history_length, width = model.width;
    const std::size_t groups = (length + amx.group - 1) / amx.group;
    const std::size_t most = std::max<std::size_t>(width + length, model.widest);
    const std::size_t column_tiles = BLOCK / 16, pair_tile = 2 * TileMatrix::TILE;
    folded.resize(groups * amx.group_tiles * amx.depth_tiles * pair_tile);
    linear.resize((length + 15) / 16 * amx.depth_tiles * pair_tile);
    first.resize(model.layers.front().outputs, static_cast<int>(width + length));
    nodes.resize(column_tiles * amx.depth_tiles * pair_tile);
    inputs.resize(column_tiles * ((most + 31) / 32) * pair_tile);
    sums.resize(256 * 8);
    row.resize(32 * amx.depth_tiles);
    constants.resize(static_cast<std::size_t>(3) * (model.attention_in.stride + 16));
    // Tiles are written whole, beyond the end of a layer.
    values.resize((most + 32) * BLOCK);
}

}  // namespace beamwood
