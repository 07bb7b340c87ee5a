// Reading a level's table of attention weights. Included by kernel sources, into their own namespaces.
#pragma once

#include <cstdint>

#include "common/level.hpp"
#include "search/model.hpp"

namespace beamwood::BEAMWOOD_LEVEL {

// Rows [U][BLOCK] of `to`: the attention weights of `count` wanted nodes, in any order, to whole tiles of 16 columns.
BEAMWOOD_INLINE void look_up(const Workspace& space, int num_history, const std::int32_t* wanted, int count, float* to) {
    const int columns = round_up(count, 16);
    for (int u = 0; u < num_history; ++u, to += BLOCK) {
        const float* row = space.table_rows[u];
        for (int column = 0; column < columns; ++column) to[column] = row[wanted[column < count ? column : count - 1]];
    }
}

}  // namespace beamwood::BEAMWOOD_LEVEL
