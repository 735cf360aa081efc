// Where tensors lie changes no bit of what comes out: slices of a serving engine's buffers, gaps of every kind, offsets
// past 32 bits. Each strided run is held against the contiguous one, and that against the oracle.
#include <memory>

#include "parity/strided.hpp"

namespace canopy::parity {
namespace {

using CommitContender = Contender<CommitParams>;

ProblemSpec base() {
  ProblemSpec spec;
  spec.family.name = "best-first", spec.family.nodes = 21;
  spec.batch = 3, spec.heads_k = 2, spec.heads_v = 4, spec.dim_k = 40, spec.dim_v = 24;
  spec.ragged = spec.slots = true, spec.seed = 4;
  return spec;
}

// A pool whose heads, rows and slots all keep their distance.
Strides pool_strides(const HostTensor& state) {
  const std::int64_t row = state.shape[3] + 5, head = row * state.shape[2] + 11;
  return {head * state.shape[1] + 1000, head, row, 1};
}

// A run whose o, U and l are spread; gathered again.
Outputs run_spread(const VerifyContender& contender, VerifyParams params, canopy_dtype output) {
  const InUse use(contender.set);
  const Problem& p = params.problem;
  const std::int64_t B = p.batch, T = p.nodes, HV = p.heads_v, V = p.dim_v;
  const Strides wide{T * HV * (V + 3) * 2 + 64, HV * (V + 3) + 32, V + 3, 1};
  Strided o(poisoned(output, {B, T, HV, V}), wide), u(poisoned(CANOPY_F32, {B, T, HV, V}), wide);
  // Head-major, as a transposed tensor.
  Strided l(poisoned(CANOPY_F32, {B, T, HV}), {T * HV + 7, 1, T});
  params.o = o.view(), params.stash_u = u.view(), params.stash_l = l.view();
  const auto bytes = verify_workspace(params, contender.implementation->name);
  Outputs out;
  if (!bytes) {
    ADD_FAILURE() << bytes.error().message;
    return out;
  }
  Fenced workspace(*bytes);
  out.error = verify(params, contender.implementation->name, workspace.data(), *bytes);
  EXPECT_TRUE(workspace.intact()) << contender.name();
  EXPECT_TRUE(o.gaps_untouched() && u.gaps_untouched() && l.gaps_untouched()) << contender.name();
  out.o = o.gathered(), out.u = u.gathered(), out.l = l.gathered();
  return out;
}

TEST(ParityStrides, SlicesOfAServingEnginesBuffers) {
  for (const canopy_dtype type : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
    for (const canopy_state_layout layout : {CANOPY_STATE_VK, CANOPY_STATE_KV}) {
      for (const bool raw : {false, true}) {
        ProblemSpec spec = base();
        spec.input = spec.state = type, spec.layout = layout, spec.raw_gates = raw, spec.l2norm = raw;
        Case c(spec);
        c.solved();
        VerifyParams params = c.params;
        Problem& p = params.problem;
        const std::int64_t T = p.nodes, H = p.heads_k, HV = p.heads_v, K = p.dim_k, V = p.dim_v,
                           size = host::size_of(type);

        // q, k, v side by side in [B*T, 512]; then the two gates in [B*T, 2 HV + 3].
        const std::int64_t token = 512;
        ASSERT_LE(2 * H * K + HV * V, token);
        std::vector<std::byte> qkv(std::size_t(spec.batch * T * token * size), std::byte{0xff});
        const auto slice = [&](const char* name, std::int64_t offset, std::int64_t width, canopy_tensor& to) {
          const Strides strides{T * token, token, width, 1};
          to = view_of(qkv.data() + offset * size, type, strides);
          scatter(c.tensor(name), to, strides);
        };
        slice("q", 0, K, p.q), slice("k", H * K, K, p.k), slice("v", 2 * H * K, V, p.v);
        const canopy_dtype gate_type = raw ? type : CANOPY_F32;
        const std::int64_t gate_token = 2 * HV + 3;
        std::vector<std::byte> gates(std::size_t(spec.batch * T * gate_token) * host::size_of(gate_type),
                                     std::byte{0xff});
        const auto gate = [&](const char* name, std::int64_t offset, canopy_tensor& to) {
          const Strides strides{T * gate_token, gate_token, 1};
          to = view_of(gates.data() + offset * std::int64_t(host::size_of(gate_type)), gate_type, strides);
          scatter(c.tensor(name), to, strides);
        };
        gate(raw ? "a" : "g", 1, raw ? p.a : p.g), gate(raw ? "b" : "beta", 1 + HV, raw ? p.b : p.beta);
        Strided pool(c.tensor("state"), pool_strides(c.tensor("state")));
        p.state = pool.view();

        for (const VerifyContender& contender : contenders<VerifyParams>()) {
          const Outputs near = run(contender, c.params, {.output = type});
          expect_parity(contender, p, c.truth, near, c.name);
          const Outputs far = run_spread(contender, params, type);
          ASSERT_TRUE(far.error.ok()) << far.error.message;
          EXPECT_TRUE(same_bits(near, far)) << contender.name() << " on " << c.name;
          EXPECT_TRUE(same_bits(pool.gathered(), c.tensor("state")) && pool.gaps_untouched()) << contender.name();
        }
      }
    }
  }
}

// Heads further apart than tokens, as in a [B,H,T,K] tensor seen as [B,T,H,K].
TEST(ParityStrides, HeadMajorActivations) {
  Case c(base());
  c.solved();
  VerifyParams params = c.params;
  Problem& p = params.problem;
  const std::int64_t T = p.nodes, H = p.heads_k, HV = p.heads_v, K = p.dim_k, V = p.dim_v;
  Strided q(c.tensor("q"), {H * T * K, K, T * K, 1}), k(c.tensor("k"), {H * T * K, K, T * K, 1});
  Strided v(c.tensor("v"), {HV * T * V, V, T * V, 1}), g(c.tensor("g"), {HV * T, 1, T}),
      beta(c.tensor("beta"), {HV * T, 1, T});
  p.q = q.view(), p.k = k.view(), p.v = v.view(), p.g = g.view(), p.beta = beta.view();
  for (const VerifyContender& contender : contenders<VerifyParams>())
    EXPECT_TRUE(same_bits(run(contender, c.params), run(contender, params))) << contender.name();
}

// The full pool of docs/api.md: slot 4096 of [4097,32,128,128] fp32, 8.6 GB of addresses.
TEST(ParityStrides, TheLastSlotOfAFullPool) {
  ProblemSpec spec;
  spec.family.name = "random", spec.family.nodes = 5;
  spec.heads_k = 16, spec.heads_v = 32, spec.dim_k = spec.dim_v = 128;
  Case c(spec);
  c.solved();
  const std::int64_t slots = 4097, each = std::int64_t{32} * 128 * 128;
  const Mapping pool(slots * each * 4);
  if (!pool.data()) GTEST_SKIP() << "no address space for " << slots * each * 4 << " bytes";
  VerifyParams params = c.params;
  Problem& p = params.problem;
  const std::int64_t last = slots - 1, other = slots - 2;
  p.slots = slots, p.slot_index = &last, p.slot_index_dtype = CANOPY_I64;
  p.state.data = pool.data(), p.state.stride[1] = each;
  float* const slot = static_cast<float*>(pool.data()) + last * each;
  std::memcpy(slot, c.tensor("state").bytes.data(), std::size_t(each) * 4);

  Outputs stash;
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    stash = run(contender, c.params);
    EXPECT_TRUE(same_bits(stash, run(contender, params))) << contender.name();
    EXPECT_EQ(std::memcmp(slot, c.tensor("state").bytes.data(), std::size_t(each) * 4), 0) << contender.name();
  }
  const std::int32_t leaf = 4;
  for (const CommitContender& contender : contenders<CommitParams>()) {
    const InUse use(contender.set);
    const auto commit_to = [&](const Problem& problem, void* dst, void* state) {
      CommitParams request = commit_params();
      request.problem = problem, request.leaf = &leaf, request.dst_slot = dst, request.problem.state.data = state;
      request.stash_u = stash.u.view(), request.stash_l = stash.l.view();
      while (!contender.implementation->refuses(request).empty() && request.method < 2) ++request.method;
      const auto bytes = commit_workspace(request, contender.implementation->name);
      ASSERT_TRUE(bytes.ok()) << bytes.error().message;
      Fenced workspace(*bytes);
      EXPECT_TRUE(commit(request, contender.implementation->name, workspace.data(), *bytes).ok());
    };
    HostTensor near = c.tensor("state");
    commit_to(c.params.problem, nullptr, near.bytes.data());
    std::int64_t destination = other;
    commit_to(p, &destination, pool.data());
    EXPECT_EQ(std::memcmp(slot - each, near.bytes.data(), std::size_t(each) * 4), 0) << contender.name();
    EXPECT_EQ(std::memcmp(slot, c.tensor("state").bytes.data(), std::size_t(each) * 4), 0) << contender.name();
    EXPECT_FALSE(same_bits(near, c.tensor("state"))) << contender.name();
  }
}

// Token strides of half a gigaelement: the last offsets pass 2^32 in every tensor.
TEST(ParityStrides, OffsetsPast32Bits) {
  ProblemSpec spec = base();
  spec.family.nodes = 5, spec.batch = 2, spec.ragged = spec.slots = false;
  Case c(spec);
  c.solved();
  const Problem& near = c.params.problem;
  const std::int64_t T = near.nodes, token = (std::int64_t{1} << 29) + 8, sequence = T * token;
  std::vector<std::unique_ptr<Mapping>> mappings;
  bool refused = false;
  const auto far = [&](canopy_dtype dtype, std::int64_t width, bool four_axes) {
    const std::int64_t rows = 2 * T;
    mappings.push_back(std::make_unique<Mapping>(rows * token * std::int64_t(host::size_of(dtype))));
    refused |= !mappings.back()->data();
    return view_of(mappings.back()->data(), dtype,
                   four_axes ? Strides{sequence, token, width, 1} : Strides{sequence, token, 1});
  };
  VerifyParams params = c.params;
  Problem& p = params.problem;
  const auto spread = [&](const char* name, std::int64_t width, bool four_axes, canopy_tensor& to) {
    to = far(c.tensor(name).dtype, width, four_axes);
    if (to.data)
      scatter(c.tensor(name), to, four_axes ? Strides{sequence, token, width, 1} : Strides{sequence, token, 1});
  };
  spread("q", p.dim_k, true, p.q), spread("k", p.dim_k, true, p.k), spread("v", p.dim_v, true, p.v);
  spread("g", 1, false, p.g), spread("beta", 1, false, p.beta);
  params.o = far(CANOPY_F32, p.dim_v, true), params.stash_u = far(CANOPY_F32, p.dim_v, true);
  params.stash_l = far(CANOPY_F32, 1, false);
  if (refused) GTEST_SKIP() << "no address space for views of " << 2 * T * token << " elements";
  const Strides wide{sequence, token, p.dim_v, 1};
  for (const VerifyContender& contender : contenders<VerifyParams>()) {
    const Outputs expected = run(contender, c.params);
    expect_parity(contender, near, c.truth, expected, c.name);
    const InUse use(contender.set);
    const auto bytes = verify_workspace(params, contender.implementation->name);
    ASSERT_TRUE(bytes.ok()) << bytes.error().message;
    Fenced workspace(*bytes);
    scatter(poisoned(CANOPY_F32, expected.o.shape), params.o, wide);
    ASSERT_TRUE(verify(params, contender.implementation->name, workspace.data(), *bytes).ok());
    EXPECT_TRUE(same_bits(expected.o, gather(params.o, expected.o.shape, wide))) << contender.name();
    EXPECT_TRUE(same_bits(expected.u, gather(params.stash_u, expected.u.shape, wide))) << contender.name();
    EXPECT_TRUE(same_bits(expected.l, gather(params.stash_l, expected.l.shape, {sequence, token, 1})))
        << contender.name();
  }
}

}  // namespace
}  // namespace canopy::parity
