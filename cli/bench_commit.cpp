// canopy bench --device cuda --commit: commit of all layers in one launch beside a device copy. Each method's states
// are compared with E1 in fp64 after a call of its own, before anything is timed.
#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "bench_device.hpp"
#include "host/device_copies.hpp"

namespace canopy::cli {
namespace {

using host::DeviceMemory, host::HostProblem;

constexpr int kPath = 5;  // depth of the accepted leaf: six nodes

// Params of layer l alone.
canopy_tensor of_layer(canopy_tensor tensor, int l) {
  const std::size_t bytes = tensor.stride[0] * host::size_of(static_cast<canopy_dtype>(tensor.dtype));
  tensor.data = static_cast<char*>(tensor.data) + l * bytes;
  return tensor;
}

// The layers of one launch on the device. All but the last have the same inputs, so that what a kernel takes from
// another layer than its own shows in the first or in the last.
class Layers {
 public:
  static Result<Layers> make(const host::ProblemSpec& spec, int count);

  const CommitParams& params() const { return params_; }  // without a method
  HostProblem& first() { return problems_.front(); }
  const DeviceMemory& states() const { return states_; }
  std::size_t state_bytes() const { return count_ * layer_bytes(); }
  // Error of the states that one run leaves, over the first and the last sequence of the first and the last layer.
  Result<Check> check(const CommitImplementation& implementation, const CommitParams& own);
  int checked() const { return static_cast<int>(sequences_.size()); }

 private:
  HostProblem& at(int layer) { return problems_[layer == count_ - 1 ? problems_.size() - 1 : 0]; }
  std::size_t layer_bytes() const { return problems_.front().tensors.at("state").bytes.size(); }
  std::vector<int> ends() const { return count_ > 1 ? std::vector<int>{0, count_ - 1} : std::vector<int>{0}; }
  Error upload(const char* name, canopy_tensor& view, DeviceMemory& memory);
  Error restore_states();
  Error make_stash(VerifyParams verify);

  int count_ = 0;
  std::vector<HostProblem> problems_;  // of the layers before the last, of the last
  std::optional<host::DeviceCopies> planned_;
  CommitParams params_ = commit_params();
  DeviceMemory inputs_[4], states_, leaves_, u_, l_;
  std::vector<std::int32_t> leaf_;
  std::vector<int> sequences_;                 // those that are checked
  std::vector<std::vector<double>> expected_;  // their states, end by end
};

Error Layers::upload(const char* name, canopy_tensor& view, DeviceMemory& memory) {
  const std::size_t bytes = first().tensors.at(name).bytes.size();
  memory = DeviceMemory(count_ * bytes);
  if (!memory.data()) return {CANOPY_INTERNAL, fmt::format("device memory: {} layers of {}", count_, name)};
  for (int l = 0; l < count_; ++l)
    if (Error error = memory.upload(at(l).tensors.at(name).bytes.data(), bytes, l * bytes); !error.ok()) return error;
  // A layer stride of nothing is refused, so equal layers stand one behind the other too.
  view.data = memory.data(), view.stride[0] = first().tensors.at(name).elements();
  return {};
}

Error Layers::restore_states() {
  for (const int l : ends())
    if (Error error = states_.upload(at(l).tensors.at("state").bytes.data(), layer_bytes(), l * layer_bytes());
        !error.ok())
      return error;
  return {};
}

// u and l as verification in fp32 leaves them.
Error Layers::make_stash(VerifyParams verify) {
  const Problem& p = params_.problem;
  const std::int64_t row = std::int64_t{p.heads_v} * p.dim_v, nodes = std::int64_t{p.batch} * p.nodes;
  u_ = DeviceMemory(count_ * nodes * row * sizeof(float)),
  l_ = DeviceMemory(count_ * nodes * p.heads_v * sizeof(float));
  if (!u_.data() || !l_.data()) return {CANOPY_INTERNAL, "device memory: the stash is not to be had"};
  params_.stash_u = {u_.data(), CANOPY_F32, 0, {nodes * row, p.nodes * row, row, p.dim_v, 1}};
  params_.stash_l = {l_.data(), CANOPY_F32, 0, {nodes * p.heads_v, std::int64_t{p.nodes} * p.heads_v, p.heads_v, 1, 0}};
  verify.precision = CANOPY_PRECISION_FP32;
  for (int l = 0; l < count_; ++l) {
    for (canopy_tensor Problem::*tensor : {&Problem::k, &Problem::v, &Problem::g, &Problem::beta, &Problem::state})
      verify.problem.*tensor = of_layer(p.*tensor, l);
    verify.stash_u = of_layer(params_.stash_u, l), verify.stash_l = of_layer(params_.stash_l, l);
    const auto choice = choose(verify);
    if (!choice) return choice.error();
    DeviceMemory workspace(choice->implementation->workspace(verify));
    if (Error error = choice->implementation->run(verify, workspace.data(), nullptr); !error.ok()) return error;
    if (Error error = host::device_synchronize(); !error.ok()) return error;
  }
  return {};
}

Result<Layers> Layers::make(const host::ProblemSpec& spec, int count) {
  Layers made;
  made.count_ = count;
  host::ProblemSpec other = spec;
  other.seed += 1;  // other numbers, the same trees
  for (const auto& each : {spec, other}) {
    auto problem = host::make_problem(each);
    if (!problem) return problem.error();
    made.problems_.push_back(std::move(*problem));
    if (count == 1) break;
  }
  HostProblem& first = made.first();
  auto planned = host::DeviceCopies::make(first, first.tensors.at("q").dtype, 1);
  if (!planned) return planned.error();
  made.planned_ = std::move(*planned);
  const auto view = first.problem();
  if (!view) return view.error();
  const auto trees = read_trees(*view);
  if (!trees) return trees.error();
  for (const Tree& tree : trees->trees) {
    const auto depths = tree.depths();
    const auto leaf = std::find(depths.begin(), depths.end(), kPath) - depths.begin();
    if (leaf == static_cast<std::ptrdiff_t>(depths.size()))
      return Error::invalid(fmt::format("commit: expected trees of depth {} or more", kPath));
    made.leaf_.push_back(static_cast<std::int32_t>(leaf));
  }
  made.sequences_ = sequences_to_check(trees->live, 2);

  CommitParams& params = made.params_;
  const VerifyParams verify = made.planned_->params(0);
  params.problem = verify.problem, params.layers = count;
  Problem& p = params.problem;
  const std::tuple<const char*, canopy_tensor*, DeviceMemory*> tensors[] = {{"k", &p.k, &made.inputs_[0]},
                                                                            {"v", &p.v, &made.inputs_[1]},
                                                                            {"g", &p.g, &made.inputs_[2]},
                                                                            {"beta", &p.beta, &made.inputs_[3]},
                                                                            {"state", &p.state, &made.states_}};
  for (const auto& [name, tensor, memory] : tensors)
    if (Error error = made.upload(name, *tensor, *memory); !error.ok()) return error;
  made.leaves_ = DeviceMemory(made.leaf_.size() * 4);
  if (Error error = made.leaves_.upload(made.leaf_.data(), made.leaf_.size() * 4); !error.ok()) return error;
  params.leaf = static_cast<const std::int32_t*>(made.leaves_.data());
  if (Error error = made.make_stash(verify); !error.ok()) return error;

  for (const int l : made.ends()) {
    const auto of_host = made.at(l).problem();
    if (!of_host) return of_host.error();
    for (const int b : made.sequences_)
      made.expected_.push_back(committed_state(*of_host, trees->trees[b], b, made.leaf_[b]));
  }
  return made;
}

Result<Check> Layers::check(const CommitImplementation& implementation, const CommitParams& own) {
  if (Error error = restore_states(); !error.ok()) return error;
  if (Error error = implementation.run(own, nullptr, nullptr); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  const canopy_dtype dtype = first().tensors.at("state").dtype;
  const std::size_t slot = layer_bytes() / own.problem.slots;
  std::vector<std::byte> bytes(slot);
  std::vector<float> state(slot / host::size_of(dtype));
  host::DeviationSum sum;
  auto expected = expected_.begin();
  for (const int l : ends())
    for (const int b : sequences_) {
      if (Error error = states_.download(bytes.data(), slot, l * layer_bytes() + b * slot); !error.ok()) return error;
      host::load(dtype, bytes.data(), 0, static_cast<std::int64_t>(state.size()), state.data());
      sum.add((expected++)->data(), state.data(), static_cast<std::int64_t>(state.size()));
    }
  return verdict(sum, dtype, implementation.relative_tolerance, implementation.absolute_tolerance);
}

}  // namespace

Result<BenchShape> measure_commit_on_device(const Effort& effort, host::ProblemSpec spec, int layers) {
  spec.family.name = "best-first", spec.family.nodes = 64;
  auto made = Layers::make(spec, layers);
  if (!made) return made.error();
  auto shape = shape_of(made->first(), spec, fmt::format("commit, {} layers", layers));
  if (!shape) return shape.error();
  shape->view = made->params().problem, shape->depth = kPath, shape->checked = made->checked();
  shape->bytes = 2.0 * static_cast<double>(made->state_bytes());

  std::vector<host::TimedLaunch> launches;
  std::vector<BenchCell> cells;
  for (const auto& implementation : commit_implementations())
    for (const auto method : {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY}) {
      CommitParams own = made->params();
      own.method = method;
      if (implementation.device != CANOPY_CUDA || !implementation.refuses(own).empty()) continue;
      const auto check = made->check(implementation, own);
      if (!check) return Error{check.error().status, std::string(implementation.name) + ": " + check.error().message};
      launches.push_back({implementation.name, [own, &implementation](int, void* stream) {
                            return implementation.run(own, nullptr, stream);
                          }});
      BenchCell cell;
      cell.contender = implementation.name, cell.check = *check;
      cell.error_of = fmt::format("state in {}", name_of(spec.state));
      cells.push_back(cell);
    }
  DeviceMemory other(made->state_bytes());
  if (Error error = other.fill(0); !error.ok()) return error;
  launches.push_back({"copy", [&](int, void* stream) {
                        return host::device_copy(other.data(), made->states().data(), made->state_bytes(), stream);
                      }});
  BenchCell copy;
  copy.contender = "copy", copy.computes = false;
  cells.push_back(copy);
  Effort warm = effort;
  warm.warm = true, warm.cold = false;  // 24 layers' states are many times the L2
  if (Error error = time_both(warm, launches, cells, *shape); !error.ok()) return error;
  return shape;
}

}  // namespace canopy::cli
