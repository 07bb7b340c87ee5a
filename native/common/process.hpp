// The id of this process, by which a fork is detected.
#pragma once

#include <cstdint>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

namespace beamwood {

inline std::int64_t process_id() {
#if defined(__unix__) || defined(__APPLE__)
    return static_cast<std::int64_t>(getpid());
#else
    return 0;
#endif
}

}  // namespace beamwood
