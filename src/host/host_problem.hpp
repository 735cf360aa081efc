// Problems that own their memory: made from a seed, read from and written to safetensors files, compared with the
// oracle. Used by the program, the tests and the benchmarks; not part of the installed library.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "canopy/canopy.hpp"

namespace canopy::host {

std::size_t size_of(canopy_dtype dtype);  // bytes of one element
float load(canopy_dtype dtype, const void* data, std::int64_t index);        // f32, bf16, f16
void load(canopy_dtype dtype, const void* data, std::int64_t first, std::int64_t count, float* to);  // many of them
void store(canopy_dtype dtype, void* data, std::int64_t index, float value);  // rounds to nearest even

// Contiguous, row-major, owning.
struct HostTensor {
  canopy_dtype dtype = CANOPY_F32;
  std::vector<std::int64_t> shape;
  std::vector<std::byte> bytes;

  static HostTensor make(canopy_dtype dtype, std::vector<std::int64_t> shape);
  std::int64_t elements() const;
  float get(std::int64_t index) const { return load(dtype, bytes.data(), index); }
  void set(std::int64_t index, float value) { store(dtype, bytes.data(), index, value); }
  std::int32_t* i32() { return reinterpret_cast<std::int32_t*>(bytes.data()); }
  const std::int32_t* i32() const { return reinterpret_cast<const std::int32_t*>(bytes.data()); }
  canopy_tensor view(bool leading_layer_axis = false);  // strides filled; data NULL when there are no elements
};

// A problem with its memory. Tensors by the names of docs/api.md: q k v g beta a b A_log dt_bias state parents count
// slots; an absent one has no entry.
struct HostProblem {
  std::map<std::string, HostTensor> tensors;
  canopy_state_layout layout = CANOPY_STATE_VK;
  bool l2norm = false, beta_doubled = false;
  float scale = 0;  // 0: K^-0.5

  bool has(const std::string& name) const { return tensors.count(name) != 0; }
  Result<Problem> problem();         // a view; invalid when tensors are missing or shapes disagree (says which)
  Result<VerifyParams> verify();     // the same in verify params, without outputs
};

// What to generate. Natural inputs: unit-norm keys and queries, v and S0 standard normal, gates as a trained layer's.
enum class Keys { random, equal, similar, alternating, opposite, zero, tiny };  // similar: cosine `key_cosine`
enum class Gates { natural, zero, all_strong, root_strong, root_912, eighth, half_half, inf_root, inf_middle, inf_leaf, tiny, positive };
enum class Betas { natural, zero, one, mixed };
struct ProblemSpec {
  int batch = 1, heads_k = 16, heads_v = 32, dim_k = 128, dim_v = 128;
  FamilySpec family;          // its `nodes` is T; sequence b uses seed + b
  std::vector<Tree> trees;    // if not empty: sequence b uses trees[b % size], T is the largest
  canopy_dtype input = CANOPY_BF16, state = CANOPY_F32;
  canopy_state_layout layout = CANOPY_STATE_VK;
  bool raw_gates = false, l2norm = false, ragged = false, slots = false;  // slots: a shuffled pool with a padding row
  Keys keys = Keys::random;
  double key_cosine = 0.95;
  Gates gates = Gates::natural;
  Betas betas = Betas::natural;
  double state_scale = 1.0;
  std::uint64_t seed = 0;
};
Result<HostProblem> make_problem(const ProblemSpec& spec);

// safetensors: 8-byte little-endian header length, JSON header, data. Messages give file, place, what was expected.
Result<HostProblem> parse_safetensors(std::string_view bytes, std::string_view origin);
std::string format_safetensors(const std::map<std::string, HostTensor>& tensors,
                               const std::map<std::string, std::string>& metadata);
Result<HostProblem> read_problem(const std::string& path);
// Written to a neighbouring temporary first, then renamed: a failed write leaves no half file.
Error write_file(const std::string& path, std::string_view bytes);
Error write_problem(const std::string& path, const HostProblem& problem);

// Error against the oracle over the live rows.
struct Deviation {
  double relative = 0;  // Frobenius norm of the difference over that of the reference
  double max_abs = 0;
  bool finite = true;   // false: a NaN or Inf where the reference has none (or the other way round)
};
// The same, number by number.
class DeviationSum {
 public:
  void add(double reference, double value) {
    if (!std::isfinite(reference) || !std::isfinite(value)) {
      if (std::isfinite(reference) != std::isfinite(value)) finite_ = false;
      if (std::isfinite(reference)) largest_ = std::max(largest_, std::fabs(reference));
      return;
    }
    const double off = value - reference;
    difference_ += off * off, norm_ += reference * reference;
    max_abs_ = std::max(max_abs_, std::fabs(off)), largest_ = std::max(largest_, std::fabs(reference));
  }
  void add(const double* reference, const float* values, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) add(reference[i], values[i]);
  }
  Deviation deviation() const;
  double largest() const { return largest_; }  // of the finite numbers of the reference

 private:
  double difference_ = 0, norm_ = 0, max_abs_ = 0, largest_ = 0;
  bool finite_ = true;
};
Deviation deviation(const double* reference, const float* values, std::int64_t count);

// Runs an implementation with buffers of its own: o (and stash) poisoned with NaN first.
struct VerifyRun {
  HostTensor o, u, l;
  std::vector<std::int32_t> row_status;
  std::size_t workspace_bytes = 0;
  double seconds = 0;
};
Result<VerifyRun> run_verify(HostProblem& problem, const VerifyImplementation& implementation,
                             canopy_dtype output = CANOPY_F32, bool stash = false);

}  // namespace canopy::host
