"""Draft trees: made from any form that people write them in, drawn, and given to verify as arrays."""

from __future__ import annotations

import ctypes
import json
import operator
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import _abi

if TYPE_CHECKING:
    import numpy as np

_DRAWN = 40  # nodes up to which repr draws


class Tree:
    """A tree of 1 to 256 nodes. Node 0 is the root and every parent precedes its children. Immutable.

    Made by from_parents, from_choices, from_retrieve, from_successors, from_mask, from_widths, parse or family. A sequence
    that is no tree raises CanopyError with the index and the values. The forms are those of docs/trees.md.
    """

    __slots__ = ("_parents", "_arrays", "_ancestors", "_blocks")

    def __init__(self, parents: Iterable[int]) -> None:
        """Node i's parent is parents[i]; -1 for the root, which is node 0."""
        given = _plain(parents, "parents")
        if any(not -(2**31) <= parent < 2**31 for parent in given):
            index, value = next((i, p) for i, p in enumerate(given) if not -(2**31) <= p < 2**31)
            raise _abi.CanopyError(
                f"parents[{index}] = {value}: expected -1 for the root, else 0 <= parent < {index}; renumber the nodes parents first"
            )
        nodes = len(given)
        room = max(nodes, 1)
        array = (ctypes.c_int32 * room)(*given)
        made = {name: (ctypes.c_int32 * room)() for name in ("depths", "dfs_order", "level_order", "subtree_sizes")}
        ancestors = (ctypes.c_uint64 * (4 * room))()
        out = _abi.TreeArrays(
            ancestors=ctypes.addressof(ancestors),
            **{name: ctypes.addressof(values) for name, values in made.items()},
        )
        _abi.call("canopy_tree_from_parents", array, nodes, ctypes.byref(out))
        self._parents = tuple(given)
        self._arrays: dict[str, tuple[int, ...]] = {name: tuple(values) for name, values in made.items()}
        self._ancestors = tuple(sum(ancestors[4 * i + word] << (64 * word) for word in range(4)) for i in range(nodes))
        self._blocks: tuple[int, int] = (out.compressed_blocks, out.dense_blocks)

    # ---- forms -----------------------------------------------------------------------------------------------------

    @classmethod
    def parse(cls, text: str, form: str | None = None, index: int = 0) -> Tree:
        """Reads text in a form of docs/trees.md: "parents", "choices", "tuples", "retrieve", "successors", "mask",
        "widths", or None to detect it. `index` picks a tree where the text holds several."""
        source = text.encode()
        parents = (ctypes.c_int32 * _abi.MAX_NODES)()
        nodes = ctypes.c_int32()
        name = None if form is None else form.encode()
        _abi.call("canopy_tree_parse", source, len(source), name, index, parents, ctypes.byref(nodes))
        return cls(parents[: nodes.value])

    @classmethod
    def from_parents(cls, parents: Iterable[int]) -> Tree:
        """parents [T]: the parent of each node, -1 for the root (DDTree)."""
        return cls(parents)

    @classmethod
    def from_choices(cls, choices: Sequence[Sequence[int]]) -> Tree:
        """Paths of child ranks, in any order, the root implied (Medusa, EAGLE; vLLM's tuples). Nodes are numbered by depth,
        then by rank."""
        return cls._from_json("choices", [list(path) for path in choices])

    @classmethod
    def from_retrieve(cls, next_token: Sequence[int], next_sibling: Sequence[int]) -> Tree:
        """next_token [T] the first child and next_sibling [T] the next sibling of each node, -1 for none (SGLang)."""
        return cls.parse(
            json.dumps(
                {"next_token": _plain(next_token, "next_token"), "next_sibling": _plain(next_sibling, "next_sibling")}
            ),
            "retrieve",
        )

    @classmethod
    def from_successors(cls, successors: Sequence[Sequence[int]]) -> Tree:
        """The children of each node (Sequoia)."""
        return cls._from_json("successors", [list(children) for children in successors])

    @classmethod
    def from_mask(cls, mask: Any) -> Tree:
        """mask [T, T]: row i marks the ancestors of node i and i itself (DDTree, EAGLE)."""
        try:
            rows = [list(row) for row in mask]
        except TypeError:
            raise _abi.CanopyError(
                "mask: expected [T, T], a row a node, got one without rows; pass nested lists or a 2-d array"
            ) from None
        for i, row in enumerate(rows):
            for j, bit in enumerate(row):
                if bit not in (0, 1):  # an additive mask of 0 and -inf, say
                    raise _abi.CanopyError(f"mask[{i}][{j}] = {bit}: expected 0 or 1; give the mask as booleans")
        return cls._from_json("mask", [[int(bit) for bit in row] for row in rows])

    @classmethod
    def from_widths(cls, widths: Sequence[int]) -> Tree:
        """widths[i]: children of each node of level i (SpecInfer)."""
        return cls._from_json("widths", _plain(widths, "widths"))

    @classmethod
    def family(cls, name: str, nodes: int = 64, *, top_k: int = 4, depth: int = 8, seed: int = 0) -> Tree:
        """A tree of a family: "chain", "star", "balanced", "caterpillar", "spine", "skewed", "random", "best-first" or
        "specla". The same arguments give the same tree everywhere."""
        parents = (ctypes.c_int32 * _abi.MAX_NODES)()
        _abi.call("canopy_tree_family", name.encode(), nodes, top_k, depth, seed, parents)
        return cls(parents[:nodes])

    @classmethod
    def _from_json(cls, form: str, value: list) -> Tree:
        return cls.parse(json.dumps({form: value}, default=operator.index), form)

    def write(self, form: str) -> str:
        """The tree as text in a form that parse reads back; "drawing" draws it."""
        array = (ctypes.c_int32 * len(self))(*self._parents)
        return _abi.text_of("canopy_tree_write", array, len(self), form.encode())

    # ---- what follows from the parents --------------------------------------------------------------------------------

    def __len__(self) -> int:
        return len(self._parents)

    @property
    def parents(self) -> tuple[int, ...]:
        """[T] parent of each node, -1 for the root."""
        return self._parents

    @property
    def depth(self) -> int:
        """The largest number of strict ancestors: 0 for the root alone."""
        return max(self._arrays["depths"])

    @property
    def depths(self) -> tuple[int, ...]:
        """[T] strict ancestors of each node."""
        return self._arrays["depths"]

    @property
    def dfs_order(self) -> tuple[int, ...]:
        """[T] the node at each depth-first rank, children in ascending order: the order in which the solve runs."""
        return self._arrays["dfs_order"]

    @property
    def level_order(self) -> tuple[int, ...]:
        """[T] nodes by depth, then by number."""
        return self._arrays["level_order"]

    @property
    def subtree_sizes(self) -> tuple[int, ...]:
        """[T] nodes below each node, itself included."""
        return self._arrays["subtree_sizes"]

    @property
    def blocks(self) -> tuple[int, int]:
        """16 x 16 blocks that the path-compressed solve computes, and those of the dense triangle."""
        return self._blocks

    @property
    def mask(self) -> np.ndarray:
        """bool [T, T]: mask[i, j] says that j is on the path of i (j an ancestor of i, or i itself). The mask that attention
        layers use."""
        import numpy as np

        bits = np.zeros((len(self), len(self)), bool)
        for i, ancestors in enumerate(self._ancestors):
            bits[i] = [ancestors >> j & 1 for j in range(len(self))]
            bits[i, i] = True
        return bits

    def path(self, node: int) -> tuple[int, ...]:
        """Nodes from the root to `node`, both included."""
        if not 0 <= node < len(self):
            raise _abi.CanopyError(f"node = {node}: expected 0 <= node < {len(self)}, the nodes of this tree")
        nodes = [node]
        while self._parents[nodes[-1]] >= 0:
            nodes.append(self._parents[nodes[-1]])
        return tuple(reversed(nodes))

    @property
    def leaves(self) -> tuple[int, ...]:
        """Nodes without children, ascending."""
        inner = set(self._parents)
        return tuple(node for node in range(len(self)) if node not in inner)

    def numpy(self) -> np.ndarray:
        """parents as int32 [T]."""
        import numpy as np

        return np.array(self._parents, np.int32)

    # ---- for people ----------------------------------------------------------------------------------------------------

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tree) and self._parents == other._parents

    def __hash__(self) -> int:
        return hash(self._parents)

    def __repr__(self) -> str:
        head = f"Tree({len(self)} node{'s' if len(self) > 1 else ''}, depth {self.depth}"
        if len(self) > _DRAWN:
            return f"{head}, {len(self.leaves)} leaves)"
        return f"{head})\n{self.write('drawing').rstrip()}"

    def svg(self) -> str:
        """The tree as an SVG picture: levels downwards, accent on the longest path."""
        from . import _svg

        return _svg.draw(self)

    def _repr_html_(self) -> str:
        return self.svg()


def _plain(values: Iterable[Any], name: str) -> list[int]:
    """Integers of Python, NumPy or PyTorch. Rounding 0.7 to a node would hide a mistake."""
    plain = []
    for i, value in enumerate(values):
        try:
            plain.append(operator.index(value))
        except TypeError:
            raise _abi.CanopyError(
                f"{name}[{i}] = {value!r}: expected an integer, got {type(value).__name__}; convert the array first"
            ) from None
    return plain


def batch(trees: Sequence[Tree], nodes: int | None = None) -> tuple[np.ndarray, np.ndarray]:
    """The trees of a step as arrays: parents int32 [B, T] and count int32 [B], for verify and commit.

    T is `nodes`, or the size of the largest tree. What stands past a count is never read.
    """
    import numpy as np

    for i, tree in enumerate(trees):
        if not isinstance(tree, Tree):
            raise _abi.CanopyError(f"trees[{i}]: expected a Tree, got {type(tree).__name__}; Tree(parents) makes one")
    largest = max((len(tree) for tree in trees), default=1)
    width = largest if nodes is None else nodes
    if width < largest:
        raise _abi.CanopyError(
            f"nodes = {nodes}: expected at least {largest}, the size of the largest tree; leave it out to take that"
        )
    parents = np.full((len(trees), width), -1, np.int32)
    for row, tree in zip(parents, trees):
        row[: len(tree)] = tree.parents
    return parents, np.array([len(tree) for tree in trees], np.int32)
