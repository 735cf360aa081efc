// The two halves of check(): what can be said from the structs alone, and what takes reading the rows (CPU only).
#pragma once

#include "canopy/problem.hpp"

namespace canopy {

// Every row must be clean: the first bad one as a message with the sequence, the index and the values.
Error check_rows(const Problem& problem);
Error check_rows(const CommitParams& params);

// What planning reads of a problem: shapes, trees, slots. Bad rows are left to the calls that use the plan.
Error check_plan(const Problem& problem);

// A contiguous f32 `o` that is never read or written: for questions asked before the outputs exist.
Tensor stand_in_output(const Problem& problem);

// One tensor against its documented shape. `extent` are the axes after the layer axis, `count` of them.
struct TensorRule {
  const char* name;
  const char* shape;  // "[B,T,H,K]", for messages
  std::int64_t extent[4];
  int count;
  unsigned dtypes;       // bit d: canopy_dtype d is taken
  bool written = false;  // elements must not overlap
};
Error check_tensor(const Tensor& tensor, const TensorRule& rule, int layers);

inline constexpr unsigned kFloats = 1u << CANOPY_F32 | 1u << CANOPY_BF16 | 1u << CANOPY_F16;

// "x is NULL: expected [B,T,C]", and why.
Error missing(const char* name, const char* shape, const char* why);
// A present tensor against its rule; an absent one is an error where it is needed.
Error need(const Tensor& tensor, const TensorRule& rule, int layers, bool needed);

}  // namespace canopy
