// The page: one tree at a time, chosen in the picker or by the address, shown by every view.
import { coreUrl, repository, resultsUrl, treeFiles } from "virtual:canopy";
import { Core, pathTo, type Tree } from "./core.ts";
import type { Results } from "./data/records.ts";
import { fromQuery, kStart, toQuery, type Choice, type PageState } from "./state.ts";
import { AccuracyView } from "./view/accuracy_view.ts";
import { CrossoverView } from "./view/crossover_view.ts";
import { byId, fillWhenOpen, h, onWidth } from "./view/dom.ts";
import { counted, listed } from "./view/format.ts";
import { LatencyView } from "./view/latency_view.ts";
import { MaskView } from "./view/mask.ts";
import { MemoryView } from "./view/memory_view.ts";
import { apply, explain, Picker } from "./view/picker.ts";
import { PublishedView } from "./view/published_view.ts";
import { SolveView } from "./view/solve_view.ts";
import { watchTheme } from "./view/theme.ts";
import { TreeView } from "./view/tree_view.ts";

class Page {
  private state: PageState;
  private tree!: Tree;
  private node = 0;
  private widths = { tree: 0, mask: 0, gathered: 0 };
  private readonly picker: Picker;
  private readonly treeView: TreeView;
  private readonly maskView: MaskView;
  private readonly solveView: SolveView;
  private readonly memoryView: MemoryView;
  private later = 0;
  private address = 0;

  constructor(private readonly core: Core, module: WebAssembly.Module) {
    const files = treeFiles.map((file) => ({ ...file, count: core.read(file.text) }));
    this.state = fromQuery(location.search, core, files.map((f) => f.name));
    const choose = (node: number) => this.choose(node);
    const number = (node: number) => this.number(node), label = (node: number) => this.describe(node);
    this.treeView = new TreeView(byId("tree-view"), { label, number, choose });
    this.maskView = new MaskView(byId("mask-view"), byId("gathered-view"), choose);
    this.solveView = new SolveView(core, module, choose, label, number);
    this.memoryView = new MemoryView(core);
    this.picker = new Picker(byId<HTMLFormElement>("picker"), core, files, this.state.choice, this.state.order, (choice) => this.take(choice), (order) => {
      this.state.order = order;
      this.remember();
      this.drawTree();
      this.drawMask();
      this.solveView.renumber();
    });
    byId("explode").textContent = "Show me: a chain of 64 nodes with similar keys";
    byId("explode").addEventListener("click", () => {
      this.accept({ kind: "family", family: { name: "chain", nodes: 64, topK: 1, depth: 63, seed: 0 } });
      this.solveView.setKeys("similar");
      this.solveView.pick("neumann");
    });
    onWidth(byId("tree-view"), (width) => ((this.widths.tree = width), this.drawTree()));
    onWidth(byId("mask-view"), (width) => ((this.widths.mask = width), this.drawMask()));
    onWidth(byId("gathered-view"), (width) => ((this.widths.gathered = width), this.drawMask()));
    watchTheme(() => this.maskView.repaint());
    // An address that the core refuses: its sentence, and the start's tree behind it.
    if (!this.take(this.state.choice)) this.take(kStart.choice, false);
  }

  // False if the core refuses; then the tree before stays.
  private take(choice: Choice, settled = true): boolean {
    const started = performance.now();
    try {
      apply(this.core, choice, (name) => treeFiles.find((file) => file.name === name)!.text);
    } catch (error) {
      explain(this.picker, error, (proposal) => this.accept(proposal));
      return false;
    }
    if (settled) {
      this.picker.say("");
      this.state.choice = choice;
      this.remember();
    }
    this.tree = this.core.tree();
    this.node = this.tree.depths.lastIndexOf(this.tree.depth); // the deepest: its path says the most
    this.drawTree();
    performance.measure("tree", { start: started }); // what the tests hold to a frame
    this.drawMask();
    performance.measure("tree and mask", { start: started });
    // The rest is below the fold or in the worker: after the pointer rests.
    window.clearTimeout(this.later);
    this.later = window.setTimeout(() => {
      this.memoryView.setTree(this.tree);
      this.solveView.setTree(this.tree, this.node);
      fillWhenOpen(byId("tree-table"), () => ({ caption: "Every node", head: ["Node", "Parent", "Depth", "Depth-first row", "Level row", "Nodes below"], rows: [...this.tree.parents].map((p, i) => [i, p < 0 ? "root" : p, this.tree.depths[i], this.tree.dfsRank[i], this.tree.levelRank[i], this.tree.subtree[i] - 1]) }));
      fillWhenOpen(byId("mask-table"), () => ({ caption: "What each row sees, in depth-first order", head: ["Row", "Node", "Sees rows", "Of them outside its block"], rows: [...this.tree.dfsOrder].map((node, r) => [r, node, listed(pathTo(this.tree, node).map((i) => this.tree.dfsRank[i])), this.tree.prefix[r]]) }));
    }, 60);
    return true;
  }

  private accept(choice: Choice): void {
    if (this.take(choice)) this.picker.show(choice);
  }

  // When the slider rests: browsers refuse a page that changes its address a hundred times in half a minute.
  private remember(): void {
    window.clearTimeout(this.address);
    this.address = window.setTimeout(() => history.replaceState(null, "", toQuery(this.state) + location.hash), 300);
  }

  private number(node: number): number {
    return this.state.order === "dfs" ? this.tree.dfsRank[node] : this.tree.levelRank[node];
  }

  private describe(node: number): string {
    return `row ${this.number(node)}, depth ${this.tree.depths[node]}, ${counted(this.tree.subtree[node] - 1, "node")} below`;
  }

  private choose(node: number): void {
    if (node === this.node) return;
    this.node = node;
    this.treeView.show(node);
    this.maskView.show(node);
    this.solveView.show(node);
    this.read();
  }

  private read(): void {
    const path = pathTo(this.tree, this.node).map((i) => this.number(i));
    byId("mask-read").replaceChildren(h("strong", {}, `Row ${this.number(this.node)}`), path.length === 1 ? " is the root: it sees only itself." : ` sees ${counted(path.length, "node")}: ${listed(path)}`);
  }

  private drawTree(): void {
    if (!this.tree || !this.widths.tree) return;
    const { nodes, depth } = this.tree, width = this.widths.tree;
    this.treeView.draw(this.tree, this.node, width, width < 520 ? Math.round(width * 1.05) : Math.min(520, Math.round(width * 0.68)), `Draft tree of ${counted(nodes, "node")}, depth ${depth}. Arrow keys move from node to node.`);
    const levels = new Int32Array(depth + 1);
    this.tree.depths.forEach((d) => ++levels[d]);
    byId("tree-caption").textContent = `${counted(nodes, "node")}, ${counted(depth + 1, "level")}, at most ${Math.max(...levels)} a level. Point at a node, or use the arrow keys, to light its path.`;
    this.read();
  }

  private drawMask(): void {
    if (!this.tree || !this.widths.mask || !this.widths.gathered) return;
    this.maskView.draw(this.core, this.tree, this.node, this.state.order, this.widths.mask, this.widths.gathered);
    const { order } = this.state, rows = 16, dense = this.core.denseBlocks(rows), compressed = this.core.compressedBlocks(rows);
    byId("mask-why").textContent = order === "dfs"
      ? "Numbered depth first, the rows of a block of 16 need the block itself and, from outside, one path: that of its first row. Those columns are outlined; a kernel computes no others."
      : "Numbered by level, a block's rows come from many branches, and no single path serves them. Numbered depth first, one does: that is the order in which the kernels work.";
    const fact = (name: string, value: string) => h("div", {}, h("dt", {}, name), h("dd", {}, value));
    byId("mask-count").replaceChildren(fact(`${rows} × ${rows} products, dense triangle`, String(dense)), fact("of which one solve needs", String(compressed)));
  }
}

function showFooter(results: Results): void {
  const box = byId("environment");
  if (results.machines.length) box.append(h("h2", {}, "What the numbers were recorded on"));
  for (const machine of results.machines)
    box.append(h("details", {}, h("summary", {}, machine.name), h("dl", { class: "record" }, ...machine.facts.flatMap(([name, value]) => [h("dt", {}, name), h("dd", {}, value)]))));
  byId("repository").append(repository ? h("a", { href: repository }, "The repository") : "The repository", " holds the library, the result files and this page.");
}

async function start(): Promise<void> {
  const [module, results] = await Promise.all([WebAssembly.compileStreaming(fetch(coreUrl)), fetch(resultsUrl).then((answer) => answer.json() as Promise<Results>)]);
  new Page(new Core(module), module);
  new LatencyView(results.machines);
  new CrossoverView(results.machines);
  new AccuracyView(results.numerics);
  new PublishedView(results.published);
  showFooter(results);
  document.documentElement.dataset.ready = "yes";
}

start().catch((error: unknown) => {
  byId("tree-view").replaceChildren(h("p", { class: "message bad", role: "alert" }, `The page could not load its core: ${error instanceof Error ? error.message : error}`));
  throw error;
});
