// The parts of make_problem(): the shapes it settled on and the tensors each part fills.
#pragma once

#include "host/host_problem.hpp"
#include "host/random.hpp"

namespace canopy::host {

struct Shapes {
  std::int64_t B, T, H, HV, K, V, slots;
  std::vector<std::int32_t> live;  // [B] nodes of each sequence
};

// Names of the random streams, one a tensor.
enum class StreamId : std::uint64_t { q, k, key_base, length, v, state, gate, beta, a_log, dt_bias, slot, count };
inline Stream stream(const ProblemSpec& spec, StreamId id) { return Stream(spec.seed, static_cast<std::uint64_t>(id)); }

// Tensors of more elements than this are filled by all threads: any order gives the same numbers (host/random.hpp).
inline constexpr std::int64_t kParallelElements = 1 << 18;

void fill_keys(const ProblemSpec& spec, const Shapes& shapes, HostProblem& problem);    // q, k
void fill_values(const ProblemSpec& spec, const Shapes& shapes, HostProblem& problem);  // v, state
void fill_gates(const ProblemSpec& spec, const Shapes& shapes,
                HostProblem& problem);  // g, beta or a, b, A_log, dt_bias

}  // namespace canopy::host
