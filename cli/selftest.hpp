#pragma once

namespace canopy::cli {

// canopy verify --self-test: the parity table of this machine, every implementation over tree families and hostile
// inputs (docs/math.md) at few heads. Returns the exit status.
int self_test(bool json);

}  // namespace canopy::cli
