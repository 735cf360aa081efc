// Defaults of the parameter structs.
#include <cstring>

#include "canopy/canopy.h"

namespace {

void init(canopy_problem& problem) {
  problem.abi_version = CANOPY_ABI_VERSION;
  problem.l2norm_eps = 1e-6f;
  problem.padding_slot = -1;
  problem.slot_index_dtype = CANOPY_I32;
}

}  // namespace

extern "C" void canopy_verify_params_init(canopy_verify_params* params) {
  std::memset(params, 0, sizeof *params);
  init(params->problem);
}

extern "C" void canopy_commit_params_init(canopy_commit_params* params) {
  std::memset(params, 0, sizeof *params);
  init(params->problem);
  params->layers = 1;
}
