// Picks a kernel's function table by instruction set.
//
// BEAMWOOD_DECLARE_KERNELS(Table, name) declares `const Table* name()` in the namespace of each compiled level.
// BEAMWOOD_PICK_KERNELS(name, level) returns the table of a level.
#pragma once

#include <stdexcept>
#include <string>

#ifdef BEAMWOOD_HAS_generic
#define BEAMWOOD_ON_generic(...) __VA_ARGS__
#else
#define BEAMWOOD_ON_generic(...)
#endif
#ifdef BEAMWOOD_HAS_v2
#define BEAMWOOD_ON_v2(...) __VA_ARGS__
#else
#define BEAMWOOD_ON_v2(...)
#endif
#ifdef BEAMWOOD_HAS_v3
#define BEAMWOOD_ON_v3(...) __VA_ARGS__
#else
#define BEAMWOOD_ON_v3(...)
#endif
#ifdef BEAMWOOD_HAS_v4
#define BEAMWOOD_ON_v4(...) __VA_ARGS__
#else
#define BEAMWOOD_ON_v4(...)
#endif
#ifdef BEAMWOOD_HAS_amx
#define BEAMWOOD_ON_amx(...) __VA_ARGS__
#else
#define BEAMWOOD_ON_amx(...)
#endif

#define BEAMWOOD_DECLARE_KERNELS(Table, name)                  \
    BEAMWOOD_ON_generic(namespace generic { const Table* name(); }) \
    BEAMWOOD_ON_v2(namespace v2 { const Table* name(); })      \
    BEAMWOOD_ON_v3(namespace v3 { const Table* name(); })      \
    BEAMWOOD_ON_v4(namespace v4 { const Table* name(); })

#define BEAMWOOD_PICK_KERNELS(name, level)                                                \
    [](const std::string& wanted) {                                                       \
        BEAMWOOD_ON_generic(if (wanted == "generic") return ::beamwood::generic::name();) \
        BEAMWOOD_ON_v2(if (wanted == "v2") return ::beamwood::v2::name();)                \
        BEAMWOOD_ON_v3(if (wanted == "v3") return ::beamwood::v3::name();)                \
        BEAMWOOD_ON_v4(if (wanted == "v4") return ::beamwood::v4::name();)                \
        throw std::invalid_argument("no kernels for instruction set " + wanted);          \
    }(level)
