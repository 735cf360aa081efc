// Every contender against the oracle: families and sizes, hostile inputs, types, forms, strides, far slots.
#include <cstring>

#include "gpu/harness.hpp"
#include "message.hpp"

namespace canopy::gpu {
namespace {

using host::Betas, host::Gates, host::Keys;

void trees(Report& report, bool light) {
  const std::vector<int> sizes =
      light ? std::vector<int>{3, 17}
            : std::vector<int>{1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 32, 33, 63, 64, 65, 100, 127, 128, 129, 255, 256};
  for (const char* family : family_names())
    for (const int nodes : sizes) {
      const ProblemSpec spec = base(family, nodes);
      if (make_family(spec.family)) check_all(report, "families", spec);
    }
  if (light) {  // folded and spilt root paths
    for (const char* family : {"chain", "spine", "random"}) check_all(report, "families", base(family, 250));
    return;
  }
  for (int seed = 0; seed < 12; ++seed) {  // labels in any topological order
    ProblemSpec spec = base("random", 20 + 20 * seed);
    spec.family.seed = spec.seed = 100 + seed;
    const Tree tree = *make_family(spec.family);
    spec.trees = {*relabel(tree, random_topological_labels(tree, 7 + seed))};
    check_all(report, "relabelled", spec);
  }
}

void inputs(Report& report, bool light) {
  std::vector<std::pair<const char*, int>> shapes = {{"chain", 8},    {"chain", 17},  {"chain", 64},
                                                     {"chain", 255},  {"chain", 256}, {"best-first", 128},
                                                     {"random", 200}, {"spine", 65}};
  if (light) shapes = {{"chain", 17}};
  for (const auto& [family, nodes] : shapes) {
    const auto with = [&, family = family, nodes = nodes](const std::string& group, auto change) {
      ProblemSpec spec = base(family, nodes);
      change(spec);
      check_all(report, group, spec);
    };
    const int step = light ? 5 : 1;
    for (int keys = 0; keys <= static_cast<int>(Keys::tiny); keys += step)
      for (const double cosine : {0.95, 0.99})
        with("keys", [&](ProblemSpec& spec) {
          spec.keys = static_cast<Keys>(keys), spec.key_cosine = cosine;
          spec.gates = Gates::zero, spec.betas = Betas::one;
          spec.l2norm = spec.keys == Keys::tiny;
        });
    for (int gates = 0; gates <= static_cast<int>(Gates::positive); gates += step)
      with("gates", [&](ProblemSpec& spec) { spec.gates = static_cast<Gates>(gates); });
    for (int betas = 0; betas <= static_cast<int>(Betas::mixed); betas += step)
      with("betas", [&](ProblemSpec& spec) { spec.betas = static_cast<Betas>(betas); });
    for (const double scale : {1e4, 1e-4}) with("state scale", [&](ProblemSpec& spec) { spec.state_scale = scale; });
  }
  ProblemSpec extreme = base("random", 40);  // raw gates where exp and softplus over- and underflow
  extreme.raw_gates = true;
  check_all(report, "gates", extreme, {}, [](HostProblem& problem) {
    HostTensor &a = problem.tensors.at("a"), &b = problem.tensors.at("b"), &a_log = problem.tensors.at("A_log");
    for (std::int64_t i = 0; i < a.elements(); ++i)
      a.set(i, i % 3 == 0   ? 100.0f
               : i % 3 == 1 ? -100.0f
                            : a.get(i)),
          b.set(i, i % 5 == 0   ? 100.0f
                   : i % 5 == 1 ? -100.0f
                                : b.get(i));
    a_log.set(0, 90.0f);
  });
}

// Inputs that are not bf16, and keys of 64, on root paths that are folded (chain) and spilt (spine).
void deep_types(Report& report, bool light) {
  int turn = 0;
  const auto with = [&](const char* family, int nodes, canopy_dtype input, int k) {
    ProblemSpec spec = base(family, nodes);
    spec.input = input, spec.dim_k = k, spec.dim_v = light || turn % 4 < 2 ? k : 192 - k;
    spec.state = turn % 3 == 0 ? CANOPY_F32 : turn % 3 == 1 ? CANOPY_BF16 : CANOPY_F16;
    spec.layout = turn++ % 2 ? CANOPY_STATE_KV : CANOPY_STATE_VK;
    check_all(report, "deep types", spec);
    if (light || nodes < 256) return;  // keys of which none is forgotten
    spec.keys = Keys::similar, spec.key_cosine = 0.99, spec.gates = Gates::zero, spec.betas = Betas::one;
    check_all(report, "deep types", spec, {.output = input});
  };
  if (light) {
    with("chain", 70, CANOPY_F16, 128), with("chain", 70, CANOPY_BF16, 64);
    with("spine", 80, CANOPY_F16, 128), with("spine", 80, CANOPY_F32, 64);
    return;
  }
  constexpr std::pair<const char*, int> shapes[] = {{"chain", 256}, {"spine", 250}, {"random", 250}};
  for (const auto& [family, nodes] : shapes) {
    with(family, nodes, CANOPY_BF16, 64);
    for (const canopy_dtype input : {CANOPY_F16, CANOPY_F32})
      for (const int k : {64, 128}) with(family, nodes, input, k);
  }
}

void types(Report& report, bool light) {
  const canopy_dtype all[] = {CANOPY_F32, CANOPY_BF16, CANOPY_F16};
  for (const canopy_dtype input : all)
    for (const canopy_dtype state : all)
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV})
        for (const int k : {64, 128})
          for (const int v : {64, 128}) {
            if (light && (input != state || k != v)) continue;
            ProblemSpec spec = base("best-first", light ? 20 : 70);
            spec.input = input, spec.state = state, spec.layout = layout, spec.dim_k = k, spec.dim_v = v;
            check_all(report, "types", spec, {.output = input, .adjust = {}});
            if (!light && k == v) check_all(report, "types", spec);
            spec.family = base("chain", 6).family;
            check_all(report, "types", spec, {.output = state, .adjust = {}});
          }
}

// First child and next sibling of each node, children in descending order (siblings come in any order).
void links_of(std::span<const std::int32_t> parents, std::int32_t* child, std::int32_t* sibling) {
  std::fill_n(child, parents.size(), -1), std::fill_n(sibling, parents.size(), -1);
  for (std::size_t i = 1; i < parents.size(); ++i) {
    sibling[i] = child[parents[i]];
    child[parents[i]] = static_cast<std::int32_t>(i);
  }
}

void forms(Report& report, bool light) {
  const auto with = [&](const std::string& group, auto change, const RunOptions& options = {}) {
    ProblemSpec spec = base("best-first", light ? 20 : 90);
    change(spec);
    check_all(report, group, spec, options);
  };
  for (const int nodes : {0, 13}) {  // as above, and a tree of one block
    const auto form = [&](bool raw, bool l2norm) {
      with("forms", [&](ProblemSpec& spec) {
        spec.raw_gates = raw, spec.l2norm = l2norm;
        if (nodes > 0) spec.family = base("random", nodes).family;
      });
    };
    form(true, false), form(false, true), form(true, true);
  }
  with("forms", [](ProblemSpec& spec) {  // one head: the fewest columns a CTA, even where SMs are few
    spec.heads_k = spec.heads_v = 1, spec.raw_gates = spec.l2norm = true;
    spec.family = base("random", 13).family;
  });
  // One block, and more heads than SMs (the emulated GPU has four): S0 in passes.
  for (const double scale : {1.0, 1e4})
    with("forms", [&](ProblemSpec& spec) {
      spec.batch = light ? 1 : 16, spec.heads_k = light ? 4 : 8, spec.heads_v = light ? 8 : 16,
      spec.state_scale = scale;
      spec.ragged = spec.slots = spec.raw_gates = spec.l2norm = true;
      spec.family = base("random", 13).family;
    });
  for (const auto& [h, hv] : {std::pair{2, 2}, {2, 4}, {2, 6}, {2, 8}, {1, 8}, {4, 4}, {8, 16}})
    with("heads", [&, h = h, hv = hv](ProblemSpec& spec) { spec.heads_k = h, spec.heads_v = hv; });
  for (const int batch : light ? std::vector<int>{3} : std::vector<int>{2, 3, 4, 5, 8, 11, 16}) {
    with("batches", [&](ProblemSpec& spec) { spec.batch = batch, spec.ragged = true; });
    with("batches", [&](ProblemSpec& spec) { spec.batch = batch, spec.slots = true; });
    with("batches", [&](ProblemSpec& spec) {
      spec.batch = batch, spec.ragged = spec.slots = true;
      spec.family = base("random", 40).family;
    });
    with("batches", [&](ProblemSpec& spec) {
      spec.batch = batch, spec.ragged = true, spec.heads_k = 4, spec.heads_v = 8;
      spec.family = base("chain", 7).family;
    });
  }
  if (!light)  // so many heads that a serial CTA is wide: its state comes by way of the place where states wait
    for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV})
        with("batches", [&](ProblemSpec& spec) {
          spec.batch = 16, spec.heads_k = 4, spec.heads_v = 8, spec.state = state, spec.layout = layout;
          spec.family = base("random", 30).family;
        });
}

// More heads than SMs (the emulated GPU has four), where CTAs take whole heads, on trees of several blocks: all types
// and layouts, keys that forget nothing, large states.
void crowded(Report& report, bool light) {
  const auto with = [&](const char* family, int nodes, auto change) {
    ProblemSpec spec = base(family, nodes);
    spec.batch = light ? 1 : 24, spec.heads_k = 4, spec.heads_v = 8, spec.ragged = spec.slots = !light;
    change(spec);
    check_all(report, "crowded", spec);
  };
  const auto hostile = [](ProblemSpec& spec) {
    spec.keys = Keys::similar, spec.key_cosine = 0.99, spec.gates = Gates::zero, spec.betas = Betas::one;
  };
  for (const canopy_dtype input : {CANOPY_BF16, CANOPY_F16})
    for (const canopy_dtype state : {CANOPY_F32, CANOPY_BF16, CANOPY_F16})
      for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
        if (light && (state == CANOPY_F16 || (state == CANOPY_BF16) != (layout == CANOPY_STATE_KV))) continue;
        with("random", light ? 20 : 50,
             [&](ProblemSpec& spec) { spec.input = input, spec.state = state, spec.layout = layout; });
      }
  with("random", light ? 20 : 100,
       [](ProblemSpec& spec) { spec.raw_gates = spec.l2norm = true, spec.state_scale = 1e4; });
  with("chain", light ? 20 : 128, hostile);
  if (light) return;
  with("best-first", 128, [](ProblemSpec&) {});
  with("chain", 64, [&](ProblemSpec& spec) { hostile(spec), spec.input = CANOPY_F16; });
  for (const char* family : {"best-first", "spine", "chain"}) with(family, 200, [](ProblemSpec&) {});
}

// Parents, or links and 64-bit slots. `gap`: what stands between two sequences' rows belongs to nobody.
void tree_arrays(Report& report, int nodes, bool linked, int gap) {
  ProblemSpec spec = base("random", nodes);
  spec.batch = 3, spec.slots = true;
  HostProblem problem = make(spec);
  const Problem view = *problem.problem();
  const Truth truth = solve(view);
  const std::int64_t stride = view.nodes + gap;
  std::vector<std::int32_t> parents(view.batch * stride - gap, 0x7f7f7f7f), child = parents, sibling = parents;
  std::vector<std::int64_t> slots(view.batch);
  for (int b = 0; b < view.batch; ++b) {
    const std::int32_t* const row = view.trees.parents + b * view.trees.row_stride;
    std::copy_n(row, view.nodes, &parents[b * stride]);
    links_of({row, static_cast<std::size_t>(view.nodes)}, &child[b * stride], &sibling[b * stride]);
    slots[b] = slot_of(view, view.slot_index, b);
  }
  const RunOptions options{.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
    canopy_trees& trees = params.problem.trees;
    trees.row_stride = stride;
    if (!linked) {
      trees.parents = on_device(parents.data(), parents.size(), held);
      return;
    }
    trees.parents = nullptr;
    trees.next_token = on_device(child.data(), child.size(), held);
    trees.next_sibling = on_device(sibling.data(), sibling.size(), held);
    params.problem.slot_index = on_device(slots.data(), slots.size(), held);
    params.problem.slot_index_dtype = CANOPY_I64;
  }};
  for (const Contender& contender : contenders()) {
    if (view.nodes > contender.most_nodes) continue;
    double worst = 0;
    const std::string wrong = judge(contender, view, truth, run(contender, problem, options), worst);
    report.add("forms", contender.name, wrong.empty() ? "" : text(describe(spec), ", gap ", gap, ": ", wrong), worst);
  }
}

// The same numbers through views with other strides, shifted so that no row starts on a 16-byte boundary, give the same
// bits as the contiguous ones.
void strides(Report& report, int nodes) {
  ProblemSpec spec = base("best-first", nodes);
  spec.batch = 2, spec.heads_k = 2, spec.heads_v = 4;
  for (const int shift : {0, 1}) {
    HostProblem problem = make(spec);
    std::map<std::string, std::vector<std::byte>> spread;
    const auto respread = [&](const std::string& name, canopy_tensor& view, std::vector<DeviceMemory>& held) {
      const HostTensor& tensor = problem.tensors.at(name);
      const std::int64_t B = tensor.shape[0], T = tensor.shape[1], N = tensor.shape[2], W = tensor.shape[3];
      const std::int64_t size = static_cast<std::int64_t>(host::size_of(tensor.dtype));
      const std::int64_t head = W + (shift ? 3 : 8), node = N * head + (shift ? 5 : 64),
                         row = T * node + (shift ? 1 : 16);
      std::vector<std::byte> bytes((B * row + shift) * size, std::byte{0xff});
      for (std::int64_t i = 0; i < B * T * N; ++i)
        std::memcpy(&bytes[(shift + i / (T * N) * row + i / N % T * node + i % N * head) * size],
                    &tensor.bytes[i * W * size], W * size);
      view.data = const_cast<std::byte*>(on_device(bytes.data(), bytes.size(), held)) + shift * size;
      view.stride[1] = row, view.stride[2] = node, view.stride[3] = head;
    };
    const RunOptions options{.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
      Problem& p = params.problem;
      respread("q", p.q, held), respread("k", p.k, held), respread("v", p.v, held), respread("state", p.state, held);
    }};
    for (const Contender& contender : contenders()) {
      const Outputs plain = run(contender, problem), strided = run(contender, problem, options);
      if (strided.refused) continue;
      std::string wrong = plain.error.ok() ? strided.error.message : plain.error.message;
      if (wrong.empty() && (plain.o.bytes != strided.o.bytes || plain.u.bytes != strided.u.bytes))
        wrong = text("other bits, rows shifted by ", shift, " elements");
      report.add("strides", contender.name, wrong);
    }
  }
}

// The last slot of a pool of more than 2^31 elements.
void far_slot(Report& report) {
  ProblemSpec spec = base("best-first", 64);
  spec.heads_k = 16, spec.heads_v = 32;
  HostProblem problem = make(spec);
  const Problem view = *problem.problem();
  const Truth truth = solve(view);
  const std::int64_t slots = 4097, each = 32 * 128 * 128;
  DeviceMemory pool(static_cast<std::size_t>(slots * each * 4));
  const HostTensor& state = problem.tensors.at("state");
  if (Error error = pool.upload(state.bytes.data(), each * 4, (slots - 1) * each * 4); !error.ok()) {
    report.note("far slot: not tested, " + error.message);
    return;
  }
  const std::int32_t slot = static_cast<std::int32_t>(slots - 1);
  for (const Contender& contender : contenders()) {
    double worst = 0;
    const Outputs out = run(contender, problem, {.adjust = [&](VerifyParams& params, std::vector<DeviceMemory>& held) {
                              params.problem.state.data = pool.data();
                              params.problem.slots = slots;
                              params.problem.slot_index = on_device(&slot, 1, held);
                            }});
    const std::string wrong = judge(contender, view, truth, out, worst);
    report.add("slot 4096", contender.name, wrong, worst);
  }
}

}  // namespace

void test_parity(Report& report, bool light) {
  trees(report, light);
  inputs(report, light);
  types(report, light);
  deep_types(report, light);
  forms(report, light);
  crowded(report, light);
  for (const int nodes : {13, light ? 20 : 120})
    for (const bool linked : {false, true}) {
      if (!light && linked) tree_arrays(report, nodes, linked, 0);
      if (!light || linked == (nodes > 13)) tree_arrays(report, nodes, linked, 5);
    }
  for (const int nodes : {13, light ? 20 : 50}) strides(report, nodes);
  if (!light) far_slot(report);
  test_options(report, light);
  test_places(report, light);
}

}  // namespace canopy::gpu
