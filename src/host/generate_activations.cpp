// Queries, keys, values and state of generated problems.
#include <cmath>

#include "element.hpp"
#include "host/generate.hpp"

namespace canopy::host {
namespace {

void normal_vector(const Stream& random, std::uint64_t at, std::vector<float>& out) {
  for (std::size_t i = 0; i < out.size(); ++i) out[i] = random.normal(at + i);
}

double dot(const std::vector<float>& x, const std::vector<float>& y) {
  double sum = 0;
  for (std::size_t i = 0; i < x.size(); ++i) sum += static_cast<double>(x[i]) * y[i];
  return sum;
}

void rescale(std::vector<float>& x, double factor) {
  for (float& value : x) value = static_cast<float>(value * factor);
}

void normalise(std::vector<float>& x) { rescale(x, 1.0 / std::sqrt(dot(x, x))); }

// A unit key at `cosine` to the unit vector `base`; two of them then have cosine^2 + noise: the square root is taken.
void lean(std::vector<float>& key, const std::vector<float>& base, double cosine) {
  const double along = dot(key, base);
  for (std::size_t i = 0; i < key.size(); ++i) key[i] -= static_cast<float>(along * base[i]);
  normalise(key);
  const double c = std::sqrt(cosine), s = std::sqrt(1.0 - cosine);
  for (std::size_t i = 0; i < key.size(); ++i) key[i] = static_cast<float>(c * base[i] + s * key[i]);
}

}  // namespace

// Unit vectors, unless the problem asks for the L2 norm: then of lengths 0.5 to 2 for the kernel to normalise.
void fill_keys(const ProblemSpec& spec, const Shapes& s, HostProblem& problem) {
  HostTensor q = HostTensor::make(spec.input, {s.B, s.T, s.H, s.K}), k = q;
  const Stream q_random = stream(spec, StreamId::q), k_random = stream(spec, StreamId::k),
               base_random = stream(spec, StreamId::key_base), length = stream(spec, StreamId::length);
  const bool based = spec.keys == Keys::equal || spec.keys == Keys::similar || spec.keys == Keys::alternating ||
                     spec.keys == Keys::opposite;
#pragma omp parallel for collapse(2) if (q.elements() > kParallelElements)
  for (std::int64_t b = 0; b < s.B; ++b) {
    for (std::int64_t i = 0; i < s.T; ++i) {
      std::vector<float> query(static_cast<std::size_t>(s.K)), key = query, base = query, other = query;
      for (std::int64_t h = 0; h < s.H; ++h) {
        const std::uint64_t row = static_cast<std::uint64_t>((b * s.T + i) * s.H + h);
        const std::uint64_t at = row * static_cast<std::uint64_t>(s.K);
        normal_vector(q_random, at, query), normalise(query);
        if (based) {  // the keys of a head lean on one vector (or two)
          const std::uint64_t head = static_cast<std::uint64_t>((b * s.H + h) * 2 * s.K);
          normal_vector(base_random, head, base), normalise(base);
          normal_vector(base_random, head + static_cast<std::uint64_t>(s.K), other), normalise(other);
        }
        switch (spec.keys) {
          case Keys::equal:
            key = base;
            break;
          case Keys::alternating:
            key = i % 2 ? other : base;
            break;
          case Keys::opposite:
            key = base, rescale(key, i % 2 ? -1.0 : 1.0);
            break;
          case Keys::zero:  // and every other query
            key.assign(key.size(), 0.0f);
            if (i % 2) query.assign(query.size(), 0.0f);
            break;
          case Keys::random:
          case Keys::similar:
          case Keys::tiny:
            normal_vector(k_random, at, key), normalise(key);
            if (spec.keys == Keys::similar) lean(key, base, spec.key_cosine);
            if (spec.keys == Keys::tiny) rescale(key, 1e-7);
            break;
        }
        if (spec.l2norm) {
          rescale(query, 0.5 + 1.5 * length.uniform(2 * row));
          if (spec.keys != Keys::tiny) rescale(key, 0.5 + 1.5 * length.uniform(2 * row + 1));
        }
        for (std::int64_t d = 0; d < s.K; ++d) {
          store_element(spec.input, q.bytes.data(), static_cast<std::int64_t>(at) + d,
                        query[static_cast<std::size_t>(d)]);
          store_element(spec.input, k.bytes.data(), static_cast<std::int64_t>(at) + d,
                        key[static_cast<std::size_t>(d)]);
        }
      }
    }
  }
  problem.tensors["q"] = std::move(q), problem.tensors["k"] = std::move(k);
}

// Standard normal; the state times state_scale. Both layouts hold the same state.
void fill_values(const ProblemSpec& spec, const Shapes& s, HostProblem& problem) {
  HostTensor v = HostTensor::make(spec.input, {s.B, s.T, s.HV, s.V});
  const Stream v_random = stream(spec, StreamId::v), state_random = stream(spec, StreamId::state);
  const std::int64_t values = v.elements();
#pragma omp parallel for if (values > kParallelElements)
  for (std::int64_t i = 0; i < values; ++i) {
    store_element(spec.input, v.bytes.data(), i, v_random.normal(static_cast<std::uint64_t>(i)));
  }
  problem.tensors["v"] = std::move(v);

  const bool vk = spec.layout == CANOPY_STATE_VK;
  HostTensor state = HostTensor::make(spec.state, {s.slots, s.HV, vk ? s.V : s.K, vk ? s.K : s.V});
  const float scale = static_cast<float>(spec.state_scale);
#pragma omp parallel for if (state.elements() > kParallelElements)
  for (std::int64_t head = 0; head < s.slots * s.HV; ++head) {
    std::uint64_t at = static_cast<std::uint64_t>(head * s.V * s.K);
    for (std::int64_t row = 0; row < s.V; ++row) {
      for (std::int64_t col = 0; col < s.K; ++col, ++at) {
        const std::int64_t inside = vk ? row * s.K + col : col * s.V + row;
        store_element(spec.state, state.bytes.data(), head * s.V * s.K + inside, scale * state_random.normal(at));
      }
    }
  }
  problem.tensors["state"] = std::move(state);
}

}  // namespace canopy::host
