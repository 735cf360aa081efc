// Where the nodes of a tree stand in a box: d3's tidy tree in units of one node, then the orientation that leaves most
// room between nodes. A deep and narrow tree runs to and fro in bands, so that a chain of 256 stays readable.
import { hierarchy, tree as tidyTree, type HierarchyPointNode } from "d3-hierarchy";
import type { Tree } from "../core.ts";

export interface Layout {
  x: Float64Array; // by node
  y: Float64Array;
  gap: number; // smallest distance between neighbours
  edges: string[]; // by node: SVG path from its parent; "" for the root
}

const kMostBands = 18;

interface Units {
  across: Float64Array; // by node, breadth position from 0
  breadth: number; // largest across
}

function units(tree: Tree): Units {
  const children: number[][] = Array.from({ length: tree.nodes }, () => []);
  for (let i = 1; i < tree.nodes; ++i) children[tree.parents[i]].push(i);
  const root = hierarchy<number>(0, (i) => children[i]);
  tidyTree<number>().nodeSize([1, 1]).separation((a, b) => (a.parent === b.parent ? 1 : 1.25))(root);
  const across = new Float64Array(tree.nodes);
  let least = Infinity, most = -Infinity;
  root.each((node) => {
    const x = (node as HierarchyPointNode<number>).x;
    across[node.data] = x;
    least = Math.min(least, x), most = Math.max(most, x);
  });
  for (let i = 0; i < tree.nodes; ++i) across[i] -= least;
  return { across, breadth: most - least };
}

// `margin` stays free on every side; `most` bounds the distance of siblings.
export function layOut(tree: Tree, outerWidth: number, outerHeight: number, margin = 0, most = 34): Layout {
  const width = outerWidth - 2 * margin, height = outerHeight - 2 * margin;
  const { across, breadth } = units(tree);
  const T = tree.nodes, levels = tree.depth;
  // Bands 0 stands for the upright tree, root on top.
  const room = (bands: number) =>
    bands === 0
      ? Math.min(width / (breadth + 1), height / (levels + 1))
      : Math.min(width / Math.ceil((levels + 1) / bands), height / bands / (breadth + 1.6));
  let bands = 0;
  for (let b = 1; b <= kMostBands; ++b) if (room(b) > room(bands) * 1.02) bands = b;
  const gap = Math.min(room(bands), most);
  const x = new Float64Array(T), y = new Float64Array(T);

  if (bands === 0) {
    // Levels may stand further apart than siblings: branches want length.
    const stepX = Math.min(width / (breadth + 1), most * 1.9), stepY = Math.min(height / (levels + 1), most * 2.6);
    for (let i = 0; i < T; ++i) {
      x[i] = width / 2 + (across[i] - breadth / 2) * stepX;
      y[i] = height / 2 + (tree.depths[i] - levels / 2) * stepY;
    }
  } else {
    const perBand = Math.ceil((levels + 1) / bands);
    const stepX = Math.min(width / perBand, most * 2.4), bandHeight = Math.min(height / bands, (breadth + 1.6) * most * 1.4), stepY = bandHeight / (breadth + 1.6);
    for (let i = 0; i < T; ++i) {
      const band = Math.floor(tree.depths[i] / perBand), along = tree.depths[i] % perBand;
      const column = band % 2 === 0 ? along : perBand - 1 - along;
      x[i] = width / 2 + (column - (perBand - 1) / 2) * stepX;
      y[i] = height / 2 + (band - (bands - 1) / 2) * bandHeight + (across[i] - breadth / 2) * stepY;
    }
  }
  for (let i = 0; i < T; ++i) (x[i] += margin), (y[i] += margin);
  const f = (n: number) => n.toFixed(1);
  const edges = Array.from({ length: T }, (_, i) => {
    const p = tree.parents[i];
    if (p < 0) return "";
    const [px, py, cx, cy] = [x[p], y[p], x[i], y[i]];
    if (bands === 0) return `M${f(px)} ${f(py)}C${f(px)} ${f((py + cy) / 2)} ${f(cx)} ${f((py + cy) / 2)} ${f(cx)} ${f(cy)}`;
    if (px === cx) return `M${f(px)} ${f(py)}L${f(cx)} ${f(cy)}`; // from band to band
    return `M${f(px)} ${f(py)}C${f((px + cx) / 2)} ${f(py)} ${f((px + cx) / 2)} ${f(cy)} ${f(cx)} ${f(cy)}`;
  });
  return { x, y, gap, edges };
}

export function nearest(layout: Layout, x: number, y: number): number {
  let best = 0, least = Infinity;
  for (let i = 0; i < layout.x.length; ++i) {
    const distance = (layout.x[i] - x) ** 2 + (layout.y[i] - y) ** 2;
    if (distance < least) (least = distance), (best = i);
  }
  return best;
}
