// A tree convolution (E9) in device memory, several copies of it with one plan for all, and what it should give: for
// timing, where the numbers only have to be told apart.
#pragma once

#include <vector>

#include "canopy/conv.hpp"
#include "host/device.hpp"

namespace canopy::host {

// A layer's convolution, or with several layers their commit. Inputs, pool and constants are of one type.
struct ConvSpec {
  int batch = 1, channels = 8192, width = 4, layers = 1;
  bool silu = true;
  canopy_dtype input = CANOPY_BF16;
  FamilySpec family;  // its `nodes` is T; sequence b uses seed + b
};

class ConvCopies {
 public:
  // Each copy has inputs, pool, weights and outputs of its own.
  static Result<ConvCopies> make(const ConvSpec& spec, int copies);

  ConvVerifyParams verify(int copy) const;  // of the first layer, no bias; a sequence a slot
  ConvCommitParams commit(int copy) const;  // of all layers; the accepted node is the deepest
  // So many bytes of a copy's inputs to its outputs, as a contender.
  Error copy_inputs(int copy, std::size_t bytes, void* stream) const;

  int depth() const;  // of the deepest node
  // Bytes that have to move, each once: of the convolution, of the commit.
  static double verify_bytes(const ConvSpec& spec);
  static double commit_bytes(const ConvSpec& spec);

  // o of a sequence [T,C] in fp64, and what the pool holds of it after a commit [C,W-1].
  std::vector<double> expected_output(int b) const;
  std::vector<double> expected_window(int layer, int b) const;
  // The same of the first copy, as it is now; o of this type in memory of its own or of the copy.
  Result<std::vector<float>> output(int b, canopy_dtype dtype, const DeviceMemory* apart) const;
  Result<std::vector<float>> window(int layer, int b) const;

 private:
  // A tensor's numbers are a run of the table, from `start` on and round: no two rows are alike, since the table's
  // length is prime.
  struct Place {
    std::size_t at = 0;  // bytes from the copy's first
    std::int64_t start = 0, elements = 0;
  };
  canopy_conv_problem problem(int copy) const;
  void* data(const Place& place, int copy) const;
  Error fill(const Place& place, const DeviceMemory& table);
  double number(const Place& place, std::int64_t index) const;
  std::vector<std::vector<int>> ancestors(int b) const;  // of each node, itself first, at most W
  Result<std::vector<float>> read(const DeviceMemory& memory, std::size_t at, canopy_dtype dtype,
                                  std::int64_t count) const;

  ConvSpec spec_;
  std::vector<Tree> trees_;
  std::vector<std::int32_t> leaves_;
  HostTensor table_;
  Place x_, state_, weight_;
  std::size_t output_at_ = 0, stride_ = 0;
  DeviceMemory memory_, parents_, leaf_, plan_;
};

}  // namespace canopy::host
