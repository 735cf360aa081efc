/* C11: a chain of two nodes whose outputs can be worked out by hand. K = V = 8, S0 = 0, alpha = 1, beta = 1; both keys
 * and queries are the first unit vector, so o_0 = v_0 and o_1 = v_1 (the second write replaces the first). */
#include <canopy/canopy.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { T = 2, N = 8 };

static canopy_tensor rows(float* data, int64_t width) {
  canopy_tensor tensor;
  memset(&tensor, 0, sizeof tensor);
  tensor.data = data;
  tensor.dtype = CANOPY_F32;
  tensor.stride[1] = T * width; /* sequence */
  tensor.stride[2] = width;     /* node */
  tensor.stride[3] = width;     /* head, there is one */
  tensor.stride[4] = 1;
  return tensor;
}

int main(void) {
  float unit[T * N] = {0}, v[T * N], o[T * N], g[T] = {0, 0}, beta[T] = {1, 1}, state[N * N] = {0};
  int32_t parents[T] = {-1, 0};
  unit[0] = unit[N] = 1;
  for (int i = 0; i < T * N; ++i) v[i] = (float)(i + 1);

  canopy_verify_params params;
  canopy_verify_params_init(&params);
  canopy_problem* p = &params.problem;
  p->batch = 1, p->nodes = T, p->heads_k = p->heads_v = 1, p->dim_k = p->dim_v = N, p->scale = 1;
  p->trees.parents = parents;
  p->q = p->k = rows(unit, N);
  p->v = rows(v, N);
  p->g = rows(g, 1), p->beta = rows(beta, 1);
  p->state = rows(state, N);
  p->slots = 1;
  params.o = rows(o, N);

  canopy_error error;
  size_t bytes = 0;
  if (canopy_verify_workspace(&params, NULL, &bytes, &error) != CANOPY_OK) return fprintf(stderr, "%s\n", error.message), 1;
  void* workspace = aligned_alloc(64, (bytes + 64) / 64 * 64);
  if (canopy_verify(&params, NULL, workspace, bytes, NULL, &error) != CANOPY_OK) return fprintf(stderr, "%s\n", error.message), 1;
  free(workspace);
  for (int i = 0; i < T * N; ++i) {
    if (o[i] - v[i] > 1e-5f || v[i] - o[i] > 1e-5f) return fprintf(stderr, "o[%d] = %g, expected %g\n", i, o[i], v[i]), 1;
  }
  printf("canopy %s from C\n", canopy_version());
  return 0;
}
