// Problems of the tree convolution (E9) from a seed, and the definition written down once more for the tests: the last
// W of all inputs that a node has behind it. Used on the CPU and, with the buffers copied, on a device.
#pragma once

#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "canopy/canopy.hpp"
#include "host/host_problem.hpp"
#include "host/random.hpp"

namespace canopy::tests {

using host::HostTensor;

struct ConvSpec {
  int batch = 3, nodes = 20, channels = 70, width = 4, layers = 1;
  canopy_dtype input = CANOPY_BF16, state = CANOPY_BF16, constants = CANOPY_BF16, output = CANOPY_BF16;
  bool bias = true, silu = false;
  bool links = false;       // next_token and next_sibling in place of parents
  bool ragged = true;       // counts below T, one of them 0 from three sequences on
  bool padding = true;      // from three sequences on the last one is a padding row
  bool taps_apart = false;  // the pool as [slots,W-1,C] in memory, the weights as [W,C], every other bias unused
  bool long_index = false;  // slot indices of 64 bits
  bool moved = false, tracked = false;
  int gap = 0;  // elements between the rows of x, and as many in front of each of o
  std::string family = "random";
  std::uint64_t seed = 1;
};

// The name of a buffer to where it lies.
using Locate = std::function<void*(const std::string&)>;

class ConvCase {
 public:
  explicit ConvCase(const ConvSpec& spec) : spec_(spec) {
    const std::int64_t L = spec.layers, B = spec.batch, T = spec.nodes, C = spec.channels, taps = spec.width - 1;
    slots_ = 3 * B + 2;
    make("x", spec.input, {L, B, T, C + spec.gap}, 1);
    make("weight", spec.constants, {C, spec.width}, 0.7);
    make("bias", spec.constants, {2 * C}, 0.5);
    make("state", spec.state, {L, slots_, C * taps + 3}, 1);
    make("o", spec.output, {B, T, C + spec.gap}, 0);
    for (std::byte& byte : buffers["o"].bytes) byte = std::byte{0xff};  // a NaN in every type
    make_trees();
    const canopy_dtype index = spec.long_index ? CANOPY_I64 : CANOPY_I32;
    const auto indices = [&](const std::string& name, auto value) {
      HostTensor& out = buffers[name] = HostTensor::make(index, {B});
      for (int b = 0; b < B; ++b) {
        const std::int64_t slot = value(b);
        if (spec.long_index)
          reinterpret_cast<std::int64_t*>(out.bytes.data())[b] = slot;
        else
          out.i32()[b] = static_cast<std::int32_t>(slot);
      }
    };
    indices("slot", [&](int b) { return spec.padding && B > 2 && b == B - 1 ? -1 : 3 * (B - 1 - b) + 1; });
    indices("dst", [&](int b) { return 3 * (B - 1 - b) + 2; });
    indices("track", [&](int b) { return b % 3 == 1 ? -1 : 3 * (B - 1 - b) + 3; });
    const host::Stream random(spec.seed, 77);
    HostTensor &leaf = buffers["leaf"] = HostTensor::make(CANOPY_I32, {B}),
               &track_leaf = buffers["track_leaf"] = HostTensor::make(CANOPY_I32, {B});
    for (int b = 0; b < B; ++b) {
      leaf.i32()[b] = b % 5 == 4 ? -1 : static_cast<int>(random.below(2 * b, T));  // may lie past the count: skipped
      track_leaf.i32()[b] = static_cast<int>(random.below(2 * b + 1, T));
    }
    buffers["status"] = HostTensor::make(CANOPY_I32, {B});
    for (int b = 0; b < B; ++b) buffers["status"].i32()[b] = -1;
    spoil_what_nobody_reads();
  }

  std::map<std::string, HostTensor> buffers;

  const ConvSpec& spec() const { return spec_; }
  std::int64_t slots() const { return slots_; }
  Locate here() {
    return [this](const std::string& name) -> void* { return buffers.at(name).bytes.data(); };
  }

  ConvVerifyParams verify(const Locate& at) const {
    ConvVerifyParams params = conv_verify_params();
    params.problem = problem(at);
    const std::int64_t W = spec_.width, C = spec_.channels, row = C + spec_.gap;
    params.weight = {at("weight"), spec_.constants, 0, {0, spec_.taps_apart ? 1 : W, spec_.taps_apart ? C : 1}};
    if (spec_.bias) params.bias = {at("bias"), spec_.constants, 0, {0, spec_.taps_apart ? 2 : 1}};
    params.silu = spec_.silu;
    params.o = {static_cast<std::byte*>(at("o")) + spec_.gap * host::size_of(spec_.output),
                spec_.output,
                0,
                {0, spec_.nodes * row, row, 1}};
    params.row_status = static_cast<std::int32_t*>(at("status"));
    return params;
  }
  ConvCommitParams commit(const Locate& at) const {
    ConvCommitParams params = conv_commit_params();
    params.problem = problem(at);
    params.layers = spec_.layers;
    params.leaf = static_cast<const std::int32_t*>(at("leaf"));
    if (spec_.moved) params.dst_slot = at("dst");
    if (spec_.tracked)
      params.track_leaf = static_cast<const std::int32_t*>(at("track_leaf")), params.track_slot = at("track");
    params.row_status = static_cast<std::int32_t*>(at("status"));
    return params;
  }

  std::int64_t slot(const std::string& name, int b) const {
    const HostTensor& from = buffers.at(name);
    return spec_.long_index ? reinterpret_cast<const std::int64_t*>(from.bytes.data())[b] : from.i32()[b];
  }
  int count(int b) const { return buffers.at("count").i32()[b]; }
  bool live(int b, int node) const { return slot("slot", b) >= 0 && node < count(b); }
  int parent(int b, int node) const { return parents_[static_cast<std::size_t>(b * spec_.nodes + node)]; }

  std::int64_t output_at(int b, int node, int c) const {
    return (std::int64_t{b} * spec_.nodes + node) * (spec_.channels + spec_.gap) + spec_.gap + c;
  }
  float output(int b, int node, int c) const { return buffers.at("o").get(output_at(b, node, c)); }
  std::int64_t state_at(int layer, std::int64_t of_slot, int c, int tap) const {
    const std::int64_t C = spec_.channels, taps = spec_.width - 1;
    return (layer * slots_ + of_slot) * (C * taps + 3) + (spec_.taps_apart ? tap * C + c : c * taps + tap);
  }

  // The last `how_many` of all inputs behind a node with its own, oldest first: the committed ones, then the path's.
  std::vector<float> inputs(int layer, int b, int node, int c, int how_many) const {
    const HostTensor &x = buffers.at("x"), &pool = buffers.at("state");
    std::vector<float> newest_first;
    for (; node >= 0; node = parent(b, node)) {
      const std::int64_t row = (std::int64_t{layer} * spec_.batch + b) * spec_.nodes + node;
      newest_first.push_back(x.get(row * (spec_.channels + spec_.gap) + c));
      if (static_cast<int>(newest_first.size()) == how_many) break;
    }
    for (int tap = spec_.width - 2; static_cast<int>(newest_first.size()) < how_many; --tap)
      newest_first.push_back(pool.get(state_at(layer, slot("slot", b), c, tap)));
    return {newest_first.rbegin(), newest_first.rend()};
  }
  // E9 before SiLU.
  float convolved(int b, int node, int c) const {
    const std::vector<float> h = inputs(0, b, node, c, spec_.width);
    const HostTensor& weight = buffers.at("weight");
    float y = spec_.bias ? buffers.at("bias").get(spec_.taps_apart ? 2 * c : c) : 0.0f;
    for (int j = 0; j < spec_.width; ++j)
      y = std::fma(
          weight.get(spec_.taps_apart ? std::int64_t{j} * spec_.channels + c : std::int64_t{c} * spec_.width + j),
          h[static_cast<std::size_t>(j)], y);
    return y;
  }

 private:
  canopy_conv_problem problem(const Locate& at) const {
    canopy_conv_problem p = conv_verify_params().problem;
    const std::int64_t B = spec_.batch, T = spec_.nodes, C = spec_.channels, taps = spec_.width - 1,
                       row = C + spec_.gap;
    p.batch = spec_.batch, p.nodes = spec_.nodes, p.channels = spec_.channels, p.width = spec_.width;
    if (spec_.links) {
      p.trees.next_token = static_cast<const std::int32_t*>(at("next_token"));
      p.trees.next_sibling = static_cast<const std::int32_t*>(at("next_sibling"));
    } else {
      p.trees.parents = static_cast<const std::int32_t*>(at("parents"));
    }
    p.trees.row_stride = T;
    if (spec_.ragged) p.trees.count = static_cast<const std::int32_t*>(at("count"));
    p.x = {at("x"), spec_.input, 0, {B * T * row, T * row, row, 1}};
    const std::int64_t each = C * taps + 3;
    p.state = {
        at("state"), spec_.state, 0, {slots_ * each, each, spec_.taps_apart ? 1 : taps, spec_.taps_apart ? C : 1}};
    p.slots = slots_;
    p.slot_index = at("slot");
    p.slot_index_dtype = spec_.long_index ? CANOPY_I64 : CANOPY_I32;
    return p;
  }

  // NaN in rows past a count, of padding rows and between rows, and in slots that no sequence starts from.
  void spoil_what_nobody_reads() {
    const std::int64_t row = spec_.channels + spec_.gap, rows = std::int64_t{spec_.batch} * spec_.nodes;
    HostTensor &x = buffers["x"], &pool = buffers["state"];
    for (std::int64_t i = 0; i < x.elements(); ++i) {
      const std::int64_t at = i / row % rows;
      if (i % row >= spec_.channels || !live(static_cast<int>(at / spec_.nodes), static_cast<int>(at % spec_.nodes)))
        x.set(i, std::nanf(""));
    }
    std::vector<bool> used(static_cast<std::size_t>(slots_), false);
    for (int b = 0; b < spec_.batch; ++b)
      if (live(b, 0)) used[static_cast<std::size_t>(slot("slot", b))] = true;
    const std::int64_t each = pool.elements() / (spec_.layers * slots_);
    for (std::int64_t i = 0; i < pool.elements(); ++i)
      if (!used[static_cast<std::size_t>(i / each % slots_)]) pool.set(i, std::nanf(""));
  }

  void make(const std::string& name, canopy_dtype dtype, std::vector<std::int64_t> shape, double scale) {
    HostTensor& out = buffers[name] = HostTensor::make(dtype, std::move(shape));
    const host::Stream random(spec_.seed, std::hash<std::string>{}(name) % 1000);
    for (std::int64_t i = 0; i < out.elements(); ++i) out.set(i, static_cast<float>(scale) * random.normal(i));
  }

  void make_trees() {
    const int B = spec_.batch, T = spec_.nodes;
    const HostTensor ints = HostTensor::make(CANOPY_I32, {B, T});
    buffers["parents"] = buffers["next_token"] = buffers["next_sibling"] = ints;
    HostTensor& count = buffers["count"] = HostTensor::make(CANOPY_I32, {B});
    const host::Stream random(spec_.seed, 5);
    for (int b = 0; b < B; ++b) {
      FamilySpec family;
      family.name = spec_.family, family.nodes = T, family.seed = spec_.seed + b;
      family.depth = std::max(1, std::min(8, T - 1));
      auto tree = make_family(family);
      std::vector<std::int32_t> parents(static_cast<std::size_t>(T), -1);
      for (int i = 1; i < T; ++i)
        parents[i] = tree && tree->size() == T ? tree->parents()[i] : static_cast<int>(random.below(b * 256 + i, i));
      const int live = !spec_.ragged     ? T
                       : B > 2 && b == 1 ? 0
                                         : T - static_cast<int>(random.below(1000 + b, (T + 1) / 2));
      count.i32()[b] = live;
      std::int32_t *const token = buffers["next_token"].i32() + b * T, *const sibling =
                                                                           buffers["next_sibling"].i32() + b * T;
      for (int i = 0; i < T; ++i) token[i] = sibling[i] = -1, buffers["parents"].i32()[b * T + i] = parents[i];
      for (int i = 1; i < live; ++i) sibling[i] = token[parents[i]], token[parents[i]] = i;  // the youngest first
      parents_.insert(parents_.end(), parents.begin(), parents.end());
    }
  }

  ConvSpec spec_;
  std::int64_t slots_ = 0;
  std::vector<std::int32_t> parents_;
};

// "" or the first output that is not E9: bit for bit before SiLU, after it within 1e-6 and the rounding to o's type.
inline std::string wrong_output(const ConvCase& made, const HostTensor& o, const std::vector<std::int32_t>& status) {
  const ConvSpec& spec = made.spec();
  const double rounding = spec.output == CANOPY_F32 ? 0 : spec.output == CANOPY_BF16 ? 0x1p-8 : 0x1p-10;
  HostTensor one = HostTensor::make(spec.output, {1});
  const auto at = [](int b, int node, int c) {
    return " at [" + std::to_string(b) + "][" + std::to_string(node) + "][" + std::to_string(c) + "]";
  };
  for (int b = 0; b < spec.batch; ++b) {
    if (status[b] != 0) return "row_status " + std::to_string(status[b]) + " of sequence " + std::to_string(b);
    for (int node = 0; node < spec.nodes; ++node) {
      for (int c = -spec.gap; c < spec.channels; ++c) {
        const std::int64_t i = made.output_at(b, node, c);
        const std::size_t size = host::size_of(spec.output);
        if (c < 0 || !made.live(b, node)) {
          for (std::size_t byte = 0; byte < size; ++byte)
            if (o.bytes[i * size + byte] != std::byte{0xff}) return "written where nothing belongs" + at(b, node, c);
          continue;
        }
        const float y = made.convolved(b, node, c);
        if (!spec.silu) {
          one.set(0, y);
          for (std::size_t byte = 0; byte < size; ++byte)
            if (o.bytes[i * size + byte] != one.bytes[byte])
              return std::to_string(o.get(i)) + ", expected " + std::to_string(y) + at(b, node, c);
          continue;
        }
        const double expected = y / (1 + std::exp(-double(y))), off = std::fabs(o.get(i) - expected);
        if (!(off <= 1e-6 * std::max(1.0, std::fabs(expected)) + rounding * std::fabs(expected)))
          return std::to_string(o.get(i)) + ", expected " + std::to_string(expected) + at(b, node, c);
      }
    }
  }
  return {};
}

// The pool after a commit, from the definition.
inline HostTensor pool_after(const ConvCase& made) {
  const ConvSpec& spec = made.spec();
  HostTensor pool = made.buffers.at("state");
  for (int b = 0; b < spec.batch; ++b) {
    const int leaf = made.buffers.at("leaf").i32()[b], second = made.buffers.at("track_leaf").i32()[b];
    if (leaf < 0 || !made.live(b, leaf)) continue;
    const auto write = [&](std::int64_t slot, int node) {
      for (int layer = 0; slot >= 0 && layer < spec.layers; ++layer)
        for (int c = 0; c < spec.channels; ++c) {
          const std::vector<float> window = made.inputs(layer, b, node, c, spec.width - 1);
          for (int tap = 0; tap < spec.width - 1; ++tap)
            pool.set(made.state_at(layer, slot, c, tap), window[static_cast<std::size_t>(tap)]);
        }
    };
    write(made.slot(spec.moved ? "dst" : "slot", b), leaf);
    if (spec.tracked && made.live(b, second)) write(made.slot("track", b), second);
  }
  return pool;
}

}  // namespace canopy::tests
