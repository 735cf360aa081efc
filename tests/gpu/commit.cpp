// Commits against E1 along the path in fp64: methods, types, layouts, several layers in one launch, destinations,
// second slots, rows that are skipped and whose slots keep their bits.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

constexpr canopy_commit_method kMethods[] = {CANOPY_COMMIT_RESOLVE, CANOPY_COMMIT_STASH, CANOPY_COMMIT_REPLAY};

struct CommitSpec {
  ProblemSpec problem;
  int layers = 1;
  bool moved = false, tracked = false, gates = true;  // dst_slot; track_leaf; whether stash gets gates beside l
  canopy_dtype index = CANOPY_I32;
  int padding = -1;      // the padding slot; that many slots and one more, in front of the others, belong to nobody
  bool options = false;  // beta doubled, another epsilon, 16-bit A_log and dt_bias
};

// Slots of an index tensor on the device. Negative ones become padding: the padding slot itself and, in 64 bits,
// numbers whose low half is a slot.
const void* indices(const CommitSpec& spec, const std::vector<std::int32_t>& slots, std::vector<DeviceMemory>& held) {
  std::vector<std::int64_t> wide;
  std::vector<std::int32_t> narrow;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    const std::int64_t low = spec.padding + 1;
    wide.push_back(slots[i] >= 0 ? slots[i] : i % 2 ? low - (std::int64_t{1} << 32) : spec.padding);
    narrow.push_back(slots[i] >= 0 ? slots[i] : spec.padding);
  }
  if (spec.index == CANOPY_I64) return on_device(wide.data(), wide.size(), held);
  return on_device(narrow.data(), narrow.size(), held);
}

// Puts the slots that belong to nobody in front, and gives every layer slot indices and the options.
void prepare(const CommitSpec& spec, HostProblem& layer) {
  HostTensor& state = layer.tensors.at("state");
  const int front = spec.padding + 1;
  const std::size_t each = state.bytes.size() / state.shape[0];
  state.bytes.insert(state.bytes.begin(), front * each, std::byte{0xff}), state.shape[0] += front;
  if (!layer.has("slots")) {
    layer.tensors["slots"] = HostTensor::make(CANOPY_I32, {spec.problem.batch});
    for (int b = 0; b < spec.problem.batch; ++b) layer.tensors["slots"].i32()[b] = b;
  }
  for (int b = 0; b < spec.problem.batch; ++b) {
    std::int32_t& slot = layer.tensors["slots"].i32()[b];
    slot = slot < 0 ? -1 : slot + front;
  }
  if (!spec.options) return;
  layer.beta_doubled = true;
  for (const auto& [name, dtype] : {std::pair{"A_log", CANOPY_BF16}, {"dt_bias", CANOPY_F16}}) {
    HostTensor& from = layer.tensors.at(name);
    HostTensor to = HostTensor::make(dtype, from.shape);
    for (std::int64_t i = 0; i < to.elements(); ++i) to.set(i, from.get(i));
    from = to;
  }
}
void set_options(const CommitSpec& spec, Problem& p) {
  p.padding_slot = spec.padding;
  if (spec.options) p.l2norm_eps = 0.25f;
}

// What every slot of every layer should hold afterwards: the new state of [K,V], or nothing where it must keep its
// bits.
using Expected = std::vector<std::vector<std::vector<double>>>;  // [layer][slot * HV + hv]

// All layers' tensor of one name, one behind the other, on the device.
void join(std::vector<HostProblem>& layers, const std::string& name, canopy_tensor& view,
          std::vector<DeviceMemory>& held) {
  if (!layers[0].has(name)) return;
  std::vector<std::byte> bytes;
  for (HostProblem& layer : layers) {
    const auto& from = layer.tensors.at(name).bytes;
    bytes.insert(bytes.end(), from.begin(), from.end());
  }
  view.data = const_cast<std::byte*>(on_device(bytes.data(), bytes.size(), held));
  view.stride[0] = layers[0].tensors.at(name).elements();
}

std::string check_state(const Problem& p, const std::vector<HostProblem>& layers, const Expected& expected,
                        const std::vector<std::byte>& pool, double& worst) {
  const HostTensor& before = layers[0].tensors.at("state");
  const std::int64_t K = p.dim_k, V = p.dim_v, each = K * V, heads = before.elements() / each;
  const double rounding = before.dtype == CANOPY_F32 ? 0 : before.dtype == CANOPY_BF16 ? 0x1p-8 : 0x1p-11;
  for (std::size_t layer = 0; layer < layers.size(); ++layer)
    for (std::int64_t head = 0; head < heads; ++head) {
      const std::vector<double>& want = expected[layer][head];
      const std::size_t size = each * host::size_of(before.dtype);
      const std::byte* const got = &pool[(layer * heads + head) * size];
      if (want.empty()) {
        if (std::memcmp(got, &layers[layer].tensors.at("state").bytes[head * size], size) != 0)
          return text("layer ", layer, ", slot ", head / p.heads_v, " must keep its bits and changed");
        continue;
      }
      double difference = 0, squares = 0;
      for (std::int64_t k = 0; k < K; ++k)
        for (std::int64_t v = 0; v < V; ++v) {
          const double x = host::load(before.dtype, got, p.state_layout == CANOPY_STATE_VK ? v * K + k : k * V + v);
          difference += (x - want[k * V + v]) * (x - want[k * V + v]), squares += want[k * V + v] * want[k * V + v];
        }
      const double relative = difference == 0 ? 0 : std::sqrt(difference / squares);
      worst = std::max(worst, relative / (1e-5 + rounding));
      if (!(relative <= 1e-5 + rounding))
        return text("layer ", layer, ", slot ", head / p.heads_v, ": relative ", relative);
    }
  return {};
}

void check_commit(Report& report, const std::string& group, const CommitSpec& spec) {
  std::vector<HostProblem> layers;
  for (int l = 0; l < spec.layers; ++l) {
    ProblemSpec each = spec.problem;
    layers.push_back(make(each));
    each.seed += 1000 + l;
    if (l == 0) continue;
    HostProblem other = make(each);  // its own activations and states, the first layer's trees and slots
    for (const char* name : {"k", "v", "g", "beta", "a", "b", "A_log", "dt_bias", "state"})
      if (other.has(name)) layers.back().tensors[name] = other.tensors.at(name);
  }
  for (HostProblem& layer : layers) prepare(spec, layer);
  Problem view = *layers[0].problem();
  set_options(spec, view);
  const int B = view.batch;
  std::vector<std::int32_t> leaf(B), track_leaf(B), dst(B), track(B), source(B);
  std::vector<Tree> trees;
  for (int b = 0; b < B; ++b) {
    std::vector<std::int32_t> parents(std::max(live_nodes(view, b), 1), -1);
    if (live_nodes(view, b) > 0) row_parents(view, b, parents.data());
    trees.push_back(*Tree::from_parents(parents));
    const auto depths = trees[b].depths();
    const int deepest = static_cast<int>(std::max_element(depths.begin(), depths.end()) - depths.begin());
    leaf[b] = b % 4 == 0 ? deepest : b % 4 == 1 ? trees[b].size() / 2 : b % 4 == 2 ? 0 : b % 8 == 3 ? -1 : view.nodes;
    track_leaf[b] = b % 3 == 2 ? -1 : trees[b].size() - 1;
    const std::int64_t slot = slot_of(view, view.slot_index, b);
    source[b] = static_cast<std::int32_t>(slot);
    // Slots past those of the rows belong to nobody: make() leaves at least as many as there are rows.
    dst[b] = spec.moved ? static_cast<std::int32_t>(slot < 0 ? -1 : view.slots + b) : static_cast<std::int32_t>(slot);
    track[b] = static_cast<std::int32_t>(b % 4 == 1 && spec.moved ? slot : view.slots + B + b);  // or over the source
    // A destination or second slot that is padding is left out; the other is written.
    if (spec.padding >= 0 && spec.moved && b == 4) dst[b] = -1;
    if (spec.padding >= 0 && b == 6) track[b] = -1;
  }
  const std::int64_t slots = view.slots + 2 * B;
  for (HostProblem& layer : layers) {  // room for destinations
    HostTensor& state = layer.tensors.at("state");
    state.bytes.resize(state.bytes.size() / view.slots * slots, std::byte{0xff});
    state.shape[0] = slots;
  }
  const Problem wide = *layers[0].problem();

  Expected expected(spec.layers, std::vector<std::vector<double>>(slots * view.heads_v));
  std::vector<HostTensor> u, l;
  for (int layer = 0; layer < spec.layers; ++layer) {
    Problem p = *layers[layer].problem();
    set_options(spec, p);
    const Truth truth = solve([&] {
      Problem q = p;
      if (!q.q.data) q.q = q.k;
      return q;
    }());
    u.push_back(HostTensor::make(CANOPY_F32, {B, p.nodes, p.heads_v, p.dim_v}));
    l.push_back(HostTensor::make(CANOPY_F32, {B, p.nodes, p.heads_v}));
    for (std::size_t i = 0; i < truth.u.size(); ++i) u.back().set(i, static_cast<float>(truth.u[i]));
    for (std::size_t i = 0; i < truth.l.size(); ++i) l.back().set(i, static_cast<float>(truth.l[i]));
    for (int b = 0; b < B; ++b) {
      const int live = live_nodes(p, b);
      if (leaf[b] < 0 || leaf[b] >= live) continue;
      for (int hv = 0; hv < p.heads_v; ++hv) {
        const auto head = reference::load_head(p, b, hv, trees[b]);
        if (dst[b] >= 0) expected[layer][dst[b] * p.heads_v + hv] = reference::commit_replay(head, leaf[b]);
        if (spec.tracked && track[b] >= 0 && track_leaf[b] >= 0 && track_leaf[b] < live)
          expected[layer][track[b] * p.heads_v + hv] = reference::commit_replay(head, track_leaf[b]);
      }
    }
  }
  for (const auto& implementation : cuda_commit_implementations()) {
    for (const canopy_commit_method method : kMethods) {
      std::vector<DeviceMemory> held;
      held.reserve(64);
      auto device = DeviceProblem::make(layers[0]);
      if (!device) return report.add(group, implementation.name, device.error().message);
      CommitParams params = commit_params();
      params.problem = device->view();
      params.method = method, params.layers = spec.layers;
      if (!implementation.refuses(params).empty()) continue;
      Problem& p = params.problem;
      set_options(spec, p);
      p.slot_index = indices(spec, source, held), p.slot_index_dtype = spec.index;
      join(layers, "k", p.k, held), join(layers, "v", p.v, held), join(layers, "g", p.g, held),
          join(layers, "beta", p.beta, held);
      join(layers, "a", p.a, held), join(layers, "b", p.b, held), join(layers, "A_log", p.a_log, held);
      join(layers, "dt_bias", p.dt_bias, held), join(layers, "state", p.state, held);
      const std::size_t pool_at = held.size() - 1;
      if (method == CANOPY_COMMIT_STASH) {
        std::vector<HostProblem> stash(spec.layers);
        for (int layer = 0; layer < spec.layers; ++layer) stash[layer].tensors = {{"u", u[layer]}, {"l", l[layer]}};
        params.stash_u = u[0].view(), params.stash_l = l[0].view();
        join(stash, "u", params.stash_u, held), join(stash, "l", params.stash_l, held);
        p.v = {};
        if (!spec.gates) p.g = p.beta = p.a = p.b = p.a_log = p.dt_bias = {};
      }
      params.leaf = on_device(leaf.data(), B, held);
      if (spec.moved) params.dst_slot = indices(spec, dst, held);
      if (spec.tracked)
        params.track_leaf = on_device(track_leaf.data(), B, held), params.track_slot = indices(spec, track, held);
      DeviceMemory status(B * 4);
      params.row_status = static_cast<std::int32_t*>(status.data());
      const auto bytes = canopy::commit_workspace(params, implementation.name);
      std::string wrong = bytes ? "" : bytes.error().message;
      double worst = 0;
      if (wrong.empty()) {
        DeviceMemory workspace(*bytes);
        (void)workspace.fill(0xff);
        Error error = canopy::commit(params, implementation.name, workspace.data(), *bytes);
        if (error.ok()) error = host::device_synchronize();
        wrong = error.message;
        std::vector<std::byte> pool(held[pool_at].bytes());
        std::vector<std::int32_t> flags(B, -1);
        (void)held[pool_at].download(pool.data(), pool.size());
        (void)status.download(flags.data(), B * 4);
        if (wrong.empty()) wrong = check_state(wide, layers, expected, pool, worst);
        for (int b = 0; wrong.empty() && b < B; ++b)
          if (flags[b] != 0) wrong = text("row_status[", b, "] = ", flags[b]);
      }
      report.add(group, implementation.name, wrong.empty() ? "" : describe(spec.problem) + ": " + wrong, worst);
    }
  }
}

void methods(Report& report, bool light) {
  for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
    for (const canopy_dtype input : {CANOPY_BF16, CANOPY_F32, CANOPY_F16})
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV})
        for (const int k : {64, 128}) {
          if (light && (k == 64 || input != CANOPY_BF16)) continue;
          CommitSpec spec{.problem = base("random", light ? 20 : 50), .layers = 2};
          spec.problem.batch = 5, spec.problem.slots = spec.problem.ragged = true;
          spec.problem.state = state, spec.problem.input = input, spec.problem.layout = layout, spec.problem.dim_k = k;
          spec.moved = spec.tracked = layout == CANOPY_STATE_KV || input == CANOPY_F32;
          spec.gates = k == 128;
          spec.problem.raw_gates = input == CANOPY_F16 && k == 128, spec.problem.l2norm = state == CANOPY_BF16;
          check_commit(report, "commit types", spec);
        }
}

// Slots in 64 bits, padding slots other than -1.
void slots(Report& report, bool light) {
  for (const canopy_dtype index : {CANOPY_I64, CANOPY_I32})
    for (const int padding : {-1, 0, 2})
      for (const bool moved : {false, true}) {
        if (light && (moved != (padding == 0) || (index == CANOPY_I64) == (padding == 2))) continue;
        CommitSpec spec{.problem = base("random", 20), .layers = 2, .moved = moved, .tracked = moved};
        spec.problem.batch = 7, spec.problem.slots = true, spec.problem.ragged = !moved;
        spec.index = index, spec.padding = padding;
        check_commit(report, "commit slots", spec);
      }
}

void options(Report& report, bool light) {
  for (const canopy_dtype input : {CANOPY_BF16, CANOPY_F32, CANOPY_F16})
    for (const bool l2norm : {true, false}) {
      if (light && (input != CANOPY_BF16 || !l2norm)) continue;
      CommitSpec spec{.problem = base("random", light ? 14 : 50), .layers = 2, .options = true};
      spec.problem.batch = 3, spec.problem.input = input, spec.problem.raw_gates = true, spec.problem.l2norm = l2norm;
      check_commit(report, "commit options", spec);
    }
}

void paths(Report& report, bool light) {
  for (const int nodes : {1, 2, 7, 8, 9, 16, 17, 24, 33, 128, 256}) {
    if (light && nodes != 9) continue;
    for (int keys = 0; keys <= static_cast<int>(host::Keys::tiny); ++keys) {
      CommitSpec spec{.problem = base("chain", nodes)};
      spec.problem.keys = static_cast<host::Keys>(keys);
      spec.problem.l2norm = spec.problem.keys == host::Keys::tiny;
      if (keys > 0) spec.problem.gates = host::Gates::zero, spec.problem.betas = host::Betas::one;
      check_commit(report, "commit paths", spec);
    }
    for (int gates = 0; gates <= static_cast<int>(host::Gates::positive); ++gates) {
      CommitSpec spec{.problem = base("chain", nodes)};
      spec.problem.gates = static_cast<host::Gates>(gates);
      check_commit(report, "commit paths", spec);
    }
  }
  for (const double scale : {1e4, 1e-4}) {
    CommitSpec spec{.problem = base("best-first", 64)};
    spec.problem.state_scale = scale, spec.problem.batch = 8, spec.moved = spec.tracked = true;
    check_commit(report, "commit paths", spec);
  }
}

// More tiles than CTAs: each CTA takes several in turn, the next one's inputs on their way.
void many_tiles(Report& report) {
  for (const char* family : {"random", "chain"})
    for (const auto& [batch, heads] : {std::pair{100, 2}, {60, 8}}) {
      CommitSpec spec{.problem = base(family, 20), .layers = 2};
      spec.problem.batch = batch, spec.problem.heads_k = heads / 2, spec.problem.heads_v = heads;
      spec.problem.slots = spec.problem.ragged = true;
      spec.moved = spec.tracked = batch == 60;
      check_commit(report, "commit tiles", spec);
    }
}

}  // namespace

void test_commit(Report& report, bool light) {
  methods(report, light);
  slots(report, light);
  options(report, light);
  if (!light) many_tiles(report);
  paths(report, light);
}

}  // namespace canopy::gpu
