// Which form a bare JSON array is in (docs/trees.md, "Bare texts"): a rule for each form, and an error where two fit.
#pragma once

#include "canopy/tree.hpp"
#include "tree/json.hpp"

namespace canopy::forms {

Result<TreeFormat> detect_array(json::Value array);

}  // namespace canopy::forms
