// Columns of a head's state in registers: all K keys of 4 C W value columns, W warps a CTA. Eight lanes share a column,
// each with K / 8 of its keys; a thread holds C columns. Both layouts and all types of the pool.
//
// Slot r of a thread holds the column r ^ lane (its low bits) of the thread's C, so a sum over the eight lanes halves
// the columns with every step (slot r + 1 goes to the neighbour, whose slot r is the same column) and ends with one
// column a lane: for C = 4 four shuffles where a butterfly for each column takes twelve. The additions and their order
// are the butterfly's, so results do not depend on C or W.
#pragma once

#include <type_traits>

#include "cuda/access.cuh"

namespace canopy::cuda {

template <int K, int C, int W>
struct StateTile {
  static_assert(C == 1 || C == 2 || C == 4, "columns a thread: halved by exchanges among eight lanes");
  static constexpr int kColumns = 4 * C * W, kThreads = 32 * W, kKeys = K / 8;

  float s[C][kKeys];  // S[key(n)][column(r)]

  // First of the thread's columns within the tile, that of slot r, and the key of s[r][n].
  __device__ static int first_column() { return (threadIdx.x / 8) * C; }
  __device__ static int slot_of(int r) { return r ^ (threadIdx.x & (C - 1)); }
  __device__ static int column(int r) { return first_column() + slot_of(r); }
  __device__ static int key(int n) { return n / 4 * 32 + threadIdx.x % 8 * 4 + n % 4; }
};

// One head of the pool; strides in bytes. `wide`: four elements a load are aligned.
struct HeadState {
  char* data;
  std::int64_t row;  // from column to column (VK) or key to key (KV)
  int dtype;
  bool vk, wide;
};

// The pool's head as `Problem` describes it.
__device__ inline HeadState head_state(const Problem& p, int layer, std::int64_t slot, int hv, bool wide) {
  const std::int64_t bytes = p.state.dtype == CANOPY_F32 ? 4 : 2;
  return {static_cast<char*>(p.state.data) +
              bytes * (layer * p.state.stride[0] + slot * p.state.stride[1] + hv * p.state.stride[2]),
          bytes * p.state.stride[3], p.state.dtype, p.state_layout == CANOPY_STATE_VK, wide};
}

struct AsF32 {
  using Bits = float;
  __device__ static float from(float x) { return x; }
  __device__ static float to(float x) { return x; }
};
template <int Type>
struct AsHalf {
  using Bits = unsigned short;
  __device__ static float from(Bits x) { return widen(Type, x); }
  __device__ static Bits to(float x) { return narrow(Type, x); }
};

template <class Work>
__device__ inline void with_type(int dtype, Work&& work) {
  if (__builtin_expect(dtype == CANOPY_F32, 1))
    work(AsF32{});
  else if (dtype == CANOPY_BF16)
    work(AsHalf<CANOPY_BF16>{});
  else
    work(AsHalf<CANOPY_F16>{});
}

template <class Bits, int N>
struct alignas(N * sizeof(Bits)) Pack {
  Bits x[N];
};

// Calls touch(size, i, r, n, address) for each of a thread's packs of elements that are neighbours in memory: four keys
// from n on of the thread's column r (VK, size 4), or its C columns of key n (KV, size -C). i counts the packs. Columns
// in order, so that eight lanes take one after the other: by slots every lane would take half a sector of its own.
template <class Type, int K, int C, int W, class Touch>
__device__ inline void for_each_pack(const HeadState& head, int column0, Touch&& touch) {
  using Tile = StateTile<K, C, W>;
  using Bits = typename Type::Bits;
  std::int64_t step = head.row;
  hold(step);  // addresses are worked out here, not ahead of a loop around it and held in registers
  if (__builtin_expect(head.vk, 1)) {
#pragma unroll
    for (int r = 0; r < C; ++r) {
      char* const row = head.data + (column0 + Tile::first_column() + r) * step + Tile::key(0) * sizeof(Bits);
#pragma unroll
      for (int n = 0; n < Tile::kKeys; n += 4)
        touch(std::integral_constant<int, 4>{}, (r * Tile::kKeys + n) / 4, r, n,
              reinterpret_cast<Pack<Bits, 4>*>(row + n * 8 * sizeof(Bits)));
    }
  } else {
    char* const first = head.data + (column0 + Tile::first_column()) * static_cast<std::int64_t>(sizeof(Bits));
#pragma unroll
    for (int n = 0; n < Tile::kKeys; ++n)
      touch(std::integral_constant<int, -C>{}, n, 0, n, reinterpret_cast<Pack<Bits, C>*>(first + Tile::key(n) * step));
  }
}

// Calls touch(address, i) for each of a thread's elements, key i % (K / 8) of column i / (K / 8), where nothing is
// aligned.
template <class Bits, int K, int C, int W, class Touch>
__device__ inline void for_each_element(const HeadState& head, int column0, Touch&& touch) {
  using Tile = StateTile<K, C, W>;
  const std::int64_t step = sizeof(Bits), by_column = head.vk ? head.row : step, by_key = head.vk ? step : head.row;
#pragma unroll 1
  for (int i = 0; i < C * Tile::kKeys; ++i)
    touch(reinterpret_cast<Bits*>(head.data + (column0 + Tile::first_column() + i / Tile::kKeys) * by_column +
                                  Tile::key(i % Tile::kKeys) * by_key),
          i);
}

// Slots of a thread from its C columns in order, and back: x[r] and x[r ^ lane] trade places.
template <int C>
__device__ inline void to_slots(float (&x)[C]) {
#pragma unroll
  for (int bit = 1; bit < C; bit *= 2)
#pragma unroll
    for (int r = 0; r < C; ++r) {
      if (r & bit) continue;
      const bool swap = threadIdx.x & bit;
      const float low = swap ? x[r | bit] : x[r], high = swap ? x[r] : x[r | bit];
      x[r] = low, x[r | bit] = high;
    }
}

// Columns in order to slots, or back: the permutation is its own inverse.
template <int K, int C, int W>
__device__ inline void to_slots(StateTile<K, C, W>& tile) {
  if constexpr (C > 1) {
#pragma unroll
    for (int n = 0; n < K / 8; ++n) {
      float x[C];
#pragma unroll
      for (int r = 0; r < C; ++r) x[r] = tile.s[r][n];
      to_slots<C>(x);
#pragma unroll
      for (int r = 0; r < C; ++r) tile.s[r][n] = x[r];
    }
  }
}

// A pack into the tile's registers, columns in order.
template <class Type, int Size, class Bits, int K, int C, int W>
__device__ inline void take_pack(std::integral_constant<int, Size>, const Bits* pack, int r, int n,
                                 StateTile<K, C, W>& tile) {
#pragma unroll
  for (int e = 0; e < (Size < 0 ? -Size : Size); ++e) {
    const float x = Type::from(pack[e]);
    if constexpr (Size < 0)
      tile.s[e][n] = x;
    else
      tile.s[r][n + e] = x;
  }
}

// `buffer`: K kColumns floats of shared memory, by way of which the state comes and goes where it is not `wide`, a
// thread's elements in words of its own.
template <int K, int C, int W>
__device__ inline void elements_from(const float* buffer, StateTile<K, C, W>& tile) {
#pragma unroll
  for (int i = 0; i < C * K / 8; ++i) tile.s[i / (K / 8)][i % (K / 8)] = buffer[i * 32 * W + threadIdx.x];
}
template <int K, int C, int W>
__device__ inline void elements_to(const StateTile<K, C, W>& tile, float* buffer) {
#pragma unroll
  for (int i = 0; i < C * K / 8; ++i) buffer[i * 32 * W + threadIdx.x] = tile.s[i / (K / 8)][i % (K / 8)];
}
template <int K, int C, int W>
__device__ inline void load_elements(const HeadState& head, int column0, float* buffer) {
  with_type(head.dtype, [&](auto type) {
    for_each_element<typename decltype(type)::Bits, K, C, W>(
        head, column0, [&](auto* at, int i) { buffer[i * 32 * W + threadIdx.x] = type.from(*at); });
  });
}

// Columns in order; to_slots follows when the state has come.
template <int K, int C, int W>
__device__ inline void load_tile(const HeadState& head, int column0, float* buffer, StateTile<K, C, W>& tile) {
  if (__builtin_expect(!head.wide, 0)) {
    load_elements<K, C, W>(head, column0, buffer);
    return elements_from(buffer, tile);
  }
  with_type(head.dtype, [&](auto type) {
    using Type = decltype(type);
    for_each_pack<Type, K, C, W>(head, column0, [&](auto size, int, int r, int n, auto* at) {
      const auto pack = *at;
      take_pack<Type>(size, pack.x, r, n, tile);
    });
  });
}

// An aligned VK state of fp32, the usual one, from the addresses of the thread's columns in order.
template <int K, int C, int W>
__device__ inline void load_columns(const char* const (&at)[C], StateTile<K, C, W>& tile) {
#pragma unroll
  for (int r = 0; r < C; ++r)
#pragma unroll
    for (int n = 0; n < K / 8; n += 4) {
      const float4 four = *reinterpret_cast<const float4*>(at[r] + n * 32);
      tile.s[r][n] = four.x, tile.s[r][n + 1] = four.y, tile.s[r][n + 2] = four.z, tile.s[r][n + 3] = four.w;
    }
}

// The same into the buffer, for receive_tile.
template <int K, int C, int W>
__device__ inline void send_columns(const char* const (&at)[C], float* buffer) {
#pragma unroll
  for (int r = 0; r < C; ++r)
#pragma unroll
    for (int n = 0; n < K / 8; n += 4) {
      float4* const to = reinterpret_cast<float4*>(buffer) + (r * (K / 8) + n) / 4 * 32 * W + threadIdx.x;
      copy_async<16>(to, at[r] + n * 32);
    }
}

// The same always by way of the buffer, so that no registers are held while the state is on its way: send_tile starts
// the copies, and after a wait receive_tile takes what has come. Every thread receives what it sent for.
template <int K, int C, int W>
__device__ inline void send_tile(const HeadState& head, int column0, float* buffer) {
  if (__builtin_expect(!head.wide, 0)) return load_elements<K, C, W>(head, column0, buffer);
  with_type(head.dtype, [&](auto type) {
    for_each_pack<decltype(type), K, C, W>(head, column0, [&](auto, int i, int, int, auto* at) {
      using Packed = std::remove_reference_t<decltype(*at)>;
      constexpr int bytes = sizeof(Packed);
      static_assert(bytes >= 4, "what cp.async copies");
      Packed* const to = reinterpret_cast<Packed*>(buffer) + i * 32 * W + threadIdx.x;
      copy_async<bytes>(to, at);
    });
  });
}
template <int K, int C, int W>
__device__ inline void receive_tile(const HeadState& head, const float* buffer, StateTile<K, C, W>& tile) {
  if (__builtin_expect(!head.wide, 0)) {
    elements_from(buffer, tile);
    return to_slots(tile);
  }
  with_type(head.dtype, [&](auto type) {
    using Type = decltype(type);
    for_each_pack<Type, K, C, W>(head, 0, [&](auto size, int i, int r, int n, auto* at) {
      using Packed = std::remove_reference_t<decltype(*at)>;
      // Of VK the column of slot r is taken, so that nothing has to be moved afterwards.
      const int taken = size.value < 0 ? i : StateTile<K, C, W>::slot_of(r) * (K / 32) + n / 4;
      const Packed pack = reinterpret_cast<const Packed*>(buffer)[taken * 32 * W + threadIdx.x];
      take_pack<Type>(size, pack.x, r, n, tile);
    });
  });
  if (!head.vk) to_slots(tile);
}

template <int K, int C, int W>
__device__ inline void store_tile(const HeadState& head, int column0, float* buffer, StateTile<K, C, W>& tile) {
  to_slots(tile);
  if (__builtin_expect(!head.wide, 0)) {
    elements_to(tile, buffer);
    with_type(head.dtype, [&](auto type) {
      for_each_element<typename decltype(type)::Bits, K, C, W>(
          head, column0, [&](auto* at, int i) { *at = type.to(buffer[i * 32 * W + threadIdx.x]); });
    });
    return;
  }
  with_type(head.dtype, [&](auto type) {
    for_each_pack<decltype(type), K, C, W>(head, column0, [&](auto size, int, int r, int n, auto* at) {
      std::remove_reference_t<decltype(*at)> pack;
#pragma unroll
      for (int e = 0; e < (size.value < 0 ? C : 4); ++e)
        pack.x[e] = type.to(size.value < 0 ? tile.s[size.value < 0 ? e : 0][n] : tile.s[r][size.value < 0 ? 0 : n + e]);
      *at = pack;
    });
  });
}

// x[n] = row[key(n)], a row of K floats in shared memory.
template <int N>
__device__ inline void read_keys(const float* row, float (&x)[N]) {
#pragma unroll
  for (int n = 0; n < N; n += 4) {
    const float4 four = *reinterpret_cast<const float4*>(row + n * 8 + threadIdx.x % 8 * 4);
    x[n] = four.x, x[n + 1] = four.y, x[n + 2] = four.z, x[n + 3] = four.w;
  }
}

// The thread's part of x . S for each of its columns.
template <int K, int C, int W>
__device__ inline void dot(const StateTile<K, C, W>& tile, const float (&x)[K / 8], float (&sum)[C]) {
#pragma unroll
  for (int r = 0; r < C; ++r) {
    float a = 0, b = 0;  // two chains: the latency of one would bound a node's step
#pragma unroll
    for (int n = 0; n < K / 8; n += 2) a = fmaf(tile.s[r][n], x[n], a), b = fmaf(tile.s[r][n + 1], x[n + 1], b);
    sum[r] = a + b;
  }
}

// The eight lanes' sum for the column of the thread's slot 0.
template <int C>
__device__ inline float sum_lanes(float (&x)[C]) {
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
    if (step < C) {
#pragma unroll
      for (int r = 0; r < C; r += 2 * step) x[r] += __shfl_xor_sync(0xffffffffu, x[r + step], step);
    } else {
      x[0] += __shfl_xor_sync(0xffffffffu, x[0], step);
    }
  }
  return x[0];
}

// The same for every slot's column, the same bits: more shuffles, but none is needed afterwards to spread what follows.
template <int C>
__device__ inline void sum_lanes_of_each(float (&x)[C]) {
#pragma unroll
  for (int step = 1; step < 8; step *= 2) {
    float theirs[C];
#pragma unroll
    for (int r = 0; r < C; ++r) theirs[r] = __shfl_xor_sync(0xffffffffu, x[step < C ? r ^ step : r], step);
#pragma unroll
    for (int r = 0; r < C; ++r) x[r] += theirs[r];
  }
}

// Each slot's value where every lane has that of its slot 0.
template <int C>
__device__ inline void spread(float u, float (&each)[C]) {
#pragma unroll
  for (int r = 0; r < C; ++r) each[r] = r == 0 ? u : __shfl_xor_sync(0xffffffffu, u, r);
}

// S += k u^T.
template <int K, int C, int W>
__device__ inline void add_outer(StateTile<K, C, W>& tile, const float (&k)[K / 8], const float (&each)[C]) {
#pragma unroll
  for (int r = 0; r < C; ++r)
#pragma unroll
    for (int n = 0; n < K / 8; ++n) tile.s[r][n] = fmaf(k[n], each[r], tile.s[r][n]);
}

template <int K, int C, int W>
__device__ inline void scale_tile(StateTile<K, C, W>& tile, float by) {
#pragma unroll
  for (int r = 0; r < C; ++r)
#pragma unroll
    for (int n = 0; n < K / 8; ++n) tile.s[r][n] *= by;
}

}  // namespace canopy::cuda
