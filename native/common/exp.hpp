// Exponential and hyperbolic tangent on SIMD vectors. Included by kernel sources, like common/level.hpp.
#pragma once

#include "common/level.hpp"

namespace beamwood::BEAMWOOD_LEVEL {

// exp(x) for x <= 0 with an error of about 2 ulp; 0 below -87, where float32 underflows.
BEAMWOOD_INLINE Vec exp_of(Vec x) {
    const Vec lowest = splat(-87.0f), magic = splat(12582912.0f);  // 1.5 * 2^23: adding it rounds to an integer
    const Vec kept = x < lowest ? lowest : x;
    const Vec shifted = kept * splat(1.44269504f) + magic, whole = shifted - magic;
    const Vec f = (kept - whole * splat(0.693359375f)) - whole * splat(-2.12194440e-4f);
    Vec p = splat(1.9875691500e-4f);
    p = p * f + splat(1.3981999507e-3f);
    p = p * f + splat(8.3334519073e-3f);
    p = p * f + splat(4.1665795894e-2f);
    p = p * f + splat(1.6666665459e-1f);
    p = p * f + splat(5.0000001201e-1f);
    p = p * f * f + f + splat(1.0f);
    IntVec bits;
    std::memcpy(&bits, &shifted, sizeof bits);
    bits = (bits << 23) + 0x3f800000;  // the low bits of `shifted` are the integer
    Vec scale;
    std::memcpy(&scale, &bits, sizeof scale);
    return x < lowest ? Vec{} : p * scale;
}

// tanh(x) with an error of about 3 ulp.
BEAMWOOD_INLINE Vec tanh_of(Vec x) {
    const Vec size = x < 0 ? -x : x, square = x * x, one = splat(1.0f);
    const Vec t = exp_of(splat(-2.0f) * size), far = (one - t) / (one + t);
    // A series near 0, where 1 - t would cancel.
    Vec p = splat(-8.8632355e-3f);
    p = p * square + splat(2.1869489e-2f);
    p = p * square + splat(-5.3968254e-2f);
    p = p * square + splat(1.3333333e-1f);
    p = p * square + splat(-3.3333334e-1f);
    const Vec near = x + x * square * p;
    return size < splat(0.25f) ? near : (x < 0 ? -far : far);
}

}  // namespace beamwood::BEAMWOOD_LEVEL
