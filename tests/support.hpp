// Shared by the tests: where the repository's files are.
#pragma once

#include <string>

namespace canopy::test {
inline std::string source_file(const std::string& relative) { return std::string(CANOPY_SOURCE_DIR) + "/" + relative; }
}  // namespace canopy::test
