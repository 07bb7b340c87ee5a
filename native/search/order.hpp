// A sort key per node: by score, ties by the lower node.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

namespace beamwood {

// Larger keys are better.
inline std::uint64_t key_of(float score, std::int32_t node) {
    score += 0.0f;  // so that -0 equals 0
    std::uint32_t bits;
    std::memcpy(&bits, &score, sizeof bits);
    bits = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
    return static_cast<std::uint64_t>(bits) << 32 | (0xffffffffu - static_cast<std::uint32_t>(node));
}

inline std::int32_t node_of(std::uint64_t key) { return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(key)); }

inline float score_of(std::uint64_t key) {
    std::uint32_t bits = static_cast<std::uint32_t>(key >> 32);
    bits = bits & 0x80000000u ? bits & 0x7fffffffu : ~bits;
    float score;
    std::memcpy(&score, &bits, sizeof score);
    return score;
}

inline void keep_best(std::vector<std::uint64_t>& keys, std::int64_t k) {
    if (static_cast<std::int64_t>(keys.size()) <= k) return;
    std::nth_element(keys.begin(), keys.begin() + k, keys.end(), std::greater<>());
    keys.resize(k);
}

}  // namespace beamwood
