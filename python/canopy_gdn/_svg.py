"""A tree as SVG: a level a row, leaves side by side, the deepest path in the accent colour. Reads on light and dark."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .tree import Tree

_STEP_X, _STEP_Y, _RADIUS = 30, 44, 11
_ACCENT = "#0f766e"


def draw(tree: Tree) -> str:
    """SVG text. x is the mean of a node's children, leaves count up in depth-first order; units are pixels."""
    children: list[list[int]] = [[] for _ in range(len(tree))]
    for node, parent in enumerate(tree.parents):
        if parent >= 0:
            children[parent].append(node)
    x = [0.0] * len(tree)
    column = 0
    for node in tree.dfs_order:
        if not children[node]:
            x[node] = column
            column += 1
    for node in reversed(tree.dfs_order):
        if children[node]:
            x[node] = (x[children[node][0]] + x[children[node][-1]]) / 2

    deepest = set(tree.path(max(range(len(tree)), key=lambda node: (tree.depths[node], -node))))
    place = [(_STEP_X * (x[node] + 0.7), _STEP_Y * (tree.depths[node] + 0.45)) for node in range(len(tree))]
    width, height = _STEP_X * (column + 0.4), _STEP_Y * (tree.depth + 0.9)
    lines, circles = [], []
    for node, (cx, cy) in enumerate(place):
        on_path = node in deepest
        colour = _ACCENT if on_path else "#94a3b8"
        if tree.parents[node] >= 0:
            px, py = place[tree.parents[node]]
            lines.append(
                f'<line x1="{px:g}" y1="{py:g}" x2="{cx:g}" y2="{cy:g}" stroke="{colour}" stroke-width="{2 if on_path else 1.2}"/>'
            )
        circles.append(
            f'<circle cx="{cx:g}" cy="{cy:g}" r="{_RADIUS}" fill="{colour if on_path else "#f8fafc"}" stroke="{colour}"/>'
            f'<text x="{cx:g}" y="{cy + 3.5:g}" fill="{"#ffffff" if on_path else "#334155"}">{node}</text>'
        )
    title = f"draft tree of {len(tree)} nodes, depth {tree.depth}"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" height="{height:g}" '
        f'role="img" aria-label="{title}" font-family="system-ui, sans-serif" font-size="10" text-anchor="middle">'
        f"<title>{title}</title>{''.join(lines)}{''.join(circles)}</svg>"
    )
