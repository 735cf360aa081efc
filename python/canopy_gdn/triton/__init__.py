"""Tree verification in Triton: the portable fallback where the CUDA kernels are not built, and contenders to compare with.

    plan = canopy_gdn.triton.plan(parents, count)                  once per step, for all layers
    o = canopy_gdn.triton.verify(q, k, v, plan=plan, state=pool, g=g, beta=beta, strategy="fused")
    canopy_gdn.triton.commit(k, plan=plan, leaf=leaf, state=pool, stash=stash)

| strategy | what it does |
|---|---|
| fused | path-compressed blocks of 16 nodes, the triangle of a block by forward substitution; one launch after the gates |
| neumann | the same, the triangle by its finite Neumann series: loses digits on deep paths of similar keys (docs/numerics.md) |
| squaring | the same, by repeated squaring: loses them sooner |
| split | the factors of all blocks first, then their application to each tile of values |
| serial | the recurrence node by node, a state stored for every node and the parent's read back |
| resident | the recurrence, the state kept in registers while the parent is the previous node |

Names, shapes and equations are those of canopy_gdn.verify and docs/math.md. K and V are powers of 2, 16 or more (64 and 128 are
what models have). No kernel is compiled again for another batch; T enters as its power of 2.
"""

from .api import STRATEGIES, commit, verify
from .planning import Plan, plan

__all__ = ["STRATEGIES", "Plan", "commit", "plan", "verify"]
