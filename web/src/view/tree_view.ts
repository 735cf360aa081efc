// The tree as SVG: one focusable picture, a node chosen by pointer or arrow keys, its root path lit.
import { pathTo, type Tree } from "../core.ts";
import { layOut, nearest, type Layout } from "./layout.ts";

export interface TreeViewOptions {
  label: (node: number) => string; // what a screen reader says of a node
  number: (node: number) => number; // what stands in it
  choose: (node: number) => void;
}

let views = 0;

export class TreeView {
  private readonly svg: SVGSVGElement;
  private readonly id = `tree${++views}`;
  private tree!: Tree;
  private layout!: Layout;
  private width = 0;
  private radius = 4;
  private node = 0;
  private path: number[] = []; // lit now
  private numbered = false; // nodes are large enough to hold their number
  private dots: Element[] = [];
  private readonly edges: Element;
  private readonly lit: Element;
  private readonly nodes: Element;
  private readonly name: Element;

  constructor(parent: HTMLElement, private readonly options: TreeViewOptions) {
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("role", "tree");
    this.svg.setAttribute("tabindex", "0");
    this.svg.innerHTML = '<path class="edges"/><path class="lit"/><g></g><text class="name"></text>';
    [this.edges, this.lit, this.nodes, this.name] = this.svg.children;
    parent.replaceChildren(this.svg);
    const at = (event: PointerEvent) => {
      const box = this.svg.getBoundingClientRect();
      if (this.layout) this.options.choose(nearest(this.layout, event.clientX - box.left, event.clientY - box.top));
    };
    this.svg.addEventListener("pointermove", (event) => event.pointerType !== "touch" && at(event));
    this.svg.addEventListener("pointerdown", at);
    this.svg.addEventListener("keydown", (event) => {
      const next = this.move(event.key);
      if (next === undefined) return;
      event.preventDefault();
      this.options.choose(next);
    });
  }

  // Script time is what the page promises: a tree of 256 nodes within a frame. So the nodes' elements are kept from tree to
  // tree, and nothing here asks the browser where something stands: it would lay out the page in the midst of it.
  draw(tree: Tree, node: number, width: number, height: number, title: string): void {
    this.tree = tree;
    this.width = width;
    this.layout = layOut(tree, width, height, 6);
    this.svg.setAttribute("width", String(width));
    this.svg.setAttribute("height", String(height));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("aria-label", title);
    this.resize(Math.max(1.7, Math.min(13, this.layout.gap * 0.4)));
    this.edges.setAttribute("d", this.layout.edges.join(""));
    this.unmark();
    this.node = node;
    this.path = pathTo(tree, node);
    const onPath = new Uint8Array(tree.nodes);
    for (const i of this.path) onPath[i] = 1;
    this.dots.forEach((dot, i) => {
      dot.setAttribute("transform", `translate(${this.layout.x[i].toFixed(1)} ${this.layout.y[i].toFixed(1)})`);
      dot.setAttribute("class", onPath[i] ? "node path" : "node");
      dot.setAttribute("aria-level", String(tree.depths[i] + 1));
      const number = String(this.options.number(i));
      if (this.numbered && dot.textContent !== number) dot.lastChild!.textContent = number;
    });
    this.mark();
  }

  // As many nodes' elements as the tree has nodes, and circles of this radius.
  private resize(radius: number): void {
    this.radius = radius;
    const numbered = radius >= 7.5, r = radius.toFixed(1), T = this.tree.nodes;
    if (numbered !== this.numbered) this.dots.splice(0).forEach((dot) => dot.remove());
    this.dots.splice(T).forEach((dot) => dot.remove());
    this.dots.forEach((dot) => (dot.firstChild as Element).setAttribute("r", r));
    let more = "";
    for (let i = this.dots.length; i < T; ++i) more += `<g id="${this.id}-${i}" role="treeitem"><circle r="${r}"/>${numbered ? "<text/>" : ""}</g>`;
    this.nodes.insertAdjacentHTML("beforeend", more);
    this.dots = [...this.nodes.children];
    this.nodes.setAttribute("font-size", Math.min(12, radius * 0.95).toFixed(1));
    this.svg.classList.toggle("fine", radius < 4);
    this.name.toggleAttribute("hidden", numbered);
    this.numbered = numbered;
  }

  // A node that this tree lacks is of the next one, which comes when the pointer rests.
  show(node: number): void {
    if (!this.tree || node === this.node || node >= this.tree.nodes) return;
    const path = pathTo(this.tree, node);
    this.unmark();
    for (const i of this.path) this.dots[i].classList.remove("path");
    for (const i of path) this.dots[i].classList.add("path");
    this.path = path;
    this.node = node;
    this.mark();
  }

  private unmark(): void {
    const chosen = this.dots[this.node] as Element | undefined; // the tree before may have had it
    chosen?.classList.remove("chosen");
    chosen?.removeAttribute("aria-label");
  }

  // The chosen node and the line to it.
  private mark(): void {
    const { node, path } = this, chosen = this.dots[node];
    chosen.classList.add("chosen");
    this.lit.setAttribute("d", path.map((i) => this.layout.edges[i]).join(""));
    chosen.setAttribute("aria-label", this.options.label(node));
    this.svg.setAttribute("aria-activedescendant", chosen.id);
    if (!this.numbered) {
      const x = this.layout.x[node], right = x > this.width - 60;
      this.name.textContent = String(this.options.number(node));
      this.name.setAttribute("x", (right ? x - this.radius - 6 : x + this.radius + 6).toFixed(1));
      this.name.setAttribute("y", Math.max(12, this.layout.y[node] - this.radius - 4).toFixed(1));
      this.name.setAttribute("text-anchor", right ? "end" : "start");
    }
  }

  // A class for each node, such as what a solver has done to it.
  paint(classOf: (node: number) => string): void {
    this.dots.forEach((dot, i) => {
      const on = dot.classList.contains("path") ? " path" : "", chosen = dot.classList.contains("chosen") ? " chosen" : "";
      dot.setAttribute("class", `node ${classOf(i)}${on}${chosen}`);
    });
  }

  private move(key: string): number | undefined {
    const tree = this.tree, node = this.node;
    const siblings = (of: number) => [...tree.parents.keys()].filter((i) => tree.parents[i] === of);
    if (key === "Home") return 0;
    if (key === "End") return tree.nodes - 1;
    if (key === "ArrowUp") return node > 0 ? tree.parents[node] : 0;
    if (key === "ArrowDown") return siblings(node)[0] ?? node;
    if (key === "ArrowLeft" || key === "ArrowRight") {
      // Along the level, over the borders of families.
      const level = [...tree.depths.keys()].filter((i) => tree.depths[i] === tree.depths[node]).sort((a, b) => tree.dfsRank[a] - tree.dfsRank[b]);
      return level[Math.max(0, Math.min(level.length - 1, level.indexOf(node) + (key === "ArrowLeft" ? -1 : 1)))];
    }
    return undefined;
  }
}
