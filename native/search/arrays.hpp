// The arrays of a searcher as Python gives them: checked, whatever Python has checked, and read into a `Model`.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <tuple>
#include <vector>

#include "common/border.hpp"
#include "search/beam.hpp"

namespace beamwood {

template <class Value, int Dimensions>
using Array = AlignedArray<const Value, Dimensions>;
using LayerArrays = std::tuple<Array<float, 2>, Array<float, 1>, Array<float, 1>>;
// Vectors of the nodes, weights of the history's places, and the scores of a seen leaf by place.
using SimilarityArrays = std::tuple<Array<float, 2>, Array<float, 1>, Array<float, 1>>;
using NeighbourArrays =
    std::tuple<Array<std::int32_t, 2>, Array<float, 2>, Array<float, 1>, Array<float, 1>, float>;
// Nodes with scales and biases, history vectors with scales, weights of the places, and two layers.
using LightArrays = std::tuple<Array<std::int8_t, 2>, Array<float, 1>, Array<float, 1>, Array<std::int8_t, 2>,
                               Array<float, 1>, Array<float, 1>, Array<float, 2>, Array<float, 1>, Array<float, 2>,
                               Array<float, 1>>;
using ShapeNumbers = std::tuple<std::int64_t, std::int64_t, std::int64_t>;

// The largest count, and four times the largest number of nodes.
inline constexpr std::int64_t MOST = std::int64_t{1} << 31;

// Arrays with a row per node, which the model reads in place: this keeps the caller's alive. Copies would be large.
struct ModelArrays {
    Array<float, 2> nodes;
    std::optional<SimilarityArrays> similarity;
    std::optional<NeighbourArrays> neighbours;
    std::optional<LightArrays> light;
};

// The shape of a tree of `num_nodes` nodes. Throws std::invalid_argument, as does `model_of`.
TreeShape shape_of(const ShapeNumbers& numbers, std::size_t num_nodes);

// The model without its tables; `layers`: the two of the attention, then the MLP's.
Model model_of(const ModelArrays& arrays, const std::vector<LayerArrays>& layers, const Array<std::int64_t, 1>& windows);

}  // namespace beamwood
