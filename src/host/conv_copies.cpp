#include "host/conv_copies.hpp"

#include <algorithm>
#include <cmath>

#include "host/device_bench.hpp"
#include "host/random.hpp"
#include "message.hpp"

namespace canopy::host {
namespace {

constexpr std::int64_t kNumbers = 1048573;  // of the table, a prime
constexpr std::size_t kAlign = 256;         // as cudaMalloc aligns
constexpr std::size_t aligned(std::size_t bytes) { return (bytes + kAlign - 1) / kAlign * kAlign; }

Error upload(DeviceMemory& memory, const std::vector<std::int32_t>& numbers) {
  memory = DeviceMemory(numbers.size() * sizeof(numbers[0]));
  return memory.upload(numbers.data(), memory.bytes());
}

}  // namespace

double ConvCopies::verify_bytes(const ConvSpec& spec) {
  const double C = spec.channels, rows = double(spec.batch) * spec.family.nodes;
  return (rows * C * 2 + spec.batch * C * (spec.width - 1) + C * spec.width) * size_of(spec.input);
}
double ConvCopies::commit_bytes(const ConvSpec& spec) {
  return 2.0 * spec.layers * spec.batch * spec.channels * (spec.width - 1) * size_of(spec.input);
}

Result<ConvCopies> ConvCopies::make(const ConvSpec& spec, int copies) {
  if (const std::string why = device_missing(); !why.empty())
    return Error::unsupported(text("device = 1 (cuda): ", why, "; use the CPU"));
  ConvCopies made;
  made.spec_ = spec;
  std::vector<std::int32_t> parents;
  for (int b = 0; b < spec.batch; ++b) {
    FamilySpec family = spec.family;
    family.seed += static_cast<std::uint64_t>(b);
    auto tree = make_family(family);
    if (!tree) return tree.error();
    parents.insert(parents.end(), tree->parents().begin(), tree->parents().end());
    const auto& depths = tree->depths();
    made.leaves_.push_back(static_cast<std::int32_t>(std::max_element(depths.begin(), depths.end()) - depths.begin()));
    made.trees_.push_back(std::move(*tree));
  }
  made.table_ = HostTensor::make(spec.input, {kNumbers});
  const Stream random(spec.family.seed, 0);
  for (std::int64_t i = 0; i < kNumbers; ++i) made.table_.set(i, random.normal(static_cast<std::uint64_t>(i)));

  const std::int64_t rows = std::int64_t{spec.batch} * spec.family.nodes, C = spec.channels, taps = spec.width - 1;
  const std::size_t size = size_of(spec.input);
  const auto place = [&](Place& one, std::int64_t start, std::int64_t elements) {
    one = {made.stride_, start, elements};
    made.stride_ += aligned(static_cast<std::size_t>(elements) * size);
  };
  place(made.x_, 0, spec.layers * rows * C);
  place(made.state_, kNumbers / 3, spec.layers * spec.batch * C * taps);
  place(made.weight_, kNumbers / 2, C * spec.width);
  made.output_at_ = made.stride_;
  made.stride_ += aligned(std::max(rows * C, spec.layers * spec.batch * C * taps) * size);
  made.memory_ = DeviceMemory(made.stride_ * static_cast<std::size_t>(copies));
  if (!made.memory_.data())
    return Error{CANOPY_INTERNAL, text("device memory: ", copies, " copies of ", made.stride_,
                                       " bytes are not to be had; ask for fewer sequences, nodes or layers")};
  DeviceMemory table(made.table_.bytes.size());
  if (Error error = table.upload(made.table_.bytes.data(), table.bytes()); !error.ok()) return error;
  if (Error error = made.memory_.fill(0); !error.ok()) return error;
  for (const Place* one : {&made.x_, &made.state_, &made.weight_})
    if (Error error = made.fill(*one, table); !error.ok()) return error;
  for (int copy = 1; copy < copies; ++copy)
    if (Error error = device_copy(static_cast<char*>(made.memory_.data()) + copy * made.stride_, made.memory_.data(),
                                  made.stride_, nullptr);
        !error.ok())
      return error;
  if (Error error = upload(made.parents_, parents); !error.ok()) return error;
  if (Error error = upload(made.leaf_, made.leaves_); !error.ok()) return error;

  const canopy_conv_problem p = made.problem(0);
  Problem rows_of_trees = verify_params().problem;
  rows_of_trees.device = CANOPY_CUDA, rows_of_trees.batch = p.batch, rows_of_trees.nodes = p.nodes;
  rows_of_trees.trees = p.trees, rows_of_trees.slots = p.slots;
  made.plan_ = DeviceMemory(plans_bytes(rows_of_trees));
  if (Error error = make_plans(rows_of_trees, made.plan_.data(), made.plan_.bytes()); !error.ok()) return error;
  if (Error error = device_synchronize(); !error.ok()) return error;
  return made;
}

Error ConvCopies::fill(const Place& place, const DeviceMemory& table) {
  const auto size = static_cast<std::int64_t>(size_of(spec_.input));
  char* const to = static_cast<char*>(data(place, 0));
  for (std::int64_t done = 0; done < place.elements;) {
    const std::int64_t from = (place.start + done) % kNumbers, count = std::min(kNumbers - from, place.elements - done);
    if (Error error = device_copy(to + done * size, static_cast<const char*>(table.data()) + from * size,
                                  static_cast<std::size_t>(count * size), nullptr);
        !error.ok())
      return error;
    done += count;
  }
  return device_synchronize();  // before the table goes
}

void* ConvCopies::data(const Place& place, int copy) const {
  return static_cast<char*>(memory_.data()) + stride_ * static_cast<std::size_t>(copy) + place.at;
}

canopy_conv_problem ConvCopies::problem(int copy) const {
  canopy_conv_problem p = conv_verify_params().problem;
  const std::int64_t B = spec_.batch, T = spec_.family.nodes, C = spec_.channels, taps = spec_.width - 1;
  p.device = CANOPY_CUDA;
  p.batch = spec_.batch, p.nodes = spec_.family.nodes, p.channels = spec_.channels, p.width = spec_.width;
  p.trees.parents = static_cast<const std::int32_t*>(parents_.data());
  p.trees.row_stride = T;
  p.trees.plan = plan_.data();
  p.x = {data(x_, copy), spec_.input, 0, {B * T * C, T * C, C, 1}};
  p.state = {data(state_, copy), spec_.input, 0, {B * C * taps, C * taps, taps, 1}};
  p.slots = B;
  return p;
}

ConvVerifyParams ConvCopies::verify(int copy) const {
  ConvVerifyParams params = conv_verify_params();
  params.problem = problem(copy);
  params.weight = {data(weight_, copy), spec_.input, 0, {0, spec_.width, 1}};
  params.silu = spec_.silu;
  params.o = params.problem.x;
  params.o.data = data({output_at_}, copy);
  return params;
}

ConvCommitParams ConvCopies::commit(int copy) const {
  ConvCommitParams params = conv_commit_params();
  params.problem = problem(copy);
  params.layers = spec_.layers;
  params.leaf = static_cast<const std::int32_t*>(leaf_.data());
  return params;
}

Error ConvCopies::copy_inputs(int copy, std::size_t bytes, void* stream) const {
  return device_copy(data({output_at_}, copy), data(x_, copy), bytes, stream);
}

int ConvCopies::depth() const {
  int deepest = 0;
  for (const Tree& tree : trees_) deepest = std::max(deepest, tree.depth());
  return deepest;
}

double ConvCopies::number(const Place& place, std::int64_t index) const {
  return table_.get((place.start + index) % kNumbers);
}

std::vector<std::vector<int>> ConvCopies::ancestors(int b) const {
  std::vector<std::vector<int>> all;
  for (int node = 0; node < spec_.family.nodes; ++node) {
    std::vector<int> path;
    for (int at = node; at >= 0 && static_cast<int>(path.size()) < spec_.width; at = trees_[b].parents()[at])
      path.push_back(at);
    all.push_back(std::move(path));
  }
  return all;
}

std::vector<double> ConvCopies::expected_output(int b) const {
  const std::int64_t T = spec_.family.nodes, C = spec_.channels, W = spec_.width, taps = W - 1;
  std::vector<double> out(static_cast<std::size_t>(T * C));
  const auto paths = ancestors(b);
#pragma omp parallel for
  for (std::int64_t node = 0; node < T; ++node) {
    const std::vector<int>& path = paths[static_cast<std::size_t>(node)];
    const auto known = static_cast<std::int64_t>(path.size());
    for (std::int64_t c = 0; c < C; ++c) {
      double y = 0;
      for (std::int64_t back = 0; back < W; ++back) {  // past the root: the committed inputs, oldest first
        const double h = back < known ? number(x_, (b * T + path[static_cast<std::size_t>(back)]) * C + c)
                                      : number(state_, (b * C + c) * taps + taps - 1 - (back - known));
        y += h * number(weight_, c * W + W - 1 - back);
      }
      out[static_cast<std::size_t>(node * C + c)] = spec_.silu ? y / (1 + std::exp(-y)) : y;
    }
  }
  return out;
}

std::vector<double> ConvCopies::expected_window(int layer, int b) const {
  const std::int64_t B = spec_.batch, T = spec_.family.nodes, C = spec_.channels, taps = spec_.width - 1;
  const std::vector<int> path = ancestors(b)[static_cast<std::size_t>(leaves_[static_cast<std::size_t>(b)])];
  const auto known = static_cast<std::int64_t>(path.size());
  std::vector<double> out(static_cast<std::size_t>(C * taps));
  for (std::int64_t c = 0; c < C; ++c)
    for (std::int64_t back = 0; back < taps; ++back)
      out[static_cast<std::size_t>(c * taps + taps - 1 - back)] =
          back < known
              ? number(x_, ((layer * B + b) * T + path[static_cast<std::size_t>(back)]) * C + c)
              : number(state_, ((layer * B + b) * C + c) * taps + taps - 1 - (back - known));
  return out;
}

Result<std::vector<float>> ConvCopies::read(const DeviceMemory& memory, std::size_t at, canopy_dtype dtype,
                                            std::int64_t count) const {
  HostTensor held = HostTensor::make(dtype, {count});
  if (Error error = memory.download(held.bytes.data(), held.bytes.size(), at); !error.ok()) return error;
  std::vector<float> numbers(static_cast<std::size_t>(count));
  load(dtype, held.bytes.data(), 0, count, numbers.data());
  return numbers;
}

Result<std::vector<float>> ConvCopies::output(int b, canopy_dtype dtype, const DeviceMemory* apart) const {
  const std::int64_t count = std::int64_t{spec_.family.nodes} * spec_.channels;
  const std::size_t at = static_cast<std::size_t>(b * count) * size_of(dtype);
  return apart ? read(*apart, at, dtype, count) : read(memory_, output_at_ + at, dtype, count);
}

Result<std::vector<float>> ConvCopies::window(int layer, int b) const {
  const std::int64_t count = std::int64_t{spec_.channels} * (spec_.width - 1);
  const std::int64_t before = (std::int64_t{layer} * spec_.batch + b) * count;
  return read(memory_, state_.at + static_cast<std::size_t>(before) * size_of(spec_.input), spec_.input, count);
}

}  // namespace canopy::host
