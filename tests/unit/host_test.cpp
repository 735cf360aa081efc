// Generated problems are what their spec says, the same for the same seed, and deviation() sees what it should.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "canopy/reference.hpp"
#include "element.hpp"
#include "host/device_bench.hpp"
#include "host/host_problem.hpp"

namespace canopy::host {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

ProblemSpec small_spec() {
  ProblemSpec spec;
  spec.batch = 4, spec.heads_k = 2, spec.heads_v = 4, spec.dim_k = 32, spec.dim_v = 16;
  spec.family.name = "random", spec.family.nodes = 24;
  spec.input = CANOPY_F32;
  return spec;
}

HostProblem made(const ProblemSpec& spec) {
  auto problem = make_problem(spec);
  EXPECT_TRUE(problem) << problem.error().message;
  return *std::move(problem);
}

double dot(const HostTensor& x, std::int64_t row, std::int64_t other, std::int64_t width) {
  double sum = 0;
  for (std::int64_t i = 0; i < width; ++i) sum += double(x.get(row * width + i)) * x.get(other * width + i);
  return sum;
}

TEST(Elements, RoundToNearestEvenAndBack) {
  std::uint16_t half;
  for (int bits = 0; bits < 65536; ++bits) {
    for (const canopy_dtype dtype : {CANOPY_BF16, CANOPY_F16}) {
      const std::uint16_t word = static_cast<std::uint16_t>(bits);
      const float value = load(dtype, &word, 0);
      store(dtype, &half, 0, value);
      if (std::isnan(value)) {
        ASSERT_TRUE(std::isnan(load(dtype, &half, 0)));
      } else {
        ASSERT_EQ(half, word) << value;
      }
    }
  }
  EXPECT_EQ(to_bf16(1.0f + 0x1p-8f), to_bf16(1.0f));  // a tie goes to the even neighbour
  EXPECT_EQ(from_bf16(to_bf16(1.0f + 3 * 0x1p-8f)), 1.0f + 0x1p-6f);
  EXPECT_EQ(from_bf16(to_bf16(3.4e38f)), kInf);
  EXPECT_EQ(from_f16(to_f16(65519.0f)), 65504.0f);
  EXPECT_EQ(from_f16(to_f16(65520.0f)), kInf);
  EXPECT_EQ(from_f16(to_f16(-0x1p-24f)), -0x1p-24f);  // the smallest subnormal
  EXPECT_EQ(from_f16(to_f16(0x1p-25f)), 0.0f);
  EXPECT_EQ(from_f16(to_f16(3 * 0x1p-25f)), 0x1p-23f);
}

TEST(Generate, SameSeedSameBitsOtherSeedOtherBits) {
  ProblemSpec spec = small_spec();
  spec.slots = spec.ragged = true;
  const HostProblem first = made(spec), again = made(spec);
  spec.seed = 1;
  const HostProblem other = made(spec);
  for (const auto& [name, tensor] : first.tensors) EXPECT_EQ(tensor.bytes, again.tensors.at(name).bytes) << name;
  for (const char* name : {"q", "k", "v", "state", "g", "beta"})
    EXPECT_NE(first.tensors.at(name).bytes, other.tensors.at(name).bytes) << name;
}

TEST(Generate, NaturalInputsAreNatural) {
  const HostProblem problem = made(small_spec());
  const auto& t = problem.tensors;
  for (const char* name : {"q", "k"}) {
    for (std::int64_t row = 0; row < 4 * 24 * 2; ++row) EXPECT_NEAR(dot(t.at(name), row, row, 32), 1, 1e-5) << name;
  }
  double sum = 0, squares = 0;
  for (std::int64_t i = 0; i < t.at("state").elements(); ++i) {
    const double x = t.at("state").get(i);
    sum += x, squares += x * x;
  }
  const double n = double(t.at("state").elements());
  EXPECT_NEAR(sum / n, 0, 0.05);
  EXPECT_NEAR(squares / n, 1, 0.05);
  for (std::int64_t i = 0; i < t.at("g").elements(); ++i) {
    EXPECT_GE(t.at("g").get(i), -0.5f);
    EXPECT_LE(t.at("g").get(i), -0.001f);
    EXPECT_GT(t.at("beta").get(i), 0.0f);
    EXPECT_LT(t.at("beta").get(i), 1.0f);
  }
}

TEST(Generate, KeysLeanAsAsked) {
  ProblemSpec spec = small_spec();
  const auto cosine = [&](int i, int j) {  // nodes i and j of head 0 of sequence 0
    const HostProblem problem = made(spec);
    return dot(problem.tensors.at("k"), i * 2, j * 2, 32);
  };
  spec.keys = Keys::equal;
  EXPECT_NEAR(cosine(3, 17), 1, 1e-5);
  spec.keys = Keys::similar, spec.key_cosine = 0.95;
  EXPECT_NEAR(cosine(3, 17), 0.95, 0.04);
  spec.keys = Keys::opposite;
  EXPECT_NEAR(cosine(3, 16), -1, 1e-5);
  spec.keys = Keys::alternating;
  EXPECT_NEAR(cosine(3, 17), 1, 1e-5);
  EXPECT_LT(std::fabs(cosine(3, 16)), 0.9);
  spec.keys = Keys::zero;
  EXPECT_EQ(cosine(3, 3), 0);
  spec.keys = Keys::tiny;
  EXPECT_NEAR(cosine(3, 3), 1e-14, 1e-18);
}

TEST(Generate, HostileGatesStandWhereTheyShould) {
  ProblemSpec spec = small_spec();
  spec.ragged = true;
  const auto gate = [&](Gates gates, int b, int i) {
    spec.gates = gates;
    const HostProblem problem = made(spec);
    return problem.tensors.at("g").get((b * 24 + i) * 4);
  };
  const HostProblem shape = made(spec);
  int b = 1;  // a partly filled sequence
  while (b < 4 && shape.tensors.at("count").i32()[b] < 5) ++b;
  ASSERT_LT(b, 4);
  const int n = shape.tensors.at("count").i32()[b];
  EXPECT_EQ(gate(Gates::zero, b, 3), 0.0f);
  EXPECT_EQ(gate(Gates::all_strong, b, 3), -1e4f);
  EXPECT_EQ(gate(Gates::root_strong, b, 0), -1e4f);
  EXPECT_GT(gate(Gates::root_strong, b, 1), -1.0f);
  EXPECT_EQ(gate(Gates::root_912, b, 0), -912.0f);
  EXPECT_EQ(gate(Gates::eighth, 0, 8), -100.0f);
  EXPECT_GT(gate(Gates::eighth, 0, 9), -1.0f);
  EXPECT_EQ(gate(Gates::half_half, b, 0), -20.0f);
  EXPECT_EQ(gate(Gates::half_half, b, n - 1), -0.001f);
  EXPECT_EQ(gate(Gates::inf_root, b, 0), -kInf);
  EXPECT_EQ(gate(Gates::inf_middle, b, n / 2), -kInf);
  EXPECT_EQ(gate(Gates::inf_leaf, b, n - 1), -kInf);
  EXPECT_EQ(gate(Gates::tiny, b, 2), -5e-7f);
  EXPECT_GE(gate(Gates::positive, b, 2), 0.0f);
}

TEST(Generate, RawGatesMeanTheSameGates) {
  for (const Gates gates : {Gates::natural, Gates::zero, Gates::all_strong, Gates::half_half, Gates::inf_middle}) {
    for (const Betas betas : {Betas::natural, Betas::zero, Betas::one, Betas::mixed}) {
      ProblemSpec spec = small_spec();
      spec.batch = 1, spec.gates = gates, spec.betas = betas;
      HostProblem direct = made(spec);
      spec.raw_gates = true;
      HostProblem raw = made(spec);
      const auto tree = Tree::from_parents({direct.tensors["parents"].i32(), 24});
      ASSERT_TRUE(tree);
      for (int hv = 0; hv < 4; ++hv) {
        const auto x = reference::load_head(*direct.problem(), 0, hv, *tree),
                   y = reference::load_head(*raw.problem(), 0, hv, *tree);
        for (int i = 0; i < 24; ++i) {
          EXPECT_NEAR(x.g[i], y.g[i], 1e-5 * std::fabs(x.g[i]) + 1e-5) << int(gates);
          EXPECT_NEAR(x.beta[i], y.beta[i], 1e-6) << int(betas);
        }
      }
    }
  }
  ProblemSpec spec = small_spec();
  spec.raw_gates = true, spec.gates = Gates::positive;
  EXPECT_FALSE(make_problem(spec));
}

TEST(Generate, SlotsAndCounts) {
  ProblemSpec spec = small_spec();
  spec.slots = spec.ragged = true;
  HostProblem problem = made(spec);
  const auto view = problem.problem();
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_GT(view->slots, 4);
  const std::int32_t* slots = problem.tensors["slots"].i32();
  EXPECT_EQ(slots[1], -1);
  EXPECT_EQ(std::set<std::int32_t>(slots, slots + 4).size(), 4u);
  EXPECT_LT(*std::max_element(slots, slots + 4), view->slots);
  const std::int32_t* count = problem.tensors["count"].i32();
  EXPECT_EQ(count[0], 24);
  EXPECT_EQ(count[3], 0);
  for (int b = 0; b < 4; ++b) EXPECT_EQ(row_flags(*view, b), 0);
}

TEST(Generate, BothLayoutsHoldTheSameState) {
  ProblemSpec spec = small_spec();
  HostProblem vk = made(spec);
  spec.layout = CANOPY_STATE_KV;
  HostProblem kv = made(spec);
  const auto tree = Tree::from_parents({vk.tensors["parents"].i32() + 2 * 24, 24});
  EXPECT_EQ(reference::load_head(*vk.problem(), 2, 3, *tree).state,
            reference::load_head(*kv.problem(), 2, 3, *tree).state);
  EXPECT_NE(vk.tensors["state"].bytes, kv.tensors["state"].bytes);
}

TEST(Generate, GivenTreesAndEmptyBatch) {
  ProblemSpec spec = small_spec();
  const std::int32_t three[] = {-1, 0, 0}, five[] = {-1, 0, 1, 2, 3};
  spec.trees = {*Tree::from_parents(three), *Tree::from_parents(five)};
  HostProblem problem = made(spec);
  EXPECT_EQ(problem.tensors["parents"].shape, (std::vector<std::int64_t>{4, 5}));
  EXPECT_EQ(problem.tensors["count"].i32()[2], 3);
  EXPECT_EQ(problem.tensors["count"].i32()[3], 5);
  spec.batch = 0;
  HostProblem empty = made(spec);
  const auto view = empty.problem();
  ASSERT_TRUE(view) << view.error().message;
  EXPECT_EQ(view->batch, 0);
}

TEST(Generate, WrongSpecsAreRefused) {
  const auto message = [](auto spoil) {
    ProblemSpec spec = small_spec();
    spoil(spec);
    const auto problem = make_problem(spec);
    return problem ? std::string() : problem.error().message;
  };
  EXPECT_EQ(message([](ProblemSpec& s) { s.batch = -2; }), "batch = -2: expected 0 or more sequences");
  EXPECT_EQ(message([](ProblemSpec& s) { s.heads_v = 3; }), "heads-v = 3: expected a positive multiple of heads = 2");
  EXPECT_EQ(message([](ProblemSpec& s) { s.key_cosine = 1.5; }), "key-cosine = 1.5: expected 0 to 1");
  EXPECT_EQ(message([](ProblemSpec& s) { s.state_scale = NAN; }), "state-scale = nan: expected 0 to 1e30");
  EXPECT_EQ(message([](ProblemSpec& s) { s.input = CANOPY_I32; }),
            "input and state are i32 and f32: expected f32, bf16 or f16");
  EXPECT_NE(message([](ProblemSpec& s) { s.family.nodes = 300; }), "");
  EXPECT_NE(message([](ProblemSpec& s) { s.batch = 1 << 30; }), "");
}

TEST(DriverVersion, IsFoundInTheDriversOwnWords) {
  EXPECT_EQ(driver_version_in("NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.159.03  Tue Oct 14 UTC 2026\n"
                              "GCC version:  gcc version 12.2.0 (Debian 12.2.0-14)\n"),
            "580.159.03");
  EXPECT_EQ(driver_version_in("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"),
            "570.86.15");
  EXPECT_EQ(driver_version_in("NVRM version: of the future\nGCC version: gcc version 12.2.0\n"), "");
  EXPECT_EQ(driver_version_in(""), "");
}

TEST(Load, ManyElementsAsOneByOne) {
  for (const canopy_dtype dtype : {CANOPY_F32, CANOPY_BF16, CANOPY_F16}) {
    HostTensor tensor = HostTensor::make(dtype, {5});
    for (int i = 0; i < 5; ++i) tensor.set(i, 1.1f * static_cast<float>(i) - 2);
    float got[3];
    load(dtype, tensor.bytes.data(), 2, 3, got);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(got[i], tensor.get(2 + i)) << dtype;
  }
}

TEST(Deviation, SeesSizeAndNaN) {
  const double truth[] = {3, 4, 0};
  const float close[] = {3, 4.5f, 0}, nan[] = {3, 4, std::nanf("")};
  EXPECT_NEAR(deviation(truth, close, 3).relative, 0.1, 1e-12);
  EXPECT_NEAR(deviation(truth, close, 3).max_abs, 0.5, 1e-12);
  EXPECT_TRUE(deviation(truth, close, 3).finite);
  EXPECT_FALSE(deviation(truth, nan, 3).finite);
  const double also_nan[] = {3, 4, std::nan("")};
  EXPECT_TRUE(deviation(also_nan, nan, 3).finite);
  const float numbers[] = {3, 4, 1};
  EXPECT_FALSE(deviation(also_nan, numbers, 3).finite);
  const double zeros[] = {0, 0, 0};
  EXPECT_EQ(deviation(zeros, close + 2, 1).relative, 0);
  EXPECT_TRUE(std::isinf(deviation(zeros, close, 1).relative));
}

}  // namespace
}  // namespace canopy::host
