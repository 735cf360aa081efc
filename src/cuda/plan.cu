// The plan kernel: one CTA a sequence, one thread a node. Depth-first ranks come from ranking the tree's Euler tour by
// pointer doubling (9 rounds for 256 nodes), so a chain takes as long as a star.
#include "cuda/dependent.cuh"
#include "cuda/plan.cuh"

namespace canopy::cuda {
namespace {

struct Trees {
  canopy_trees trees;
  int nodes;
};

// Parents of all nodes into shared `parent` from parents or links, as on the host (src/tree/plan.cpp); thread i is node
// i. Returns whether thread i saw something wrong.
__device__ bool read_parents(const Trees& p, std::int64_t row, int count, int i, int* parent, int* linked,
                             int* previous) {
  bool bad = false;
  const bool live = i < count;
  if (p.trees.parents) {
    const int up = live && i > 0 ? p.trees.parents[row + i] : -1;
    bad = live && i > 0 && (up < 0 || up >= i);
    parent[i] = up;
    return bad;
  }
  linked[i] = 0;
  parent[i] = previous[i] = -1;
  __syncthreads();
  const int child = live ? p.trees.next_token[row + i] : -1, sibling = live ? p.trees.next_sibling[row + i] : -1;
  for (const int to : {child, sibling}) {
    if (to == -1) continue;
    if (to < 0 || to >= count)
      bad = true;
    else if (atomicAdd(&linked[to], 1) > 0)
      bad = true;
  }
  bad |= live && i == 0 && sibling != -1;
  bad |= __syncthreads_or(bad);
  if (bad) return true;  // the same for all threads: with a node entered twice the lists below need not end
  if (child >= 0) parent[child] = i;
  if (sibling >= 0) previous[sibling] = i;
  __syncthreads();
  // A node that is no first child takes the parent of the sibling before it.
  for (int span = 1; span < kNodes; span *= 2) {
    const int before = previous[i];
    const int up = parent[i] < 0 && before >= 0 ? parent[before] : parent[i];
    const int further = before >= 0 ? previous[before] : -1;
    __syncthreads();
    parent[i] = up;
    previous[i] = further;
    __syncthreads();
  }
  return live && (i == 0 ? linked[0] != 0 : parent[i] < 0 || parent[i] >= i);
}

__global__ void __launch_bounds__(kNodes) plan_kernel(const __grid_constant__ Trees p, DevicePlan* plans) {
  __shared__ int parent[kNodes], linked[kNodes], previous[kNodes];
  __shared__ unsigned children[kNodes][kNodes / 32 + 1];  // bit i of row p: i is a child of p; padded against conflicts
  __shared__ unsigned value[2 * kNodes];                  // list ranking: nodes entered * 2^16 + depth changes
  __shared__ std::uint16_t next[2 * kNodes];
  __shared__ int parent_rank[kNodes], depth_of[kNodes];
  __shared__ std::uint8_t path[kBlocks][kNodes], order[kNodes], step_block[kMaxSteps], step_tile[kMaxSteps];
  __shared__ std::uint8_t to_the_end[kNodes], base_of[kBlocks];
  __shared__ unsigned spine[kNodes / 32];  // bit: all later ranks descend from this one
  __shared__ int deepest, steps_of_tree;

  let_next_kernel_start();  // which waits before it reads
  const int i = threadIdx.x;
  DevicePlan& plan = plans[blockIdx.x];
  const std::int64_t row = blockIdx.x * p.trees.row_stride;
  const int given = p.trees.count ? p.trees.count[blockIdx.x] : p.nodes;
  const bool bad_count = given < 0 || given > p.nodes;
  const int count = bad_count ? 0 : given;

  for (int word = 0; word < kNodes / 32; ++word) children[i][word] = 0;
  if (i == 0) deepest = 0;
  const bool bad = __syncthreads_or(read_parents(p, row, count, i, parent, linked, previous));
  if (bad || count == 0) {
    if (i == 0) {
      plan.status = (bad_count ? CANOPY_ROW_BAD_COUNT : 0) | (bad ? CANOPY_ROW_BAD_TREE : 0);
      plan.count = count;
      plan.depth = plan.blocks = plan.steps = 0;
    }
    return;
  }
  const bool live = i < count;
  if (live && i > 0) atomicOr(&children[parent[i]][i / 32], 1u << (i % 32));
  __syncthreads();

  // The Euler tour: element i enters node i, element 256 + i leaves it.
  auto first_set = [](const unsigned* words, int from) {  // first bit at or after `from`, -1 if none
    for (int word = from / 32; word < kNodes / 32; ++word) {
      const unsigned bits = words[word] & (word == from / 32 ? ~0u << (from % 32) : ~0u);
      if (bits) return word * 32 + __ffs(bits) - 1;
    }
    return -1;
  };
  constexpr int end = 2 * kNodes;
  if (live) {
    const int child = first_set(children[i], 0);
    next[i] = child >= 0 ? child : kNodes + i;
    const int sibling = i > 0 && i + 1 < kNodes ? first_set(children[parent[i]], i + 1) : -1;
    next[kNodes + i] = i == 0 ? end : sibling >= 0 ? sibling : kNodes + parent[i];
    value[i] = (1u << 16) + 1;  // one node more, one deeper
    value[kNodes + i] = 0u - 1;
  }
  __syncthreads();
  // Sums of `value` from each element to the end of the tour, doubling the reach each round.
  for (int reach = 1; reach < 2 * count; reach *= 2) {
    int to[2];
    unsigned sum[2];
    for (int half = 0; half < 2; ++half) {
      const int e = half * kNodes + i;
      to[half] = live ? next[e] : end;
      sum[half] = live ? value[e] : 0;
      if (to[half] != end) {
        sum[half] += value[to[half]];
        to[half] = next[to[half]];
      }
    }
    __syncthreads();
    if (live) {
      for (int half = 0; half < 2; ++half) {
        next[half * kNodes + i] = to[half];
        value[half * kNodes + i] = sum[half];
      }
    }
    __syncthreads();
  }
  // Depth changes add up to minus the depth, held in the low half; the carry it leaves in the high half is undone
  // first.
  int rank = 0, depth = 0, below = 0;
  if (live) {
    depth = -static_cast<std::int16_t>(value[i] & 0xffffu);
    const int entered = static_cast<int>((value[i] + depth) >> 16);
    const int leaving_depth = -static_cast<std::int16_t>(value[kNodes + i] & 0xffffu);
    const int entered_after = static_cast<int>((value[kNodes + i] + leaving_depth) >> 16);
    rank = count - entered;
    below = entered - entered_after - 1;
    plan.rank[i] = static_cast<std::uint8_t>(rank);
    linked[i] = rank;  // node -> rank
    atomicMax(&deepest, depth);
  }
  __syncthreads();
  if (live) {
    plan.order[rank] = order[rank] = static_cast<std::uint8_t>(i);
    const int up = i == 0 ? kNone : linked[parent[i]];
    plan.parent[rank] = static_cast<std::uint8_t>(up);
    plan.below[rank] = static_cast<std::uint8_t>(below);
    plan.depths[rank] = static_cast<std::uint8_t>(depth);
    parent_rank[rank] = up;
    depth_of[rank] = depth;
    to_the_end[rank] = rank + below == count - 1;
    // This node stands on the root path of the first node of every later block that starts in its subtree.
    for (int block = rank / kRows + 1; block <= (rank + below) / kRows; ++block)
      plan.path[block][depth] = path[block][depth] = static_cast<std::uint8_t>(rank);
  }
  __syncthreads();

  // From here thread r is rank r; half a warp is a block.
  const int r = i, lane = r % 32, first = r - r % kRows, lane_first = lane - lane % kRows;
  const int my_depth = live ? depth_of[r] : -1 - lane;
  const int up = live ? parent_rank[r] : kNone;
  const bool inside = live && up != kNone && up >= first;
  unsigned mask = inside ? 1u << (up - first) : 0;
  int jump = inside ? lane_first + up - first : lane;
  for (int round = 0; round < 4; ++round) {  // in-block ancestors by doubling: at most 15
    const unsigned theirs = __shfl_sync(~0u, mask, jump);
    const int further = __shfl_sync(~0u, jump, jump);
    mask |= theirs;
    jump = further;
  }
  const unsigned same = __match_any_sync(~0u, my_depth * 2 + lane / kRows);
  const unsigned in_spine = __ballot_sync(~0u, live && to_the_end[r]);
  if (lane == 0) spine[r / 32] = in_spine;
  const std::uint8_t push = same >> lane == 1u ? my_depth : kNone;
  if (live) {
    plan.in_block[r] = static_cast<std::uint16_t>(mask);
    plan.prefix[r] = static_cast<std::uint8_t>(my_depth - __popc(mask));
    plan.push[r] = push;
    std::uint64_t ancestors = 0;
    int ancestor = parent_rank[r];
    for (int i = 0; i < kUp; ++i) {
      ancestors |= std::uint64_t(ancestor) << (8 * i);
      if (ancestor != kNone) ancestor = parent_rank[ancestor];
    }
    *reinterpret_cast<std::uint64_t*>(plan.up[r]) = ancestors;
  }
  __syncthreads();
  const int blocks = (count + kRows - 1) / kRows;
  if (r < 32) {
    const int ancestors = r < blocks ? depth_of[r * kRows] : 0;
    // The part of the path that all later ranks share is its beginning.
    int base = 0;
    for (int word = 0; word < kNodes / 32 && r < blocks; ++word) {
      const int bits = min(32, max(0, r * kRows - 32 * word));
      base += __popc(bits == 32 ? spine[word] : spine[word] & ((1u << bits) - 1));
    }
    base -= base % kFoldRows;
    const int base_before = __shfl_up_sync(~0u, base, 1);
    const int folds = r > 0 && r < blocks ? (base - base_before) / kFoldRows : 0;
    const int tiles = r < blocks ? max(1, (ancestors - base + kRows - 1) / kRows) : 0;
    int before = folds + tiles;
    for (int span = 1; span < kBlocks; span *= 2) {
      const int other = __shfl_up_sync(~0u, before, span);
      if (lane >= span) before += other;
    }
    const int steps = __shfl_sync(~0u, before, kBlocks - 1);
    if (r < blocks) {
      plan.ancestors[r] = static_cast<std::uint8_t>(ancestors);
      plan.base[r] = base_of[r] = static_cast<std::uint8_t>(base);
    }
    for (int i = 0; i < folds + tiles; ++i) {
      const int s = before - folds - tiles + i;
      step_block[s] = static_cast<std::uint8_t>(r);
      step_tile[s] = static_cast<std::uint8_t>(i < folds ? kNone - i : i - folds);  // folds count down from kNone
    }
    if (r == 0) {
      plan.status = 0;
      plan.count = count;
      plan.depth = deepest;
      plan.blocks = blocks;
      plan.steps = steps_of_tree = steps;
    }
  }
  __syncthreads();
  const int height = my_depth - base_of[r / kRows];
  const unsigned deep = __ballot_sync(~0u, live && height >= kPathRows);
  if (live) {
    const bool kept = push != kNone && height < kPathRows;
    plan.push_at[r] = static_cast<std::uint16_t>(kept ? path_row(my_depth) : passing_row(r % kRows));
    if (r % kRows == 0) plan.spills[r / kRows] = (deep >> lane_first & 0xffff) != 0;
  }
  // Steps: 32 threads each.
  for (int s = i / 32; s < steps_of_tree; s += kNodes / 32) {
    const int row = i % 32, block = step_block[s], tile = step_tile[s], ancestors = depth_of[kRows * block];
    const bool folds = tile > kBlocks;
    const int base = folds ? base_of[block - 1] + kFoldRows * (kNone - tile) : base_of[block];  // before the fold
    const int depth = folds ? base + row : base + kRows * tile + row - kRows;                   // on the path
    const int rows = folds ? kRows : min(kRows, count - kRows * block);
    const int path_rows = folds ? kRows : max(0, min(kRows, ancestors - base - kRows * tile));
    Step& step = plan.step[s];
    if (row % kRows < (row < kRows ? rows : path_rows)) {
      const int rank = !folds && row < kRows ? kRows * block + row : path[block][depth];
      step.rank[row] = static_cast<std::uint8_t>(rank);
      step.node[row] = order[rank];
    }
    if (row == 0) {
      step.block = static_cast<std::uint8_t>(block), step.tile = static_cast<std::uint8_t>(folds ? 0 : tile);
      step.rows = static_cast<std::uint8_t>(rows), step.path_rows = static_cast<std::uint8_t>(path_rows);
      step.last = folds || base + kRows * (tile + 1) >= ancestors;
      step.folds = folds;
      step.base = static_cast<std::uint8_t>(folds ? base + kFoldRows : base);
      step.base_rank = base == 0 ? kNone : path[block][base - 1];
    }
  }
}

}  // namespace

void launch_plan(const Problem& problem, DevicePlan* plans, cudaStream_t stream) {
  if (problem.batch == 0) return;
  launch_kernel(plan_kernel, dim3(problem.batch), kNodes, 0, stream, false, Trees{problem.trees, problem.nodes}, plans);
}

}  // namespace canopy::cuda
