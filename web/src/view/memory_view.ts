// What is kept between verification and commit, a layer and the whole model.
import type { Core, Tree } from "../core.ts";
import { barChart } from "./chart.ts";
import { byId, fillWhenOpen, onWidth } from "./dom.ts";
import { bytes, counted, times } from "./format.ts";

export class MemoryView {
  private width = 0;
  private tree?: Tree;

  constructor(private readonly core: Core) {
    const { headsV, dimK, dimV, layers } = core.model();
    byId("memory-model").textContent = `Counted for the shapes of Qwen3.5-9B: ${headsV} value heads with a ${dimK} × ${dimV} state each, fp32, ${layers} such layers.`;
    onWidth(byId("memory-chart"), (width) => ((this.width = width), this.draw()));
  }

  setTree(tree: Tree): void {
    this.tree = tree;
    this.draw();
  }

  private draw(): void {
    if (!this.tree || !this.width) return;
    const kept = this.core.keptBytes(), { layers } = this.core.model();
    const group = (name: string, count: number) => ({
      name,
      bars: [
        { name: "a state a node", value: kept.snapshots * count, text: bytes(kept.snapshots * count), role: "bark" },
        { name: "pseudo-values U", value: kept.pseudoValues * count, text: bytes(kept.pseudoValues * count), role: "sky" },
        { name: "solve again", value: kept.resolve * count, text: bytes(kept.resolve * count), role: "leaf" },
      ],
    });
    const groups = [group("One layer", 1), group(`All ${layers} layers`, layers)];
    const saved = `U takes ${times(kept.snapshots / kept.pseudoValues)} less than the states`;
    byId("memory-chart").innerHTML = barChart(`Memory kept for a tree of ${counted(this.tree.nodes, "node")}: ${saved}, solving again takes nothing`, this.width, groups);
    fillWhenOpen(byId("memory-table"), () => ({
      caption: `Memory kept for a tree of ${counted(this.tree!.nodes, "node")}`,
      head: ["What is kept", ...groups.map((g) => g.name)],
      rows: groups[0].bars.map((bar, i) => [bar.name, ...groups.map((g) => g.bars[i].text)]),
    }));
  }
}
