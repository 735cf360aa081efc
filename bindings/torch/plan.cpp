// plan: depth-first order, masks and block paths of a batch's trees, once per step for all layers.
#include <torch/csrc/stable/ops.h>

#include <algorithm>
#include <stdexcept>

#include "operators.hpp"
#include "stream.hpp"

namespace canopy_torch {
namespace {

// The tensor that names the batch: parents, or one of the links.
const Tensor& trees_tensor(const Maybe& parents, const Maybe& next_token, const Maybe& next_sibling) {
  const Maybe& any = parents ? parents : next_token ? next_token : next_sibling;
  if (!any) fail("parents: expected [B,T] int32, or next_token with next_sibling, got neither; pass one form");
  if (any->dim() != 2)
    fail("parents: expected [B,T] (or next_token, next_sibling of that shape), got ", any->dim(),
         " axes; add the batch axis with [None]");
  return *any;
}

struct PlanCall {
  canopy_verify_params params;
  Reader reader;

  PlanCall(const Maybe& parents, const Maybe& next_token, const Maybe& next_sibling, const Maybe& count,
           const Maybe& slot_index, int64_t slots, int64_t padding_slot)
      : reader("parents", trees_tensor(parents, next_token, next_sibling), 0) {
    const Tensor& model = trees_tensor(parents, next_token, next_sibling);
    canopy_verify_params_init(&params);
    canopy_problem& p = params.problem;
    p.device = reader.cuda() ? CANOPY_CUDA : CANOPY_CPU;
    p.batch = narrow("B", model.size(0)), p.nodes = narrow("T", model.size(1));
    const Maybe no_plan;
    reader.trees(p.trees, {parents, next_token, next_sibling, count, no_plan}, p.batch, p.nodes);
    SlotDtype dtype;
    p.slot_index = reader.slots("slot_index", slot_index, p.batch, &dtype);
    p.slot_index_dtype = dtype.value;
    // Without slots every row is a live one: the plan serves any pool.
    p.slots = slot_index ? slots : p.batch;
    p.padding_slot = padding_slot;
  }

  void run(void* plan, std::size_t length) const {
    const Place place(reader);
    canopy_error error{};
    check(canopy_plan(&params.problem, plan, length, place.stream(), &error), error);
  }
};

}  // namespace

Tensor plan(const Maybe& parents, const Maybe& next_token, const Maybe& next_sibling, const Maybe& count,
            const Maybe& slot_index, int64_t slots, int64_t padding_slot) {
  const PlanCall call(parents, next_token, next_sibling, count, slot_index, slots, padding_slot);
  // No bytes in a row: this build has no plans for the device, and canopy_plan says so.
  const int64_t shape[] = {std::max<int64_t>(call.params.problem.batch, 1), plan_row_bytes(call.reader.cuda())};
  // Zeros, so that bytes the plan does not define are the same in every run; plan_out leaves them alone.
  Tensor out = torch::stable::new_zeros(trees_tensor(parents, next_token, next_sibling), {shape, 2},
                                        torch::headeronly::ScalarType::Byte);
  call.run(out.data_ptr(), static_cast<std::size_t>(out.numel()));
  return out;
}

void plan_out(const Maybe& parents, const Maybe& next_token, const Maybe& next_sibling, const Maybe& count,
              const Maybe& slot_index, const Tensor& plan, int64_t slots, int64_t padding_slot) {
  const PlanCall call(parents, next_token, next_sibling, count, slot_index, slots, padding_slot);
  std::size_t length = 0;
  void* const bytes = call.reader.bytes("plan", plan, &length);
  call.run(bytes, length);
}

}  // namespace canopy_torch
