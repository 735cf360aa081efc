/* The whole C interface from C11: registry, tree, workspace, verify, oracle, commit, explain, errors. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "canopy/canopy.h"

enum { B = 2, T = 4, H = 1, HV = 2, K = 8, V = 16 };

static int failures = 0;

#define EXPECT(condition, ...)                               \
  do {                                                       \
    if (!(condition)) {                                      \
      fprintf(stderr, "line %d: %s: ", __LINE__, #condition); \
      fprintf(stderr, __VA_ARGS__);                          \
      fputc('\n', stderr);                                   \
      ++failures;                                            \
    }                                                        \
  } while (0)

/* Contiguous [outer][n1][n2][n3], fp32. */
static canopy_tensor contiguous(void* data, int64_t n1, int64_t n2, int64_t n3) {
  canopy_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.dtype = CANOPY_F32;
  tensor.stride[1] = n1 * n2 * n3;
  tensor.stride[2] = n2 * n3;
  tensor.stride[3] = n3;
  tensor.stride[4] = 1;
  return tensor;
}

static float q[B * T * H * K], k[B * T * H * K], v[B * T * HV * V], g[B * T * HV], beta[B * T * HV], state[B * HV * V * K],
    o[B * T * HV * V], u[B * T * HV * V], l[B * T * HV];
static double oracle_o[B * T * HV * V], oracle_state[B * HV * K * V];
static int32_t parents[B * T] = {-1, 0, 0, 1, -1, 0, 1, 2}, leaf[B] = {3, -1};

static void fill(float* values, int count, float scale, unsigned seed) {
  for (int i = 0; i < count; ++i) {
    seed = seed * 1664525u + 1013904223u;
    values[i] = scale * ((float)(seed >> 8) / 8388608.0f - 1.0f);
  }
}

static void set_problem(canopy_problem* p) {
  p->batch = B, p->nodes = T, p->heads_k = H, p->heads_v = HV, p->dim_k = K, p->dim_v = V;
  p->trees.parents = parents, p->trees.row_stride = T;
  p->q = contiguous(q, T, H, K), p->k = contiguous(k, T, H, K), p->v = contiguous(v, T, HV, V);
  p->g = contiguous(g, T, HV, 1), p->beta = contiguous(beta, T, HV, 1);
  p->state = contiguous(state, HV, V, K);
  p->slots = B;
}

static void* reserve(size_t bytes) { return aligned_alloc(64, (bytes + 64) / 64 * 64); }

static void test_tree(void) {
  canopy_error error;
  int32_t parsed[CANOPY_MAX_NODES], family[CANOPY_MAX_NODES], nodes = 0, depths[CANOPY_MAX_NODES];
  const char* text = "[[0],[1],[0,0]]"; /* Medusa's choices */
  EXPECT(canopy_tree_parse(text, strlen(text), NULL, 0, parsed, &nodes, &error) == CANOPY_OK, "%s", error.message);
  EXPECT(nodes == 4, "%d nodes", nodes);
  uint64_t ancestors[CANOPY_MAX_NODES * 4];
  canopy_tree_arrays arrays;
  memset(&arrays, 0, sizeof arrays);
  arrays.depths = depths, arrays.ancestors = ancestors;
  EXPECT(canopy_tree_from_parents(parsed, nodes, &arrays, &error) == CANOPY_OK, "%s", error.message);
  EXPECT(arrays.nodes == 4 && arrays.depth == 2, "nodes %d depth %d", arrays.nodes, arrays.depth);
  EXPECT(depths[3] == 2 && ancestors[3 * 4] == 0x3, "depth %d ancestors %llx", depths[3], (unsigned long long)ancestors[12]);
  parsed[2] = 3;
  EXPECT(canopy_tree_from_parents(parsed, nodes, &arrays, &error) == CANOPY_INVALID, "a child before its parent was taken");
  EXPECT(strstr(error.message, "parents[2] = 3") != NULL, "%s", error.message);
  char written[256];
  size_t needed = 0;
  EXPECT(canopy_tree_family("specla", 7, 2, 2, 0, family, &error) == CANOPY_OK, "%s", error.message);
  EXPECT(family[1] == 0 && family[6] >= 1, "specla of 7 nodes ends with parent %d", family[6]);
  EXPECT(canopy_tree_family("shrub", 7, 2, 2, 0, family, &error) == CANOPY_INVALID, "an unknown family was taken");
  EXPECT(canopy_tree_write(parents, T, "parents", written, sizeof written, &needed, &error) == CANOPY_OK, "%s", error.message);
  EXPECT(needed == strlen(written) + 1 && strstr(written, "[-1, 0, 0, 1]"), "%zu: %s", needed, written);
  EXPECT(canopy_tree_write(parents, T, "drawing", written, 4, &needed, &error) == CANOPY_OK && strlen(written) <= 3 && needed > 4,
         "cut at 4 bytes: %zu", needed);
  EXPECT(canopy_tree_parse(text, strlen(text), NULL, 5, parsed, &nodes, &error) == CANOPY_INVALID, "tree 5 of 1");
  EXPECT(canopy_tree_parse(text, strlen(text), "no such form", 0, parsed, &nodes, NULL) == CANOPY_INVALID, "unknown form");
}

static void test_registry(void) {
  canopy_implementation_info info;
  int32_t kind, i;
  for (kind = 0; kind < 4; ++kind) {
    EXPECT(canopy_implementation_count(kind) >= 2, "kind %d: %d", kind, canopy_implementation_count(kind));
    for (i = 0; i < canopy_implementation_count(kind); ++i) {
      EXPECT(canopy_implementation_at(kind, i, &info) == CANOPY_OK, "kind %d index %d", kind, i);
      EXPECT(info.name[0] && info.description[0] && (info.usable == (info.missing[0] == 0)), "%s", info.name);
    }
    EXPECT(canopy_implementation_at(kind, i, &info) == CANOPY_INVALID, "past the end");
  }
}

static void test_convolution(void) {
  enum { C = 5, W = 3 };
  static float x[B * T * C], weight[C * W], bias[C], window[B * C * (W - 1)], before[B * C * (W - 1)], y[B * T * C];
  canopy_error error;
  size_t bytes = 1;
  canopy_conv_verify_params verify;
  canopy_conv_commit_params commit;
  canopy_conv_verify_params_init(&verify);
  canopy_conv_commit_params_init(&commit);
  fill(x, B * T * C, 1, 1), fill(weight, C * W, 1, 2), fill(bias, C, 1, 3), fill(window, B * C * (W - 1), 1, 4);
  memcpy(before, window, sizeof window);
  canopy_conv_problem* p = &verify.problem;
  p->batch = B, p->nodes = T, p->channels = C, p->width = W, p->slots = B;
  p->trees.parents = parents, p->trees.row_stride = T;
  p->x = contiguous(x, T, C, 1), p->state = contiguous(window, C, W - 1, 1);
  verify.weight = contiguous(weight, W, 1, 1), verify.bias = contiguous(bias, 1, 1, 1), verify.silu = 1;
  verify.o = contiguous(y, T, C, 1);
  EXPECT(canopy_conv_verify_workspace(&verify, NULL, &bytes, &error) == CANOPY_OK && bytes == 0, "%s", error.message);
  EXPECT(canopy_conv_verify(&verify, NULL, NULL, 0, NULL, &error) == CANOPY_OK, "%s", error.message);
  for (int c = 0; c < C; ++c) { /* node 3 of the first tree: its own input, that of node 1, that of the root */
    const float sum = bias[c] + weight[c * W] * x[c] + weight[c * W + 1] * x[C + c] + weight[c * W + 2] * x[3 * C + c];
    EXPECT(fabs(y[3 * C + c] - sum / (1 + exp(-sum))) < 1e-5, "channel %d: %g, expected SiLU of %g", c, y[3 * C + c], sum);
  }
  commit.problem = verify.problem, commit.leaf = leaf; /* node 3; the second sequence is skipped */
  EXPECT(canopy_conv_commit_workspace(&commit, NULL, &bytes, &error) == CANOPY_OK && bytes == 0, "%s", error.message);
  EXPECT(canopy_conv_commit(&commit, NULL, NULL, 0, NULL, &error) == CANOPY_OK, "%s", error.message);
  for (int c = 0; c < C; ++c)
    EXPECT(window[2 * c] == x[C + c] && window[2 * c + 1] == x[3 * C + c], "channel %d: window %g %g", c, window[2 * c],
           window[2 * c + 1]);
  EXPECT(memcmp(window + C * (W - 1), before + C * (W - 1), C * (W - 1) * sizeof(float)) == 0, "a skipped row was written");
  commit.leaf = NULL;
  EXPECT(canopy_conv_commit(&commit, NULL, NULL, 0, NULL, &error) == CANOPY_INVALID, "no leaf was taken");
  EXPECT(strstr(error.message, "leaf is NULL"), "%s", error.message);
  EXPECT(canopy_conv_verify(NULL, NULL, NULL, 0, NULL, &error) == CANOPY_INVALID, "no params were taken");
  EXPECT(canopy_conv_verify_workspace(&verify, NULL, NULL, &error) == CANOPY_INVALID, "no bytes were taken");
}

static void test_verify_and_commit(void) {
  canopy_error error;
  size_t bytes = 0;
  canopy_verify_params verify;
  canopy_verify_params_init(&verify);
  set_problem(&verify.problem);
  verify.o = contiguous(o, T, HV, V);
  verify.stash_u = contiguous(u, T, HV, V), verify.stash_l = contiguous(l, T, HV, 1);
  EXPECT(canopy_oracle_verify(&verify, oracle_o, NULL, NULL, &error) == CANOPY_OK, "%s", error.message);
  EXPECT(canopy_oracle_state(&verify, leaf, oracle_state, &error) == CANOPY_OK, "%s", error.message);
  for (int32_t i = -1; i < canopy_implementation_count(0); ++i) {
    canopy_implementation_info info;
    const char* name = NULL; /* first the dispatcher's choice */
    if (i >= 0) {
      canopy_implementation_at(0, i, &info);
      if (!info.usable || info.device != CANOPY_CPU) continue;
      name = info.name;
    }
    memset(o, 0xff, sizeof o); /* NaN */
    EXPECT(canopy_verify_workspace(&verify, name, &bytes, &error) == CANOPY_OK, "%s", error.message);
    void* workspace = reserve(bytes);
    EXPECT(canopy_verify(&verify, name, workspace, bytes, NULL, &error) == CANOPY_OK, "%s", error.message);
    if (bytes > 0) {
      EXPECT(canopy_verify(&verify, name, workspace, bytes - 1, NULL, &error) == CANOPY_WORKSPACE, "a short workspace");
    }
    free(workspace);
    for (int j = 0; j < B * T * HV * V; ++j) {
      EXPECT(fabs(o[j] - oracle_o[j]) < 1e-5, "%s o[%d] = %g, oracle %g", name ? name : "chosen", j, o[j], oracle_o[j]);
    }
  }

  float before[B * HV * V * K];
  memcpy(before, state, sizeof state);
  for (int32_t method = CANOPY_COMMIT_RESOLVE; method <= CANOPY_COMMIT_REPLAY; ++method) {
    memcpy(state, before, sizeof state);
    canopy_commit_params commit;
    canopy_commit_params_init(&commit);
    set_problem(&commit.problem);
    commit.method = method, commit.leaf = leaf;
    commit.stash_u = verify.stash_u, commit.stash_l = verify.stash_l;
    EXPECT(canopy_commit_workspace(&commit, NULL, &bytes, &error) == CANOPY_OK, "%s", error.message);
    void* workspace = reserve(bytes);
    EXPECT(canopy_commit(&commit, NULL, workspace, bytes, NULL, &error) == CANOPY_OK, "%s", error.message);
    free(workspace);
    for (int hv = 0; hv < HV; ++hv) {
      for (int row = 0; row < V; ++row) {
        for (int col = 0; col < K; ++col) { /* the pool is V first, the oracle's state K first */
          const float got = state[(hv * V + row) * K + col];
          const double want = oracle_state[(hv * K + col) * V + row];
          EXPECT(fabs(got - want) < 1e-5, "method %d state %g, oracle %g", method, got, want);
        }
      }
    }
    const size_t half = sizeof state / 2; /* leaf -1: bitwise as it was */
    EXPECT(memcmp((char*)state + half, (char*)before + half, half) == 0, "a skipped state changed, method %d", method);
  }
}

static void test_errors(void) {
  canopy_error error;
  size_t needed = 0;
  char text[40];
  canopy_verify_params verify;
  canopy_verify_params_init(&verify);
  EXPECT(canopy_verify(NULL, NULL, NULL, 0, NULL, &error) == CANOPY_INVALID, "NULL params");
  EXPECT(canopy_verify(&verify, NULL, NULL, 0, NULL, NULL) == CANOPY_INVALID, "no dimensions, no error struct");
  set_problem(&verify.problem);
  EXPECT(canopy_explain(&verify, text, sizeof text, &needed, &error) == CANOPY_OK, "%s", error.message);
  EXPECT(needed > sizeof text && strlen(text) == sizeof text - 1, "needed %zu, got %zu", needed, strlen(text));
  EXPECT(strncmp(text, "runs ", 5) == 0, "%s", text);
  verify.o = contiguous(o, T, HV, V);
  EXPECT(canopy_verify(&verify, "nobody", NULL, 0, NULL, &error) == CANOPY_INVALID, "an unknown implementation");
  EXPECT(strstr(error.message, "implementation = \"nobody\": expected one of ") != NULL, "%s", error.message);
}

int main(void) {
  fill(q, B * T * H * K, 0.5f, 1), fill(k, B * T * H * K, 0.35f, 2), fill(v, B * T * HV * V, 1, 3);
  fill(state, B * HV * V * K, 1, 4), fill(beta, B * T * HV, 0.5f, 5), fill(g, B * T * HV, 0.2f, 6);
  for (int i = 0; i < B * T * HV; ++i) beta[i] += 0.5f, g[i] -= 0.2f;
  test_tree();
  test_registry();
  test_convolution();
  test_verify_and_commit();
  test_errors();
  if (failures) fprintf(stderr, "%d failures\n", failures);
  return failures != 0;
}
