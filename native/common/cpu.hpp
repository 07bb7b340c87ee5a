// Which of the compiled instruction sets this machine runs.
#pragma once

#include <string>
#include <vector>

namespace beamwood {

// The compiled levels that this processor runs, from the plainest to the best: "generic", "v2", "v3", "v4".
const std::vector<std::string>& levels();

// True where the AMX unit was compiled and the processor and the operating system let this process use it. The first
// call asks the kernel for permission.
bool has_amx();

// `asked`, or the best level where it is empty; throws std::invalid_argument on one that is not in levels().
std::string choose_level(const std::string& asked);

}  // namespace beamwood
