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
  private radius = 4;
  private node = 0;
  private path: number[] = []; // lit now
  private dots: Element[] = [];
  private lit!: SVGPathElement;
  private name!: SVGTextElement;

  constructor(parent: HTMLElement, private readonly options: TreeViewOptions) {
    this.svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
    this.svg.setAttribute("role", "tree");
    this.svg.setAttribute("tabindex", "0");
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

  // Script time is what the page promises: a tree of 256 nodes within a frame.
  draw(tree: Tree, width: number, height: number, title: string): void {
    this.tree = tree;
    this.layout = layOut(tree, width, height, 6);
    this.radius = Math.max(1.7, Math.min(13, this.layout.gap * 0.4));
    this.svg.setAttribute("width", String(width));
    this.svg.setAttribute("height", String(height));
    this.svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
    this.svg.setAttribute("aria-label", title);
    const numbered = this.radius >= 7.5;
    const parts = [`<path class="edges" d="${this.layout.edges.join("")}"/><path class="lit"/>`];
    for (let i = 0; i < tree.nodes; ++i) {
      const x = this.layout.x[i].toFixed(1), y = this.layout.y[i].toFixed(1);
      parts.push(`<g class="node" id="${this.id}-${i}" role="treeitem" aria-level="${tree.depths[i] + 1}"><circle cx="${x}" cy="${y}" r="${this.radius.toFixed(1)}"/>`);
      if (numbered) parts.push(`<text x="${x}" y="${y}" font-size="${Math.min(12, this.radius * 0.95).toFixed(1)}">${this.options.number(i)}</text>`);
      parts.push("</g>");
    }
    parts.push('<text class="name"></text>');
    this.svg.classList.toggle("fine", this.radius < 4);
    this.svg.innerHTML = parts.join("");
    this.dots = [...this.svg.querySelectorAll(".node")];
    this.lit = this.svg.querySelector(".lit")!;
    this.name = this.svg.querySelector(".name")!;
    this.name.toggleAttribute("hidden", numbered);
    this.path = [];
    this.show(Math.min(this.node, tree.nodes - 1));
  }

  show(node: number): void {
    this.node = node;
    if (!this.tree) return;
    const path = pathTo(this.tree, node);
    for (const i of this.path) this.dots[i]?.classList.remove("path", "chosen");
    for (const i of path) this.dots[i].classList.add("path");
    this.dots[node].classList.add("chosen");
    this.path = path;
    this.lit.setAttribute("d", path.map((i) => this.layout.edges[i]).join(""));
    const chosen = this.dots[node];
    chosen.setAttribute("aria-label", this.options.label(node));
    this.svg.setAttribute("aria-activedescendant", chosen.id);
    if (!this.name.hasAttribute("hidden")) {
      const x = this.layout.x[node], right = x > this.svg.clientWidth - 60;
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
