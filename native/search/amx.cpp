#include "common/level.hpp"
