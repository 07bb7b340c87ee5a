#include "common/cpu.hpp"

#include <algorithm>
#include <stdexcept>

#if defined(__x86_64__)
#include <cpuid.h>
#endif
#if defined(BEAMWOOD_HAS_amx) && defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

namespace beamwood {

#if defined(__x86_64__)
namespace {

// Whether the processor has all of x86-64-v3. The last three by their bits, as not every compiler knows their names.
bool has_v3() {
    constexpr unsigned MOVBE = 1u << 22, F16C = 1u << 29, LZCNT = 1u << 5;
    unsigned a = 0, b = 0, first = 0, extended = 0, d = 0;
    if (!__get_cpuid(1, &a, &b, &first, &d) || !__get_cpuid(0x80000001u, &a, &b, &extended, &d)) return false;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2") && (first & MOVBE) && (first & F16C) && (extended & LZCNT);
}

}  // namespace
#endif

const std::vector<std::string>& levels() {
    static const std::vector<std::string> found = [] {
        std::vector<std::string> names;
#ifdef BEAMWOOD_HAS_generic
        names.emplace_back("generic");
#endif
#if defined(__x86_64__)
        __builtin_cpu_init();
#ifdef BEAMWOOD_HAS_v2
        if (__builtin_cpu_supports("sse4.2") && __builtin_cpu_supports("ssse3") && __builtin_cpu_supports("popcnt"))
            names.emplace_back("v2");
#endif
#ifdef BEAMWOOD_HAS_v3
        if (has_v3()) names.emplace_back("v3");
#endif
#ifdef BEAMWOOD_HAS_v4
        if (has_v3() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
            __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512dq") &&
            __builtin_cpu_supports("avx512vl"))
            names.emplace_back("v4");
#endif
#endif
        return names;
    }();
    return found;
}

bool has_amx() {
#if defined(BEAMWOOD_HAS_amx) && defined(__linux__)
    static const bool found = [] {
        unsigned a = 0, b = 0, c = 0, d = 0;
        constexpr unsigned AMX_BF16 = 1u << 22, AMX_TILE = 1u << 24;
        if (levels().empty() || levels().back() != "v4") return false;
        if (!__get_cpuid_count(7, 0, &a, &b, &c, &d) || !(d & AMX_BF16) || !(d & AMX_TILE)) return false;
        constexpr unsigned AVX512_BF16 = 1u << 5;
        if (!__get_cpuid_count(7, 1, &a, &b, &c, &d) || !(a & AVX512_BF16)) return false;
        // Linux enables tile registers only for processes that request them.
        constexpr long ARCH_REQ_XCOMP_PERM = 0x1023, XFEATURE_XTILEDATA = 18;
        return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
    }();
    return found;
#else
    return false;
#endif
}

std::string choose_level(const std::string& asked) {
    const auto& known = levels();
    if (known.empty()) throw std::invalid_argument("no compiled instruction set runs on this processor");
    if (asked.empty()) return known.back();
    if (std::find(known.begin(), known.end(), asked) == known.end()) {
        std::string message = "instruction set '" + asked + "' is not available here; available:";
        for (const auto& name : known) message += " " + name;
        throw std::invalid_argument(message);
    }
    return asked;
}

}  // namespace beamwood
