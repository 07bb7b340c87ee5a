// Detection of the compiled instruction sets that the CPU supports.
#pragma once

#include <string>
#include <vector>

namespace beamwood {

// The compiled levels that the CPU supports, in ascending order: "generic", "v2", "v3", "v4".
const std::vector<std::string>& levels();

// Whether AMX kernels were compiled, and the CPU and the operating system support them. The first call requests
// permission from the kernel.
bool has_amx();

// `asked`, or the best level if it is empty. Throws std::invalid_argument if it is not in levels().
std::string choose_level(const std::string& asked);

}  // namespace beamwood
