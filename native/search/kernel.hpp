// Scoring in float32, per instruction set. A node's score does not depend on the other nodes of the call.
#pragma once

#include <cstdint>
#include <vector>

#include "common/dispatch.hpp"
#include "search/model.hpp"

namespace beamwood {

struct SearchKernels {
    // Computes the workspace of a user's history on one level, whose nodes start at `nodes` [., D], and prefetches the
    // cache lines `ahead` meanwhile.
    void (*prepare)(const Model& model, const float* nodes, const History& history, const std::vector<const char*>& ahead,
                    Workspace& space);
    // Scores `count` nodes of that level for the user of `space`; `wanted` are their indices within the level.
    void (*score)(const Model& model, const float* nodes, int num_history, const std::int32_t* wanted,
                  std::int64_t count, Workspace& space, float* scores);
    // `table` [size, size]: attention weights of each history node (rows) for each candidate of a level, bit-identical to
    // those of `score`.
    void (*tabulate)(const Model& model, const float* nodes, int size, Workspace& space, float* table);
    // Adds to `scores` the inner products of `query` [width] and the rows `wanted` of `vectors` [., width].
    void (*add_products)(const float* vectors, int width, const float* query, const std::int32_t* wanted,
                         std::int64_t count, float* scores);
};

BEAMWOOD_DECLARE_KERNELS(SearchKernels, search_kernels)

}  // namespace beamwood
