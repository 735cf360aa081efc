"""Trees: forms, what follows from the parents, drawings."""

import copy
import pathlib
import pickle
import xml.etree.ElementTree as ElementTree

import canopy_gdn
import numpy as np
import pytest
from canopy_gdn import CanopyError, Tree
from hypothesis import given
from hypothesis import strategies as st

DATA = pathlib.Path(__file__).parents[2] / "data" / "trees"
FORK = Tree([-1, 0, 0, 1])  # 0 -> 1, 2; 1 -> 3

parent_lists = st.integers(1, 60).flatmap(lambda n: st.tuples(*(st.integers(0, max(i - 1, 0)) for i in range(n))))


@pytest.mark.parametrize("made", [
    Tree.from_parents(np.array([-1, 0, 0, 1])),
    Tree.from_choices([[0], [1], [0, 0]]),
    Tree.from_choices([(0, 0), (1,), (0,)]),
    Tree.from_retrieve([1, 3, -1, -1], [-1, 2, -1, -1]),
    Tree.from_retrieve(np.array([2, 3, -1, -1]), np.array([-1, -1, 1, -1])),
    Tree.from_successors([[1, 2], [3], [], []]),
    Tree.from_mask(FORK.mask),
    Tree.parse("[(0,), (1,), (0, 0)]"),
    Tree.parse("-1 0 0 1"),
])  # fmt: skip
def test_every_form_reads_the_same_tree(made):
    assert made == FORK and hash(made) == hash(FORK)


def test_widths_count_the_children_of_each_node():
    assert Tree.from_widths([2, 1]).parents == (-1, 0, 0, 1, 2)


def test_what_follows_from_the_parents():
    tree = Tree([-1, 0, 0, 1, 2, 2, 4])
    assert (len(tree), tree.depth, tree.depths) == (7, 3, (0, 1, 1, 2, 2, 2, 3))
    assert tree.dfs_order == (0, 1, 3, 2, 4, 6, 5) and tree.level_order == (0, 1, 2, 3, 4, 5, 6)
    assert tree.subtree_sizes == (7, 2, 4, 1, 2, 1, 1) and tree.leaves == (3, 5, 6)
    assert tree.path(6) == (0, 2, 4, 6) and tree.path(0) == (0,)
    assert tree.mask.dtype == bool and set(np.flatnonzero(tree.mask[6])) == {0, 2, 4, 6}
    assert tree.blocks == (1, 1) and Tree.family("best-first", 128).blocks == (15, 36)


@given(parent_lists)
def test_mask_is_the_set_of_paths(links):
    tree = Tree([-1, *links[1:]])
    mask = tree.mask
    assert all(set(np.flatnonzero(mask[i])) == set(tree.path(i)) for i in range(len(tree)))
    assert tree.depth == max(len(tree.path(i)) - 1 for i in range(len(tree)))


@given(parent_lists, st.sampled_from(["parents", "retrieve", "successors", "mask"]))
def test_written_trees_read_back(links, form):
    tree = Tree([-1, *links[1:]])
    assert Tree.parse(tree.write(form), form) == tree


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda path: path.stem)
def test_published_trees(path):
    tree = Tree.parse(path.read_text())
    assert 1 <= len(tree) <= 256 and Tree.from_mask(tree.mask) == tree


def test_drawing_of_a_small_tree():
    assert repr(FORK) == "Tree(4 nodes, depth 2)\n0\n├─ 1\n│  └─ 3\n└─ 2"
    assert repr(Tree([-1])) == "Tree(1 node, depth 0)\n0"
    large = Tree.family("balanced", 128, top_k=2)
    assert repr(large) == "Tree(128 nodes, depth 7, 64 leaves)"


def test_svg_shows_every_node_and_edge():
    tree = Tree.family("best-first", 20)
    root = ElementTree.fromstring(tree._repr_html_())
    space = "{http://www.w3.org/2000/svg}"
    labels = [element.text for element in root.iter(f"{space}text")]
    assert sorted(labels, key=int) == [str(node) for node in range(20)]
    assert len(list(root.iter(f"{space}line"))) == 19
    places = {(c.get("cx"), c.get("cy")) for c in root.iter(f"{space}circle")}
    assert len(places) == 20, "nodes on top of each other"
    assert "depth" in root.find(f"{space}title").text


def test_trees_are_values():
    """Copied and sent to other processes, as engines do."""
    for same in (copy.deepcopy(FORK), pickle.loads(pickle.dumps(FORK))):
        assert same == FORK and same.depths == FORK.depths and np.array_equal(same.mask, FORK.mask)
    assert Tree(iter(np.int64([-1, 0, 0, 1]))) == FORK


def test_batch_pads_and_counts():
    parents, count = canopy_gdn.batch([FORK, Tree([-1])])
    assert parents.dtype == np.int32 and parents.shape == (2, 4) and parents[0].tolist() == [-1, 0, 0, 1]
    assert count.tolist() == [4, 1] and canopy_gdn.batch([FORK], nodes=9)[0].shape == (1, 9)
    assert canopy_gdn.batch([])[0].shape == (0, 1)


@pytest.mark.parametrize(("make", "pieces"), [
    (lambda: Tree([-1, 2, 0]), ["parents[1] = 2", "a parent must precede its child", "0 <= parent < 1"]),
    (lambda: Tree([-1, -1]), ["parents[1] = -1", "second root"]),
    (lambda: Tree([]), ["1 to 256"]),
    (lambda: Tree([-1, *range(256)]), ["257", "256"]),
    (lambda: Tree([-1, 2**40]), [f"parents[1] = {2**40}", "expected"]),
    (lambda: Tree.from_choices([[0, 0]]), ["choices", "[0]"]),
    (lambda: Tree.from_mask([[1, 0], [0, 1]]), ["mask"]),
    (lambda: Tree.from_mask([[0, -np.inf], [0, 0]]), ["mask[0][1] = -inf: expected 0 or 1", "booleans"]),
    (lambda: Tree.from_mask([1, 0]), ["mask: expected [T, T]"]),
    (lambda: Tree([-1, 0.7]), ["parents[1] = 0.7: expected an integer, got float"]),
    (lambda: Tree.from_retrieve([1.0, -1], [-1, -1]), ["next_token[0] = 1.0: expected an integer"]),
    (lambda: Tree.from_widths(["2"]), ["widths[0] = '2': expected an integer, got str"]),
    (lambda: Tree.parse("{"), ["line 1"]),
    (lambda: Tree.parse("[[1]]"), ["mask", "choices"]),
    (lambda: Tree.parse("-1 0", "shrub"), ["shrub", "expected"]),
    (lambda: Tree.parse("-1 0", index=1), ["index = 1", "the text holds 1 tree"]),
    (lambda: Tree.family("shrub"), ["shrub", "best-first"]),
    (lambda: Tree.family("specla", 60, top_k=2, depth=4), ["31"]),
    (lambda: FORK.path(4), ["node = 4", "expected 0 <= node < 4"]),
    (lambda: FORK.write("leaf litter"), ["leaf litter"]),
    (lambda: canopy_gdn.batch([FORK], nodes=3), ["nodes = 3", "at least 4", "; leave it out"]),
    (lambda: canopy_gdn.batch([FORK, [-1, 0]]), ["trees[1]: expected a Tree, got list", "Tree(parents)"]),
])  # fmt: skip
def test_what_is_no_tree_is_refused_with_the_reason(make, pieces):
    with pytest.raises(CanopyError) as error:
        make()
    for piece in pieces:
        assert piece in str(error.value)
