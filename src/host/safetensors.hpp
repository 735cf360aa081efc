// The format's names of the dtypes canopy reads and writes.
#pragma once

#include "canopy/canopy.h"

namespace canopy::host {

struct DtypeName {
  canopy_dtype dtype;
  const char* name;
};
inline constexpr DtypeName kDtypes[] = {
    {CANOPY_F32, "F32"}, {CANOPY_BF16, "BF16"}, {CANOPY_F16, "F16"}, {CANOPY_I32, "I32"}, {CANOPY_I64, "I64"}};

}  // namespace canopy::host
