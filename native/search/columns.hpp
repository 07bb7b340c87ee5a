// The column layout of a block of nodes. Included by kernel sources, into their own namespaces.
#pragma once

#include <algorithm>
#include <cstdint>

#include "common/level.hpp"
#include "search/model.hpp"

namespace beamwood::BEAMWOOD_LEVEL {

// `inputs` [D][BLOCK] = the wanted nodes, padded to whole vectors by repeating the last node.
BEAMWOOD_INLINE void gather(const float* nodes, const std::int32_t* wanted, int count, int width, float* inputs) {
    const int columns = round_up(count, LANES);
    for (int column = 0; column < columns; ++column) {
        const float* node = nodes + static_cast<std::size_t>(wanted[std::min(column, count - 1)]) * width;
        for (int d = 0; d < width; ++d) inputs[static_cast<std::size_t>(d) * BLOCK + column] = node[d];
    }
}

// `to` [U][BLOCK]: attention weights of the wanted nodes from the level's table; `wanted` may be in any order.
BEAMWOOD_INLINE void look_up(const Workspace& space, int num_history, const std::int32_t* wanted, int count, float* to) {
    const int columns = round_up(count, LANES);
    for (int u = 0; u < num_history; ++u, to += BLOCK) {
        const float* row = space.table_rows[u];
        for (int column = 0; column < columns; ++column) to[column] = row[wanted[std::min(column, count - 1)]];
    }
}

}  // namespace beamwood::BEAMWOOD_LEVEL
