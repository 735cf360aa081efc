// A GPU in one thread of the host, for testing the kernels of src/cuda where there is no GPU: every CUDA thread is a
// fiber, warps meet in collectives, copies to shared memory come as late as they may.
//
// What it finds: wrong results, deadlocks, reads and writes past an allocation (a page that cannot be touched follows
// each), misaligned vectors, shared memory read before it was written (it starts as NaN), and many a missing barrier:
// between two collectives a lane runs alone, in an order that CANOPY_EMULATED_SEED shuffles. What it does not: the
// rounding of tensor cores and approximate instructions, memory ordering between the lanes of one store, speed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>

namespace emulated {

inline constexpr int kArchitecture = __CUDA_ARCH__ / 10;

// Runs body() as every thread of every CTA, one CTA after the other. Grid and block as {x, y, z}.
void run(const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         const std::function<void()>& body);

[[noreturn]] void stop(const char* format, ...);  // with the position in the grid

std::uint8_t* shared_memory();
int lane();

// What the 32 lanes of a warp deposited for one collective, by lane.
inline constexpr int kMostDeposited = 64;
struct Deposits {
  std::uint8_t bytes[32][kMostDeposited];
  std::uint32_t lanes;  // that took part
};
// Waits for all lanes that have not returned yet. `what` names the collective: all must be at the same.
const Deposits& meet_warp(std::uint32_t mask, const char* what, const void* mine, std::size_t bytes);
template <class T>
const Deposits& deposit(std::uint32_t mask, const char* what, const T& mine) {
  static_assert(sizeof(T) <= kMostDeposited);
  return meet_warp(mask, what, &mine, sizeof(T));
}
template <class T>
T of_lane(const Deposits& all, int lane) {
  T x;
  std::memcpy(&x, all.bytes[lane & 31], sizeof x);
  return x;
}

// Barrier 0 .. 15 of the CTA; threads < 0: all that have not returned. Returns the `or` of the values.
int meet_block(int barrier, int threads, int value);
void arrive_block(int barrier, int threads);  // the same without waiting

// cp.async and mbarriers.
void copy(void* to, const void* from, std::size_t bytes, bool valid);
void end_copies();
void wait_for_copies(int latest_groups);  // -1: all, whether a group was ended or not
void barrier_init(std::uint64_t* barrier, int arrivals);
void barrier_arrive(std::uint64_t* barrier);
void barrier_arrive_after_copies(std::uint64_t* barrier);
void barrier_wait(std::uint64_t* barrier, std::uint32_t phase);

// Stops unless the address is in the CTA's dynamic shared memory and a multiple of `alignment`.
void expect_shared(const void* at, std::size_t bytes, std::size_t alignment);

}  // namespace emulated
