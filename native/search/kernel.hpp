// Scoring in float32, for each instruction set. A node's score does not depend on the nodes scored with it.
#pragma once

#include <cstdint>
#include <vector>

#include "common/dispatch.hpp"
#include "search/model.hpp"

namespace beamwood {

struct SearchKernels {
    // Folds a user's history on one level, whose nodes start at `nodes` [., D], into `space`, and meanwhile asks for the
    // cache lines `ahead`.
    void (*prepare)(const Model& model, const float* nodes, const History& history, const std::vector<const char*>& ahead,
                    Workspace& space);
    // Scores `count` nodes of that level for the user of `space`; `wanted` are their numbers within the level.
    void (*score)(const Model& model, const float* nodes, int num_history, const std::int32_t* wanted,
                  std::int64_t count, Workspace& space, float* scores);
    // `table` [size, size]: the attention weight of each node of a level as history (rows) for each as candidate, equal to
    // what `score` computes, bit for bit.
    void (*tabulate)(const Model& model, const float* nodes, int size, Workspace& space, float* table);
    // Adds to each of `scores` the product of `query` [width] with the row of `vectors` [., width] that is wanted.
    void (*add_products)(const float* vectors, int width, const float* query, const std::int32_t* wanted,
                         std::int64_t count, float* scores);
};

BEAMWOOD_DECLARE_KERNELS(SearchKernels, search_kernels)

}  // namespace beamwood
