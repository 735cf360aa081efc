// What must not change a bit: a poisoned branch outside its subtree, the batch a row is in, slots and rows that belong
// to nobody. And malformed rows: flagged, NaN or untouched, never a hang.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <tuple>

#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();

bool same(const Outputs& x, int bx, const Outputs& y, int by, int t) {
  return same_row(x.o, bx, y.o, by, t) && same_row(x.u, bx, y.u, by, t) && same_row(x.l, bx, y.l, by, t);
}

// Every contender's outputs, in their order.
std::vector<Outputs> run_all(HostProblem& problem) {
  std::vector<Outputs> all;
  for (const Contender& contender : contenders()) all.push_back(run(contender, problem));
  return all;
}

// What stands at `node` reaches its subtree and nothing else.
void poison_branch(Report& report, const ProblemSpec& spec, int node) {
  HostProblem clean = make(spec);
  const Tree tree = *make_family(spec.family);
  const int nodes = tree.size();
  const std::vector<Outputs> expected = run_all(clean);
  for (const float poison : {kNan, kInf, -kInf, 1e30f}) {
    HostProblem dirty = clean;
    for (const char* name : {"q", "k", "v", "g", "beta"}) {
      HostTensor& tensor = dirty.tensors.at(name);
      const std::int64_t row = tensor.elements() / nodes;
      for (std::int64_t i = node * row; i < (node + 1) * row; ++i) tensor.set(i, poison);
    }
    for (std::size_t c = 0; c < expected.size(); ++c) {
      const Contender& contender = contenders()[c];
      if (nodes > contender.most_nodes) continue;
      const Outputs got = run(contender, dirty);
      std::string wrong = expected[c].error.ok() ? got.error.message : expected[c].error.message;
      int touched = 0, first = -1;
      for (int i = 0; wrong.empty() && i < nodes; ++i)
        if (i != node && !contains(tree.ancestors(i), node) && !same(expected[c], 0, got, 0, i) && touched++ == 0)
          first = i;
      if (touched > 0) wrong = text(touched, " nodes outside the branch changed, the first is ", first);
      report.add("poisoned branch", contender.name,
                 wrong.empty() ? "" : text(describe(spec), ", ", double(poison), " at node ", node, ": ", wrong));
    }
  }
}

void poison_branches(Report& report, bool light) {
  std::vector<std::tuple<const char*, int, int>> cases = {
      {"best-first", 128, 1},   {"best-first", 128, 5}, {"best-first", 128, 60}, {"best-first", 16, 3},
      {"random", 200, 30},      {"random", 200, 120},   {"chain", 65, 40},       {"chain", 256, 16},
      {"chain", 256, 200},      {"star", 33, 9},        {"spine", 64, 20},       {"balanced", 85, 2},
      {"caterpillar", 100, 30}, {"chain", 7, 3}};
  if (light) cases = {{"best-first", 20, 3}};
  for (const auto& [family, nodes, node] : cases) poison_branch(report, base(family, nodes), node);
  ProblemSpec crowded = base("random", light ? 20 : 100);  // more heads than SMs; the emulated GPU has four
  crowded.heads_k = light ? 3 : 96, crowded.heads_v = 2 * crowded.heads_k;
  poison_branch(report, crowded, 7);
}

// "" if all that is finite of node i's o and U is right. Its root path is a problem of its own, so the tolerance is
// that of all of the path's finite results.
std::string right_or_not_finite(const Contender& contender, const Outputs& out, const Truth& truth, const Tree& tree,
                                int i) {
  const auto judge = [&](const char* name, const std::vector<double>& reference, const HostTensor& values) {
    const std::int64_t width = static_cast<std::int64_t>(reference.size()) / tree.size();
    double off = 0, size = 0;
    const auto add = [&](int node) {
      for (std::int64_t at = node * width; at < (node + 1) * width; ++at) {
        const double r = reference[at], x = values.get(at);
        if (!std::isfinite(x)) continue;
        size += r * r;
        if (node == i) off += (x - r) * (x - r);
      }
    };
    for (int node = 0; node < i; ++node)
      if (contains(tree.ancestors(i), node)) add(node);
    add(i);
    return std::sqrt(off) <= contender.relative * std::sqrt(size)
               ? ""
               : text(name, " of node ", i, " is finite and wrong by ", std::sqrt(off / size));
  };
  const std::string wrong = judge("o", truth.o, out.o);
  return wrong.empty() && out.stashed ? judge("U", truth.u, out.u) : wrong;
}

// Part `i` of `parts` equal ones of a tensor.
void multiply(HostTensor& tensor, float factor, int parts = 1, int i = 0) {
  const std::int64_t each = tensor.elements() / parts;
  for (std::int64_t at = i * each; at < (i + 1) * each; ++at) tensor.set(at, factor * tensor.get(at));
}

// Finite numbers too large for 16-bit operands: an answer is right or it is not finite, and no bit changes where they
// do not reach: outside a query's own node, a key's or value's subtree. Small states and values leave room for large
// keys.
void oversized(Report& report, bool light) {
  std::vector<std::tuple<const char*, int, int>> trees = {
      {"best-first", 40, 3}, {"chain", 70, 20}, {"random", 100, 33}, {"random", 14, 4}};
  if (light) trees = {{"chain", 36, 16}, {"random", 14, 4}};
  const std::tuple<const char*, float, double> rows[] = {
      {"q", 1e4f, 1},  {"q", 3e6f, 1},    {"q", 1e7f, 1},    {"q", 1e30f, 1}, {"k", 1e4f, 1}, {"k", 1e7f, 1},
      {"k", 1e30f, 1}, {"k", 1e5f, 1e-7}, {"k", 1e7f, 1e-7}, {"v", 1e4f, 1},  {"v", 1e7f, 1}, {"v", 1e30f, 1}};
  for (const auto& [family, nodes, node] : trees)
    for (const double state_scale : {1., 1e-7}) {
      ProblemSpec spec = base(family, nodes);
      spec.state_scale = state_scale;
      HostProblem clean = make(spec);
      if (state_scale < 1) multiply(clean.tensors.at("v"), 1e-3f);
      const Tree tree = *make_family(spec.family);
      const std::vector<Outputs> expected = run_all(clean);
      for (const auto& [name, factor, scale] : rows) {
        if (scale != state_scale) continue;
        HostProblem large = clean;
        multiply(large.tensors.at(name), factor, nodes, node);
        const Truth truth = solve(*large.problem());
        for (std::size_t c = 0; c < expected.size(); ++c) {
          const Contender& contender = contenders()[c];
          if (nodes > contender.most_nodes) continue;
          const Outputs got = run(contender, large);
          std::string wrong = expected[c].error.ok() ? got.error.message : expected[c].error.message;
          for (int i = 0; wrong.empty() && i < nodes; ++i) {
            if (i == node || (*name != 'q' && contains(tree.ancestors(i), node)))
              wrong = right_or_not_finite(contender, got, truth, tree, i);
            else if (!same(expected[c], 0, got, 0, i))
              wrong = text("node ", i, " changed");
          }
          report.add(
              "oversized", contender.name,
              wrong.empty() ? "" : text(describe(spec), ", ", name, " of node ", node, " x ", factor, ": ", wrong));
        }
      }
    }
  // Keys of a length that one product bears and its powers do not.
  for (const int nodes : {3, light ? 18 : 40})
    for (const float length : {10.f, 20.f, 200.f}) {
      ProblemSpec spec = base("chain", nodes);
      spec.keys = host::Keys::equal, spec.gates = host::Gates::zero, spec.betas = host::Betas::one;
      spec.state_scale = 1e-7;
      HostProblem problem = make(spec);
      multiply(problem.tensors.at("k"), length), multiply(problem.tensors.at("v"), 1e-3f);
      const Tree tree = *make_family(spec.family);
      const Truth truth = solve(*problem.problem());
      for (const Contender& contender : contenders()) {
        const Outputs out = run(contender, problem);
        std::string wrong = out.error.message;
        for (int i = 0; wrong.empty() && i < nodes; ++i) wrong = right_or_not_finite(contender, out, truth, tree, i);
        report.add("oversized", contender.name,
                   wrong.empty() ? "" : text(nodes, " keys of length ", length, ": ", wrong));
      }
    }
}

// Row b of a batch as a problem of its own.
HostProblem alone(const HostProblem& batch, int b) {
  HostProblem one = batch;
  const std::int64_t B = batch.tensors.at("q").shape[0];
  for (auto& [name, tensor] : one.tensors) {
    if (name == "state" || name == "A_log" || name == "dt_bias") continue;
    const std::size_t each = tensor.bytes.size() / B;
    tensor.shape[0] = 1;
    tensor.bytes.assign(batch.tensors.at(name).bytes.begin() + b * each,
                        batch.tensors.at(name).bytes.begin() + (b + 1) * each);
  }
  return one;
}

void batches(Report& report, bool light) {
  for (const auto& [nodes, heads] :
       light ? std::vector<std::pair<int, int>>{{7, 16}, {20, 2}}
             : std::vector<std::pair<int, int>>{{100, 4}, {7, 16}, {16, 16}, {230, 2}, {60, 12}}) {
    for (const int batch : {3, 16}) {
      ProblemSpec spec = base("random", nodes);
      spec.batch = batch, spec.ragged = true, spec.slots = true, spec.heads_k = heads / 2, spec.heads_v = heads;
      HostProblem problem = make(spec);
      const Problem view = *problem.problem();
      for (const Contender& contender : contenders()) {
        if (nodes > contender.most_nodes) continue;
        const Outputs together = run(contender, problem);
        std::string wrong = together.error.message;
        for (int b = 0; wrong.empty() && b<batch; b += batch> 3 ? 5 : 1) {
          HostProblem one = alone(problem, b);
          const Outputs single = run(contender, one);
          wrong = single.error.message;
          for (int t = 0; wrong.empty() && t < live_nodes(view, b); ++t)
            if (!same(together, b, single, 0, t)) wrong = text("row ", b, ", node ", t, " has other bits alone");
        }
        report.add("batch", contender.name, wrong.empty() ? "" : describe(spec) + ": " + wrong);
      }
    }
  }
}

// Bytes of the plans of all rows, from memory of 0xff.
Result<std::vector<std::byte>> plans_of(HostProblem& problem) {
  auto device = DeviceProblem::make(problem);
  if (!device) return device.error();
  const Problem& view = device->view();
  DeviceMemory memory(plans_bytes(view));
  std::vector<std::byte> out(memory.bytes());
  if (Error error = memory.fill(0xff); !error.ok()) return error;
  if (Error error = make_plans(view, memory.data(), memory.bytes()); !error.ok()) return error;
  if (Error error = host::device_synchronize(); !error.ok()) return error;
  if (Error error = memory.download(out.data(), out.size()); !error.ok()) return error;
  return out;
}

// The plans of B trees are B times the plan of one, whatever B: Python keeps them as a tensor [B, bytes of one].
void rows_of_plans(Report& report) {
  for (const int batch : {1, 2, 3, 4, 16}) {
    ProblemSpec spec = base("random", 60);
    spec.batch = batch, spec.ragged = true, spec.slots = true;
    HostProblem problem = make(spec);
    const auto together = plans_of(problem);
    std::string wrong = together ? "" : together.error().message;
    for (int b = 0; wrong.empty() && b < batch; ++b) {
      HostProblem one = alone(problem, b);
      const auto single = plans_of(one);
      if (!single) {
        wrong = single.error().message;
      } else if (together->size() != batch * single->size() || single->size() % 64 != 0) {
        wrong = text(together->size(), " bytes for ", batch, " trees, ", single->size(), " for one");
      } else if (std::memcmp(together->data() + b * single->size(), single->data(), single->size()) != 0) {
        wrong = text("row ", b, " has another plan alone");
      }
    }
    report.add("batch", "plan", wrong.empty() ? "" : describe(spec) + ": " + wrong);
  }
}

void strangers(Report& report, int nodes) {
  ProblemSpec spec = base("random", nodes);
  spec.batch = 4, spec.ragged = true, spec.slots = true;
  HostProblem clean = make(spec), dirty = clean;
  const Problem view = *clean.problem();
  HostTensor& state = dirty.tensors.at("state");
  const std::int64_t each = state.elements() / view.slots;
  for (std::int64_t slot = 0; slot < view.slots; ++slot) {
    bool used = false;
    for (int b = 0; b < view.batch; ++b) used |= slot_of(view, view.slot_index, b) == slot && live_nodes(view, b) > 0;
    for (std::int64_t i = 0; !used && i < each; ++i) state.set(slot * each + i, kNan);
  }
  for (const char* name : {"q", "k", "v", "g", "beta"}) {
    HostTensor& tensor = dirty.tensors.at(name);
    const std::int64_t row = tensor.elements() / (view.batch * view.nodes);
    for (int b = 0; b < view.batch; ++b)
      for (std::int64_t i = (b * view.nodes + live_nodes(view, b)) * row; i < (b + 1) * view.nodes * row; ++i)
        tensor.set(i, kNan);
  }
  HostTensor& parents = dirty.tensors.at("parents");
  for (int b = 0; b < view.batch; ++b)
    for (int t = live_nodes(view, b); t < view.nodes; ++t) parents.i32()[b * view.nodes + t] = 0x7fffffff;
  for (const Contender& contender : contenders()) {
    const Outputs x = run(contender, clean), y = run(contender, dirty);
    std::string wrong = x.error.ok() ? y.error.message : x.error.message;
    if (wrong.empty() && (x.o.bytes != y.o.bytes || x.u.bytes != y.u.bytes || x.status != y.status))
      wrong = "NaN in unused slots or rows past the count changed something";
    report.add("unused memory", contender.name, wrong);
  }
}

void malformed(Report& report) {
  for (const int nodes : {6, 40}) {
    ProblemSpec spec = base("random", nodes);
    spec.batch = 8;
    HostProblem problem = make(spec);
    HostProblem clean = problem;
    std::int32_t* const parents = problem.tensors.at("parents").i32();
    parents[1 * nodes + 3] = 3;        // its own parent
    parents[2 * nodes + 4] = 1 << 30;  // out of range
    parents[3 * nodes + 5] = -1;       // a second root
    parents[4 * nodes + 2] = 5;        // after its child
    HostTensor count = HostTensor::make(CANOPY_I32, {8}), slots = count;
    for (int b = 0; b < 8; ++b) count.i32()[b] = nodes, slots.i32()[b] = b;
    count.i32()[5] = -2, count.i32()[6] = nodes + 1, slots.i32()[7] = 8;
    const std::int32_t expected[] = {0, 1, 1, 1, 1, CANOPY_ROW_BAD_COUNT, CANOPY_ROW_BAD_COUNT, CANOPY_ROW_BAD_SLOT};
    const RunOptions options{.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
      params.problem.trees.count = on_device(count.i32(), 8, held);
      params.problem.slot_index = on_device(slots.i32(), 8, held);
    }};
    for (const Contender& contender : contenders()) {
      const Outputs out = run(contender, problem, options), good = run(contender, clean);
      std::string wrong = out.error.message;
      for (int b = 0; wrong.empty() && b < 8; ++b) {
        if (out.status[b] != expected[b])
          wrong = text("row_status[", b, "] = ", out.status[b], ", expected ", expected[b]);
        for (int t = 0; wrong.empty() && t < nodes; ++t) {
          const std::int64_t width = out.o.elements() / (8 * nodes), first = (b * nodes + t) * width;
          if (expected[b] == 0 && !same(out, b, good, b, t)) wrong = text("the healthy row ", b, " changed");
          if (expected[b] > 1 && (!untouched_row(out.o, b, t) || !untouched_row(out.u, b, t)))
            wrong = text("the skipped row ", b, " was written");
          for (std::int64_t i = first; expected[b] == 1 && i < first + width; ++i)
            if (!std::isnan(out.o.get(i)) || untouched_row(out.o, b, t))
              wrong = text("row ", b, ", node ", t, " is not NaN");
        }
      }
      report.add("malformed", contender.name, wrong);
    }
  }
  // Links that run in circles, leave the row, or reach a node twice.
  HostProblem problem = make(base("chain", 5));
  const std::int32_t children[][5] = {
      {1, 2, 3, 4, 1}, {1, 2, 3, 99, -1}, {1, 2, 1, 4, -1}, {2, 3, 4, -1, -1}, {1, 1, 1, 1, 1}};
  const std::int32_t siblings[][5] = {
      {-1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1}, {-1, -1, -1, -1, -1}, {-1, -1, 1, -1, -7}, {0, 0, 0, 0, 0}};
  for (int i = 0; i < 5; ++i) {
    const RunOptions options{.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
      params.problem.trees.parents = nullptr;
      params.problem.trees.next_token = on_device(children[i], 5, held);
      params.problem.trees.next_sibling = on_device(siblings[i], 5, held);
    }};
    for (const Contender& contender : contenders()) {
      const Outputs out = run(contender, problem, options);
      report.add("malformed", contender.name,
                 !out.error.ok() ? out.error.message
                 : out.status[0] == CANOPY_ROW_BAD_TREE && std::isnan(out.o.get(0))
                     ? ""
                     : text("bad links ", i, ": row_status = ", out.status[0]));
    }
  }
}

// All 64 bits of an index count: past the pool, or below it, where the low half is the slot of nobody.
void wide_indices(Report& report, bool light) {
  for (const int nodes : {6, 20}) {
    if (light && nodes == 6) continue;
    ProblemSpec spec = base("random", nodes);
    spec.batch = 4;
    HostProblem problem = make(spec);
    const std::int64_t slots[] = {0, (std::int64_t{1} << 32) + 1, 2 - (std::int64_t{1} << 32), 3};
    const std::int32_t expected[] = {0, CANOPY_ROW_BAD_SLOT, 0, 0};
    const RunOptions options{.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
      params.problem.slot_index = on_device(slots, 4, held);
      params.problem.slot_index_dtype = CANOPY_I64;
    }};
    for (const Contender& contender : contenders()) {
      const Outputs out = run(contender, problem, options), good = run(contender, problem);
      std::string wrong = out.error.ok() ? good.error.message : out.error.message;
      for (int b = 0; wrong.empty() && b < 4; ++b) {
        if (out.status[b] != expected[b])
          wrong = text("row_status[", b, "] = ", out.status[b], ", expected ", expected[b]);
        for (int t = 0; wrong.empty() && t < nodes; ++t) {
          const bool skipped = b == 1 || b == 2;
          if (skipped && (!untouched_row(out.o, b, t) || !untouched_row(out.u, b, t)))
            wrong = text("row ", b, " of slot ", slots[b], " was written");
          if (!skipped && !same(out, b, good, b, t)) wrong = text("row ", b, " has other bits beside rows to skip");
        }
      }
      report.add("64-bit indices", contender.name, wrong);
    }
  }
}

}  // namespace

void test_isolation(Report& report, bool light) {
  poison_branches(report, light);
  oversized(report, light);
  batches(report, light);
  rows_of_plans(report);
  for (const int nodes : {14, 40}) strangers(report, nodes);
  malformed(report);
  wide_indices(report, light);
}

}  // namespace canopy::gpu
