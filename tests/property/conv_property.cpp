// The tree convolution on random trees, shapes, types and layouts against its definition, in every CPU implementation.
#include <gtest/gtest.h>
#include <rapidcheck.h>

#include "conv_cases.hpp"

namespace canopy {
namespace {

using tests::ConvCase;
using tests::ConvSpec;

ConvSpec any_spec() {
  const auto type = [] { return *rc::gen::element(CANOPY_F32, CANOPY_BF16, CANOPY_F16); };
  const auto flag = [] { return *rc::gen::arbitrary<bool>(); };
  ConvSpec spec;
  spec.batch = *rc::gen::inRange(1, 7), spec.nodes = *rc::gen::inRange(1, 60),
  spec.channels = *rc::gen::inRange(1, 300);
  spec.width = *rc::gen::inRange(2, 5), spec.layers = *rc::gen::inRange(1, 4), spec.gap = *rc::gen::inRange(0, 9);
  spec.input = type(), spec.state = type(), spec.constants = type(), spec.output = flag() ? spec.input : CANOPY_F32;
  spec.bias = flag(), spec.silu = flag(), spec.links = flag(), spec.ragged = flag(), spec.padding = flag();
  spec.taps_apart = flag(), spec.long_index = flag(), spec.moved = flag(), spec.tracked = flag();
  spec.family = *rc::gen::element<std::string>("random", "chain", "star", "best-first");
  spec.seed = *rc::gen::inRange(0, 1 << 20);
  return spec;
}

std::vector<std::int32_t> status_of(const ConvCase& made) {
  const std::int32_t* status = made.buffers.at("status").i32();
  return {status, status + made.spec().batch};
}

TEST(ConvProperty, EveryOutputIsTheDefinition) {
  ASSERT_TRUE(rc::check([] {
    const ConvSpec spec = any_spec();
    for (const auto& implementation : conv_verify_implementations()) {
      if (implementation.device != CANOPY_CPU) continue;
      ConvCase made(spec);
      RC_ASSERT(conv_verify(made.verify(made.here()), implementation.name).message == "");
      RC_ASSERT(wrong_output(made, made.buffers.at("o"), status_of(made)) == "");
    }
  }));
}

TEST(ConvProperty, EveryCommitIsTheDefinition) {
  ASSERT_TRUE(rc::check([] {
    const ConvSpec spec = any_spec();
    for (const auto& implementation : conv_commit_implementations()) {
      if (implementation.device != CANOPY_CPU) continue;
      ConvCase made(spec);
      const auto expected = tests::pool_after(made).bytes;
      RC_ASSERT(conv_commit(made.commit(made.here()), implementation.name).message == "");
      RC_ASSERT(made.buffers.at("state").bytes == expected);
    }
  }));
}

// After a commit a chain that goes on gives what the longer chain gave: the window is all that a sequence is.
TEST(ConvProperty, ACommitContinuesTheSequence) {
  ASSERT_TRUE(rc::check([] {
    ConvSpec spec = any_spec();
    spec.family = "chain", spec.batch = spec.layers = 1, spec.ragged = spec.links = spec.moved = spec.tracked = false;
    spec.nodes = *rc::gen::inRange(2, 40), spec.state = CANOPY_F32, spec.silu = false, spec.output = CANOPY_F32;
    const int accepted = *rc::gen::inRange(0, spec.nodes - 1);
    ConvCase whole(spec), rest(spec);
    RC_ASSERT(conv_verify(whole.verify(whole.here())).ok());
    rest.buffers.at("leaf").i32()[0] = accepted;
    RC_ASSERT(conv_commit(rest.commit(rest.here())).ok());
    ConvVerifyParams params = rest.verify(rest.here());
    params.problem.nodes = spec.nodes - accepted - 1;
    params.problem.x.data =
        static_cast<std::byte*>(params.problem.x.data) +
        (accepted + 1) * params.problem.x.stride[2] * static_cast<std::int64_t>(host::size_of(spec.input));
    RC_ASSERT(conv_verify(params).ok());
    for (int node = accepted + 1; node < spec.nodes; ++node)
      for (int c = 0; c < spec.channels; ++c)
        RC_ASSERT(rest.output(0, node - accepted - 1, c) == whole.output(0, node, c));
  }));
}

}  // namespace
}  // namespace canopy
