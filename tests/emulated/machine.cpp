#include "machine.hpp"

#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <memory>
#include <random>
#include <vector>

#include "cuda_runtime.h"

uint3 threadIdx, blockIdx;
dim3 blockDim, gridDim;

namespace emulated {
namespace {

constexpr std::size_t kStack = 256 * 1024;

struct Copy {
  void* to;
  const void* from;
  std::size_t bytes;
  bool valid;
  std::uint64_t* barrier;  // instead: an arrival
};

enum class Wait { kNothing, kWarp, kBlock, kBarrier };

struct Fiber {
  jmp_buf here;
  std::uint8_t* stack = nullptr;
  bool started = false, done = false;
  Wait wait = Wait::kNothing;
  std::uint64_t generation = 0;   // of what is waited for
  int barrier = 0;                // kBlock
  std::uint64_t* word = nullptr;  // kBarrier
  std::uint32_t phase = 0;
  unsigned sits_out = 0;  // turns
  std::vector<Copy> copies;
  std::vector<std::size_t> groups;  // ends of groups in `copies`
};

struct Warp {
  Deposits deposits[2];
  std::uint32_t arrived = 0;
  std::uint64_t generation = 0;
  const char* what = nullptr;
};

struct Block {
  int arrived = 0, threads = 0, value = 0, results[2] = {};
  std::uint64_t generation = 0;
};

// An mbarrier's 64 bits.
struct Barrier {
  std::uint16_t expected, pending;
  std::uint32_t phase;
};
static_assert(sizeof(Barrier) == 8);

struct Machine {
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Block blocks[16];
  std::vector<std::uint8_t> memory;
  std::uint8_t* shared = nullptr;
  std::size_t shared_bytes = 0;
  jmp_buf scheduler;
  int current = 0, live = 0;
  const std::function<void()>* body = nullptr;
  std::mt19937 random;
  bool shuffled = false;
  std::vector<std::uint8_t*> stacks;
} m;

Fiber& self() { return m.fibers[static_cast<std::size_t>(m.current)]; }
Warp& own_warp() { return m.warps[static_cast<std::size_t>(m.current) / 32]; }
std::uint32_t live_lanes(int warp) {
  std::uint32_t lanes = 0;
  for (int i = 0; i < 32 && 32 * warp + i < static_cast<int>(m.fibers.size()); ++i)
    if (!m.fibers[static_cast<std::size_t>(32 * warp + i)].done) lanes |= 1u << i;
  return lanes;
}

void yield() {
  if (_setjmp(self().here) == 0) _longjmp(m.scheduler, 1);
}

void entry() {
  (*m.body)();
  self().done = true;
  --m.live;
  _longjmp(m.scheduler, 1);
}

void set_position(int thread) {
  m.current = thread;
  const unsigned t = static_cast<unsigned>(thread);
  threadIdx.x = t % blockDim.x, threadIdx.y = t / blockDim.x % blockDim.y, threadIdx.z = t / blockDim.x / blockDim.y;
}

// Runs a thread until it waits or returns.
void resume(int thread) {
  set_position(thread);
  Fiber& fiber = self();
  fiber.wait = Wait::kNothing;
  if (_setjmp(m.scheduler) != 0) return;
  if (fiber.started) _longjmp(fiber.here, 1);
  fiber.started = true;
  ucontext_t context;
  getcontext(&context);
  context.uc_stack.ss_sp = fiber.stack;
  context.uc_stack.ss_size = kStack;
  context.uc_link = nullptr;
  makecontext(&context, entry, 0);
  setcontext(&context);
}

// A barrier of the block is complete as soon as the threads it waits for are there, or have returned.
bool complete_block(Block& block) {
  if (block.arrived == 0 || block.arrived < (block.threads < 0 ? m.live : block.threads)) return false;
  block.results[block.generation % 2] = block.value;
  block.arrived = block.value = 0;
  ++block.generation;
  return true;
}
bool complete_warp(int index) {
  Warp& warp = m.warps[static_cast<std::size_t>(index)];
  if (warp.arrived == 0 || (live_lanes(index) & ~warp.arrived) != 0) return false;
  warp.deposits[warp.generation % 2].lanes = warp.arrived;
  warp.arrived = 0;
  ++warp.generation;
  return true;
}

bool ready(int thread) {
  Fiber& fiber = m.fibers[static_cast<std::size_t>(thread)];
  if (fiber.done) return false;
  switch (fiber.wait) {
    case Wait::kNothing:
      return true;
    case Wait::kWarp:
      return m.warps[static_cast<std::size_t>(thread) / 32].generation != fiber.generation ||
             complete_warp(thread / 32);
    case Wait::kBlock: {
      Block& block = m.blocks[fiber.barrier];
      return block.generation != fiber.generation || complete_block(block);
    }
    case Wait::kBarrier:
      return (reinterpret_cast<Barrier*>(fiber.word)->phase & 1) != fiber.phase;
  }
  return false;
}

void arrive(std::uint64_t* word) {
  auto& barrier = *reinterpret_cast<Barrier*>(word);
  if (barrier.expected == 0xffff) stop("arrival at an mbarrier that was not initialised");
  if (--barrier.pending == 0) barrier.pending = barrier.expected, ++barrier.phase;
}

// The fiber's first `count` copies and arrivals happen.
void happen(Fiber& fiber, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    const Copy& c = fiber.copies[i];
    if (c.barrier)
      arrive(c.barrier);
    else if (c.valid)
      std::memcpy(c.to, c.from, c.bytes);
    else
      std::memset(c.to, 0, c.bytes);
  }
  fiber.copies.erase(fiber.copies.begin(), fiber.copies.begin() + static_cast<std::ptrdiff_t>(count));
}

// When nothing else can go on, some thread's copies arrive.
bool copies_arrive() {
  const std::size_t n = m.fibers.size(), first = m.shuffled ? m.random() % n : 0;
  for (std::size_t i = 0; i < n; ++i) {
    Fiber& fiber = m.fibers[(first + i) % n];
    std::size_t last = 0;
    for (std::size_t c = 0; c < fiber.copies.size(); ++c)
      if (fiber.copies[c].barrier) last = c + 1;
    if (last == 0) continue;
    happen(fiber, last);
    for (std::size_t& end : fiber.groups) end -= std::min(end, last);
    return true;
  }
  return false;
}

void deadlock() {
  for (std::size_t i = 0; i < m.fibers.size(); i += 32) {
    const Fiber& f = m.fibers[i];
    std::fprintf(stderr, "  warp %zu: lane 0 %s %s\n", i / 32,
                 f.done                     ? "has returned"
                 : f.wait == Wait::kWarp    ? "waits for its warp at"
                 : f.wait == Wait::kBlock   ? "waits for the block"
                 : f.wait == Wait::kBarrier ? "waits for an mbarrier"
                                            : "runs",
                 f.wait == Wait::kWarp ? m.warps[i / 32].what : "");
  }
  stop("deadlock");
}

void run_block(int threads) {
  m.fibers.resize(static_cast<std::size_t>(threads));
  m.warps.assign(static_cast<std::size_t>(threads + 31) / 32, {});
  for (int t = 0; t < threads; ++t) {
    Fiber& fiber = m.fibers[static_cast<std::size_t>(t)];
    fiber = Fiber{};
    if (static_cast<int>(m.stacks.size()) <= t)
      m.stacks.push_back(static_cast<std::uint8_t*>(
          mmap(nullptr, kStack, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)));
    fiber.stack = m.stacks[static_cast<std::size_t>(t)];
  }
  for (Block& block : m.blocks) block = {};
  m.live = threads;
  std::fill(m.memory.begin(), m.memory.end(), std::uint8_t{0xff});
  std::vector<int> warps(m.warps.size()), lanes(32);
  for (std::size_t i = 0; i < warps.size(); ++i) warps[i] = static_cast<int>(i);
  for (std::size_t i = 0; i < 32; ++i) lanes[i] = static_cast<int>(i);
  while (m.live > 0) {
    bool progress = false;
    if (m.shuffled) std::shuffle(warps.begin(), warps.end(), m.random);
    for (const int warp : warps) {
      bool again = true;
      while (again) {
        again = false;
        if (m.shuffled) std::shuffle(lanes.begin(), lanes.end(), m.random);
        for (const int i : lanes) {
          const int thread = 32 * warp + i;
          if (thread >= threads) continue;
          if (unsigned& turns = m.fibers[static_cast<std::size_t>(thread)].sits_out; turns > 0) {
            --turns, progress = true;
            continue;
          }
          if (!ready(thread)) continue;
          resume(thread);
          again = progress = true;
        }
        if (m.shuffled && m.random() % 8 == 0) break;  // another warp's turn
      }
    }
    const bool early = m.shuffled && m.random() % 4 == 0 && copies_arrive();
    if (!progress && !early && !copies_arrive() && m.live > 0) deadlock();
  }
}

// Who waits may go on long before the one who arrived does.
void linger() {
  if (!m.shuffled || m.random() % 8 != 0) return;
  self().sits_out = 1 + m.random() % 16;
  yield();
}

Block& join_block(int barrier, int threads, int value) {
  Block& block = m.blocks[barrier];
  if (block.arrived == 0) block.threads = threads;
  if (block.threads != threads) stop("barrier %d for %d threads and for %d", barrier, block.threads, threads);
  ++block.arrived;
  block.value |= value;
  return block;
}

}  // namespace

void run(const unsigned (&grid)[3], const unsigned (&block)[3], std::size_t shared_bytes,
         const std::function<void()>& body) {
  const char* const seed = std::getenv("CANOPY_EMULATED_SEED");
  m.shuffled = seed && *seed && std::strcmp(seed, "0") != 0;
  m.random.seed(seed ? static_cast<unsigned>(std::strtoul(seed, nullptr, 10)) : 0);
  m.memory.resize(shared_bytes + 128);
  m.shared = m.memory.data() + (128 - reinterpret_cast<std::uintptr_t>(m.memory.data()) % 128) % 128;
  m.shared_bytes = shared_bytes;
  m.body = &body;
  gridDim = dim3(grid[0], grid[1], grid[2]);
  blockDim = dim3(block[0], block[1], block[2]);
  for (unsigned z = 0; z < grid[2]; ++z)
    for (unsigned y = 0; y < grid[1]; ++y)
      for (unsigned x = 0; x < grid[0]; ++x) {
        blockIdx.x = x, blockIdx.y = y, blockIdx.z = z;
        run_block(static_cast<int>(block[0] * block[1] * block[2]));
      }
}

void stop(const char* format, ...) {
  std::fprintf(stderr, "emulated GPU, block (%u, %u, %u), thread %d: ", blockIdx.x, blockIdx.y, blockIdx.z, m.current);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::fputc('\n', stderr);
  std::abort();
}

std::uint8_t* shared_memory() { return m.shared; }
int lane() { return m.current % 32; }

const Deposits& meet_warp(std::uint32_t mask, const char* what, const void* mine, std::size_t bytes) {
  const int index = m.current / 32, me = lane();
  Warp& warp = own_warp();
  if ((live_lanes(index) & ~mask) != 0) stop("%s with mask %08x: every lane is expected", what, mask);
  if (warp.arrived == 0) warp.what = what;
  if (std::strcmp(warp.what, what) != 0) stop("%s, while other lanes of the warp are at %s", what, warp.what);
  Deposits& deposits = warp.deposits[warp.generation % 2];
  if (bytes > 0) std::memcpy(deposits.bytes[me], mine, bytes);
  warp.arrived |= 1u << me;
  Fiber& fiber = self();
  fiber.generation = warp.generation;
  if (!complete_warp(index)) {
    fiber.wait = Wait::kWarp;
    yield();
  }
  return deposits;
}

int meet_block(int barrier, int threads, int value) {
  Block& block = join_block(barrier, threads, value);
  Fiber& fiber = self();
  const std::uint64_t generation = block.generation;
  if (!complete_block(block)) {
    fiber.wait = Wait::kBlock, fiber.barrier = barrier, fiber.generation = generation;
    yield();
  }
  return block.results[generation % 2];
}

void arrive_block(int barrier, int threads) {
  complete_block(join_block(barrier, threads, 0));
  linger();
}

void copy(void* to, const void* from, std::size_t bytes, bool valid) {
  if ((reinterpret_cast<std::uintptr_t>(to) | reinterpret_cast<std::uintptr_t>(from)) % bytes != 0)
    stop("cp.async of %zu bytes from %p to %p: misaligned", bytes, from, to);
  self().copies.push_back({to, from, bytes, valid, nullptr});
}
void end_copies() { self().groups.push_back(self().copies.size()); }
void wait_for_copies(int latest_groups) {
  Fiber& fiber = self();
  const std::size_t keep = latest_groups < 0 ? 0 : static_cast<std::size_t>(latest_groups);
  if (latest_groups >= 0 && fiber.groups.size() <= keep) return;
  const std::size_t done = latest_groups < 0 ? fiber.groups.size() : fiber.groups.size() - keep;
  const std::size_t count = latest_groups < 0 ? fiber.copies.size() : fiber.groups[done - 1];
  happen(fiber, count);
  fiber.groups.erase(fiber.groups.begin(), fiber.groups.begin() + static_cast<std::ptrdiff_t>(done));
  for (std::size_t& end : fiber.groups) end -= std::min(end, count);
}

void barrier_init(std::uint64_t* barrier, int arrivals) {
  expect_shared(barrier, 8, 8);
  const auto count = static_cast<std::uint16_t>(arrivals);
  *reinterpret_cast<Barrier*>(barrier) = {count, count, 0};
}
void barrier_arrive(std::uint64_t* word) {
  arrive(word);
  linger();
}
void barrier_arrive_after_copies(std::uint64_t* barrier) {
  self().copies.push_back({nullptr, nullptr, 0, true, barrier});
}
void barrier_wait(std::uint64_t* word, std::uint32_t phase) {
  auto& barrier = *reinterpret_cast<Barrier*>(word);
  if (barrier.expected == 0xffff) stop("waits for an mbarrier that was not initialised");
  if ((barrier.phase & 1) != (phase & 1)) return;
  Fiber& fiber = self();
  fiber.wait = Wait::kBarrier, fiber.word = word, fiber.phase = phase & 1;
  yield();
}

void expect_shared(const void* at, std::size_t bytes, std::size_t alignment) {
  const auto* p = static_cast<const std::uint8_t*>(at);
  if (p < m.shared || p + bytes > m.shared + m.shared_bytes) stop("%p is not in shared memory", at);
  if (reinterpret_cast<std::uintptr_t>(at) % alignment != 0) stop("%p: misaligned for %zu bytes", at, alignment);
}

}  // namespace emulated
