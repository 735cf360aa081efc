"""The convolution windows of a tree against feeding every root path through the causal convolution."""

import numpy as np
import pytest
from canopy_gdn import Tree
from hypothesis import given
from hypothesis import strategies as st

torch = pytest.importorskip("torch")
from canopy_gdn.integrations import _windows as w  # noqa: E402

trees = st.tuples(st.integers(1, 24), st.integers(0, 1000)).map(lambda s: Tree.family("random", s[0], seed=s[1]))


def links(tree, order):
    next_token, next_sibling = [-1] * len(tree), [-1] * len(tree)
    for parent in range(len(tree)):
        children = [node for node in range(len(tree)) if tree.parents[node] == parent]
        children = order(children)
        if children:
            next_token[parent] = children[0]
        for one, other in zip(children, children[1:]):
            next_sibling[one] = other
    return next_token, next_sibling


@given(
    trees, st.sampled_from([sorted, lambda c: sorted(c, reverse=True), lambda c: sorted(c, key=lambda n: n * 7 % 5)])
)
def test_parents_of_links(tree, order):
    next_token, next_sibling = (torch.tensor([row, row]) for row in links(tree, order))
    parents = w.parents_of_links(next_token, next_sibling)
    assert parents.dtype == torch.int32 and parents.tolist() == [list(tree.parents)] * 2


@given(trees, st.integers(2, 4), st.booleans(), st.booleans())
def test_every_node_sees_its_root_path(tree, width, silu, bias):
    torch.manual_seed(0)
    T, C = len(tree), 6
    x, committed = torch.randn(2, T, C), torch.randn(2, C, width - 1)
    weight, shift = torch.randn(C, width), torch.randn(C) if bias else None
    parents = torch.tensor([tree.parents] * 2, dtype=torch.int32)
    parents[1, 0] = 5  # what stands at node 0 is not read
    taps = w.windows(parents, width)
    got = w.convolve(x, committed, weight, shift, taps, silu)
    for node in range(T):
        path = list(tree.path(node))
        fed = torch.cat([committed, x[:, path].transpose(1, 2)], 2)
        expected = torch.nn.functional.conv1d(fed, weight[:, None], shift, groups=C)[:, :, -1]
        expected = torch.nn.functional.silu(expected) if silu else expected
        assert torch.allclose(got[:, node], expected, atol=1e-5)
        kept = w.committed_window(x, committed, taps, torch.tensor([node, node]), width - 1)
        assert torch.equal(kept, fed[:, :, 1 - width :])


def test_siblings_see_the_same_window_and_the_order_of_sums_is_fixed():
    parents = torch.tensor([[-1, 0, 0, 1]], dtype=torch.int32)
    taps = w.windows(parents, 4)
    assert taps[0].tolist() == [[0, 1, 2, 3], [1, 2, 3, 4], [1, 2, 3, 5], [2, 3, 4, 6]]
    x, committed, weight = torch.randn(1, 4, 3), torch.randn(1, 3, 3), torch.randn(3, 4)
    got = w.convolve(x, committed, weight, None, taps, False)[0, 3].numpy()
    sequence = torch.cat([committed.transpose(1, 2), x], 1)[0].numpy()
    total = np.zeros(3, np.float32)
    for tap, position in enumerate((2, 3, 4, 6)):
        total = total + weight[:, tap].numpy() * sequence[position]
    assert np.allclose(got, total, rtol=1e-6)
