/* canopy: Gated DeltaNet tree verification, the C interface.
 *
 * A draft tree of T tokens is verified through one GDN layer in one unit-lower-triangular solve, and the state of the
 * accepted path is rebuilt. The mathematics and its numbering (E1 to E9) stand in docs/math.md, the calls in docs/api.md.
 *
 * Conventions
 *   B sequences, T nodes a tree, H key heads, HV value heads (HV a multiple of H), K and V the key and value widths.
 *   Strides are in elements, 64-bit. Node 0 is the root; every parent precedes its child.
 *   Nothing here allocates on the hot path: the caller asks for a workspace size and passes the memory.
 *   Every call returns a status; with a non-NULL `error` it also says which argument, what was expected and what came.
 */
#ifndef CANOPY_CANOPY_H
#define CANOPY_CANOPY_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define CANOPY_ABI_VERSION 1
#define CANOPY_MAX_NODES 256 /* nodes of one tree */
#define CANOPY_BLOCK_ROWS 16 /* rows of one block of the path-compressed solve */

typedef enum canopy_status {
  CANOPY_OK = 0,
  CANOPY_INVALID = 1,     /* an argument is wrong: nothing was read or written through it */
  CANOPY_UNSUPPORTED = 2, /* a legal request that the implementation refuses, with the reason */
  CANOPY_WORKSPACE = 3,   /* the workspace is missing or too small */
  CANOPY_INTERNAL = 4
} canopy_status;

typedef struct canopy_error {
  int32_t status; /* canopy_status */
  char message[1020];
} canopy_error;

typedef enum canopy_dtype { CANOPY_F32 = 0, CANOPY_BF16 = 1, CANOPY_F16 = 2, CANOPY_I32 = 3, CANOPY_I64 = 4 } canopy_dtype;
typedef enum canopy_device { CANOPY_CPU = 0, CANOPY_CUDA = 1 } canopy_device;
typedef enum canopy_state_layout {
  CANOPY_STATE_VK = 0, /* [slots, HV, V, K]: SGLang, vLLM, FlashInfer */
  CANOPY_STATE_KV = 1  /* [slots, HV, K, V]: flash-linear-attention, transformers */
} canopy_state_layout;
typedef enum canopy_precision {
  CANOPY_PRECISION_DEFAULT = 0, /* fp32 on the CPU */
  CANOPY_PRECISION_FP32 = 1,
  CANOPY_PRECISION_PRECISE = 2, /* tensor cores, split operands */
  CANOPY_PRECISION_HALF = 3,    /* tensor cores, one fp16 pass */
  CANOPY_PRECISION_FAST = 4     /* tensor cores, bf16 operands */
} canopy_precision;
typedef enum canopy_commit_method {
  CANOPY_COMMIT_RESOLVE = 0, /* solve the accepted chain again: verification stores nothing */
  CANOPY_COMMIT_STASH = 1,   /* use U and l that verification wrote */
  CANOPY_COMMIT_REPLAY = 2   /* E1 along the path, in order: independent of the tree's shape bit for bit */
} canopy_commit_method;

/* Bits of a row's status word. */
enum {
  CANOPY_ROW_BAD_TREE = 1, /* malformed tree: the row's outputs are NaN, its state is untouched */
  CANOPY_ROW_BAD_SLOT = 2, /* slot index past the pool: the row was skipped */
  CANOPY_ROW_BAD_COUNT = 4 /* node count outside 0..T: the row was skipped */
};

/* A strided view. stride[0] steps one layer (used by commit over several layers, ignored where there is one),
 * stride[1..] step the axes of the documented shape in order. Where a shape has four axes the last stride must be 1. */
typedef struct canopy_tensor {
  void* data; /* NULL: absent */
  int32_t dtype;
  int32_t reserved;
  int64_t stride[5];
} canopy_tensor;

/* The trees of a batch: either parents, or next_token and next_sibling. */
typedef struct canopy_trees {
  const int32_t* parents;      /* [B,T], any topological order, -1 for the root; what stands at node 0 is not read; may be NULL */
  const int32_t* next_token;   /* [B,T] first child, -1 none; may be NULL */
  const int32_t* next_sibling; /* [B,T] next sibling in any order, -1 none; may be NULL */
  int64_t row_stride;          /* elements from one sequence's row to the next, for all three */
  const int32_t* count;        /* [B] live nodes 0..T; may be NULL: all T */
  const void* plan;            /* what canopy_plan made of these trees on the same device, to be shared by all layers of a
                                  step; may be NULL: each call plans for itself */
} canopy_trees;

/* One GDN layer (or `layers` of one shape, for commit): shapes, tree, activations, gates, state pool. */
typedef struct canopy_problem {
  int32_t abi_version; /* CANOPY_ABI_VERSION; canopy_problem_init sets it */
  int32_t device;      /* canopy_device that every pointer below belongs to */
  int32_t batch, nodes, heads_k, heads_v, dim_k, dim_v; /* B T H HV K V */

  canopy_trees trees;

  canopy_tensor q;       /* [B,T,H,K] f32, bf16 or f16; not read by commit */
  canopy_tensor k;       /* [B,T,H,K] as q */
  canopy_tensor v;       /* [B,T,HV,V] as q */
  canopy_tensor g;       /* [B,T,HV] f32 log gate, log alpha */
  canopy_tensor beta;    /* [B,T,HV] f32 */
  canopy_tensor a;       /* [B,T,HV] f32, bf16 or f16, instead of g: g = -exp(A_log) softplus(a + dt_bias) */
  canopy_tensor b;       /* [B,T,HV] as a, instead of beta: beta = sigmoid(b) */
  canopy_tensor a_log;   /* [HV] f32, bf16 or f16 */
  canopy_tensor dt_bias; /* [HV] f32, bf16 or f16 */
  int32_t beta_doubled;  /* raw form only: beta = 2 sigmoid(b) (negative eigenvalues) */
  int32_t l2norm;        /* q and k are multiplied by rsqrt(sum x^2 + eps) first */
  float l2norm_eps;      /* 1e-6 */
  float scale;           /* on q, after the norm; 0 means K^-0.5 */

  canopy_tensor state;      /* the pool: [slots,HV,V,K] or [slots,HV,K,V], f32, bf16 or f16 */
  int32_t state_layout;     /* canopy_state_layout */
  int32_t slot_index_dtype; /* CANOPY_I32 or CANOPY_I64 */
  int64_t slots;
  const void* slot_index;   /* [B]; may be NULL: sequence b uses slot b */
  int64_t padding_slot;     /* indices at or below this are padding rows (read nothing, write nothing): -1; vLLM: 0 */
} canopy_problem;

typedef struct canopy_verify_params {
  canopy_problem problem;
  int32_t precision; /* canopy_precision */
  int32_t max_depth; /* the depth that no tree of the call exceeds, where the caller knows one (an engine: its draft steps),
                        0: unknown. It helps the dispatcher choose and nothing else: deeper trees are right too */
  canopy_tensor o;       /* out [B,T,HV,V] f32, bf16 or f16; rows at and past a count are left untouched */
  canopy_tensor stash_u; /* out [B,T,HV,V] f32; may be absent */
  canopy_tensor stash_l; /* out [B,T,HV] f32; may be absent */
  int32_t* row_status;   /* out [B]; may be NULL: then a bad row refuses the whole call on the CPU */
} canopy_verify_params;

typedef struct canopy_commit_params {
  canopy_problem problem; /* `q` is not read */
  int32_t layers;         /* L; every tensor of the problem steps by its stride[0] */
  int32_t method;         /* canopy_commit_method */
  const int32_t* leaf;    /* [B] accepted node; < 0 or >= the row's count: the row is skipped, bitwise untouched */
  const void* dst_slot;   /* [B] as slot_index; may be NULL: in place */
  const int32_t* track_leaf; /* [B] a second node of the tree whose state goes to track_slot; may be NULL */
  const void* track_slot;    /* [B] as slot_index; needed with track_leaf */
  canopy_tensor stash_u;     /* [L,B,T,HV,V] f32, method stash */
  canopy_tensor stash_l;     /* [L,B,T,HV] f32, method stash */
  int32_t* row_status;       /* out [B]; may be NULL */
} canopy_commit_params;

/* The short convolution in front of a GDN layer, on the tree (E9): depthwise over C channels, W taps. Every node's window
 * follows its root path and, past the root, the committed inputs of its slot. */
typedef struct canopy_conv_problem {
  int32_t abi_version; /* CANOPY_ABI_VERSION; canopy_conv_*_params_init sets it */
  int32_t device;      /* canopy_device that every pointer below belongs to */
  int32_t batch, nodes, channels, width; /* B T C W, W from 2 to 4 */

  canopy_trees trees; /* `plan` may be the one that verify and commit of the layer share */

  canopy_tensor x;     /* [B,T,C] f32, bf16 or f16, each node's own input; the channel stride must be 1 */
  canopy_tensor state; /* the pool: [slots,C,W-1] f32, bf16 or f16, the last committed inputs, oldest first; any strides */
  int64_t slots;
  const void* slot_index;   /* [B]; may be NULL: sequence b uses slot b */
  int64_t padding_slot;     /* indices at or below this are padding rows: -1; vLLM: 0 */
  int32_t slot_index_dtype; /* CANOPY_I32 or CANOPY_I64 */
  int32_t reserved;
} canopy_conv_problem;

typedef struct canopy_conv_verify_params {
  canopy_conv_problem problem;
  canopy_tensor weight; /* [C,W] f32, bf16 or f16, the tap on the oldest input first; any strides */
  canopy_tensor bias;   /* [C] f32, bf16 or f16; may be absent */
  int32_t silu;         /* o = y / (1 + exp(-y)), else o = y */
  int32_t reserved;
  canopy_tensor o;      /* out [B,T,C] as x, or f32; the channel stride must be 1; rows at and past a count are left untouched */
  int32_t* row_status;  /* out [B]; may be NULL: then a bad row refuses the whole call on the CPU */
} canopy_conv_verify_params;

typedef struct canopy_conv_commit_params {
  canopy_conv_problem problem;
  int32_t layers; /* L; x and state step by their stride[0] */
  int32_t reserved;
  const int32_t* leaf;       /* [B] accepted node; < 0 or >= the row's count: the row is skipped, bitwise untouched */
  const void* dst_slot;      /* [B] as slot_index; may be NULL: in place */
  const int32_t* track_leaf; /* [B] a second node of the tree whose window goes to track_slot; may be NULL */
  const void* track_slot;    /* [B] as slot_index; needed with track_leaf */
  int32_t* row_status;       /* out [B]; may be NULL */
} canopy_conv_commit_params;

/* Fill with defaults: ABI version, eps 1e-6, scale K^-0.5, layout VK, slot indices int32, padding -1, L = 1. */
void canopy_verify_params_init(canopy_verify_params* params);
void canopy_commit_params_init(canopy_commit_params* params);
void canopy_conv_verify_params_init(canopy_conv_verify_params* params);
void canopy_conv_commit_params_init(canopy_conv_commit_params* params);

/* Plan: the depth-first order, masks and block paths of the batch's trees into `plan`, canopy_plan_bytes bytes of the
 * problem's device, 64-byte aligned. Reads the shapes, `trees`, the slots and counts. Once per step, before the layers;
 * the memory must stay as it is until they are done. max(B, 1) times the bytes of one tree, whatever the trees. */
size_t canopy_plan_bytes(const canopy_problem* problem);
canopy_status canopy_plan(const canopy_problem* problem, void* plan, size_t bytes, void* stream, canopy_error* error);

/* Verify: o (and the stash) of every live node. `implementation` NULL lets the dispatcher choose. Never changes the pool.
 * `workspace` holds at least the bytes that canopy_verify_workspace gave for the same params and name, 64-byte aligned. */
canopy_status canopy_verify_workspace(const canopy_verify_params* params, const char* implementation, size_t* bytes,
                                      canopy_error* error);
canopy_status canopy_verify(const canopy_verify_params* params, const char* implementation, void* workspace, size_t bytes,
                            void* stream, canopy_error* error);

/* Commit: the state after the accepted node, into the pool. */
canopy_status canopy_commit_workspace(const canopy_commit_params* params, const char* implementation, size_t* bytes,
                                      canopy_error* error);
canopy_status canopy_commit(const canopy_commit_params* params, const char* implementation, void* workspace, size_t bytes,
                            void* stream, canopy_error* error);

/* The convolution of every live node (E9). Never changes the pool. With trees.plan given no workspace is needed. */
canopy_status canopy_conv_verify_workspace(const canopy_conv_verify_params* params, const char* implementation,
                                           size_t* bytes, canopy_error* error);
canopy_status canopy_conv_verify(const canopy_conv_verify_params* params, const char* implementation, void* workspace,
                                 size_t bytes, void* stream, canopy_error* error);

/* The window after the accepted node, the W-1 last inputs of its path with its own, into the pool. */
canopy_status canopy_conv_commit_workspace(const canopy_conv_commit_params* params, const char* implementation,
                                           size_t* bytes, canopy_error* error);
canopy_status canopy_conv_commit(const canopy_conv_commit_params* params, const char* implementation, void* workspace,
                                 size_t bytes, void* stream, canopy_error* error);

/* The registry. `kind` 0 verify, 1 commit, 2 conv_verify, 3 conv_commit. Strings live as long as the library. */
typedef struct canopy_implementation_info {
  const char* name;
  const char* description;
  int32_t device;
  int32_t usable;      /* 0: not on this machine */
  const char* missing; /* why not; "" when usable */
} canopy_implementation_info;
int32_t canopy_implementation_count(int32_t kind);
canopy_status canopy_implementation_at(int32_t kind, int32_t index, canopy_implementation_info* info);

/* Which implementation the dispatcher would run and why, as text with one line for each that refuses. Writes at most
 * `capacity` bytes with the closing NUL; `needed` (may be NULL) gets the full length with the NUL. */
canopy_status canopy_explain(const canopy_verify_params* params, char* text, size_t capacity, size_t* needed,
                             canopy_error* error);

/* Trees on the host. Every out array has room for CANOPY_MAX_NODES entries; any may be NULL. */
typedef struct canopy_tree_arrays {
  int32_t nodes, depth, dense_blocks, compressed_blocks;
  int32_t* parents;
  int32_t* depths;
  int32_t* dfs_order;     /* node at each depth-first rank */
  int32_t* level_order;
  int32_t* subtree_sizes;
  uint64_t* ancestors;    /* [T][4] bit j of row i: j is a strict ancestor of i */
} canopy_tree_arrays;
canopy_status canopy_tree_from_parents(const int32_t* parents, int32_t nodes, canopy_tree_arrays* out, canopy_error* error);
/* Reads text in any known form (`format` NULL detects it); `index` picks a tree where the text holds several. */
canopy_status canopy_tree_parse(const char* text, size_t length, const char* format, int32_t index, int32_t* parents,
                                int32_t* nodes, canopy_error* error);
/* Writes a tree in a form that canopy_tree_parse reads back, or with format "drawing" as text for a person, under the
 * rules of canopy_explain for `capacity` and `needed`. */
canopy_status canopy_tree_write(const int32_t* parents, int32_t nodes, const char* format, char* text, size_t capacity,
                                size_t* needed, canopy_error* error);
/* A tree of a family of docs/trees.md; parameters that the family does not have are not read. */
canopy_status canopy_tree_family(const char* family, int32_t nodes, int32_t top_k, int32_t depth, uint64_t seed,
                                 int32_t* parents, canopy_error* error);

/* The fp64 oracle (E1), host pointers only. o [B,T,HV,V], u [B,T,HV,V] and l [B,T,HV] contiguous; any may be NULL.
 * Rows past a count and padding sequences are zero. */
canopy_status canopy_oracle_verify(const canopy_verify_params* params, double* o, double* u, double* l, canopy_error* error);
/* State after node leaf[b] of each sequence, [B,HV,K,V] contiguous; a skipped row gets its S0, a padding row zeros. */
canopy_status canopy_oracle_state(const canopy_verify_params* params, const int32_t* leaf, double* state, canopy_error* error);

const char* canopy_version(void);

#ifdef __cplusplus
}
#endif
#endif
