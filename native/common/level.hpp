// SIMD vectors of one instruction set. Included by kernel sources, which are compiled once per level (BEAMWOOD_LEVEL).
//
// All definitions of a kernel source are in `namespace beamwood::BEAMWOOD_LEVEL`, so that levels share no symbols.
// Vectors are compiler extensions (GCC, clang), not intrinsics.
#pragma once

#include <cstdint>
#include <cstring>

#if defined(BEAMWOOD_LEVEL_v4) || defined(BEAMWOOD_LEVEL_amx)
#define BEAMWOOD_VECTOR_BYTES 64
#define BEAMWOOD_VECTOR_REGISTERS 32
#elif defined(BEAMWOOD_LEVEL_v3)
#define BEAMWOOD_VECTOR_BYTES 32
#define BEAMWOOD_VECTOR_REGISTERS 16
#else
#define BEAMWOOD_VECTOR_BYTES 16
#define BEAMWOOD_VECTOR_REGISTERS 16
#endif

#define BEAMWOOD_INLINE inline __attribute__((always_inline))

namespace beamwood::BEAMWOOD_LEVEL {

inline constexpr int LANES = BEAMWOOD_VECTOR_BYTES / 4;

typedef float Vec __attribute__((vector_size(BEAMWOOD_VECTOR_BYTES)));
typedef std::int32_t IntVec __attribute__((vector_size(BEAMWOOD_VECTOR_BYTES)));

// Unaligned load and store; memcpy compiles to one instruction.
BEAMWOOD_INLINE Vec load(const float* from) {
    Vec value;
    std::memcpy(&value, from, sizeof(Vec));
    return value;
}

BEAMWOOD_INLINE void store(float* to, Vec value) { std::memcpy(to, &value, sizeof(Vec)); }

BEAMWOOD_INLINE Vec splat(float value) { return value - Vec{}; }

// PReLU: x if x > 0, else slope * x.
BEAMWOOD_INLINE Vec prelu(Vec x, Vec slope) { return x > 0 ? x : slope * x; }

}  // namespace beamwood::BEAMWOOD_LEVEL
