// What a launch of a variant has to know, as a constant of its module; scripts/tune_tiles.py reads it there too.
#pragma once

#include <cstdint>

namespace canopy::tiles {

struct CtaRecord {
  char magic[8] = {'c', 'a', 'n', 'o', 'p', 'y', 'C', 'T'};
  std::int32_t architecture, threads, columns, heads, ctas, shared_bytes;
};
static_assert(sizeof(CtaRecord) == 32);

}  // namespace canopy::tiles
