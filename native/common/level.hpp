// One instruction set's vectors. Included by kernel sources, which are compiled once a level with BEAMWOOD_LEVEL set.
//
// Everything a kernel source defines goes into `namespace beamwood::BEAMWOOD_LEVEL`, so that two levels never share a
// symbol. Vectors are the compiler's own (GCC, clang), no intrinsics.
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

// Unaligned load and store; memcpy becomes one instruction.
BEAMWOOD_INLINE Vec load(const float* from) {
    Vec value;
    std::memcpy(&value, from, sizeof(Vec));
    return value;
}

BEAMWOOD_INLINE void store(float* to, Vec value) { std::memcpy(to, &value, sizeof(Vec)); }

BEAMWOOD_INLINE Vec splat(float value) { return value - Vec{}; }

// PReLU: x where x > 0, slope * x elsewhere.
BEAMWOOD_INLINE Vec prelu(Vec x, Vec slope) { return x > 0 ? x : slope * x; }

}  // namespace beamwood::BEAMWOOD_LEVEL
