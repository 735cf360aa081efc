// The study of solvers (results/numerics.jsonl): error against the length of a chain.
import type { Series } from "../data/records.ts";
import { decades, lineChart, type Line } from "./chart.ts";
import { byId, h, onWidth, segments, select, tableBelow } from "./dom.ts";
import { power, scientific } from "./format.ts";

const kFloor: Record<string, number> = { fp32: 1e-8, fp64: 1e-17 };
const unique = <T>(values: T[]): T[] => [...new Set(values)];

export class AccuracyView {
  private keys: string;
  private memory = "full";
  private precision = "fp32";
  private width = 0;

  constructor(private readonly series: Series[]) {
    const keys = unique(series.map((s) => s.keys));
    this.keys = keys.includes("cosine 0.95") ? "cosine 0.95" : (keys[0] ?? "");
    byId("accuracy").querySelector("form")!.append(
      select("accuracy-keys", "Keys", keys.map((value) => ({ value, label: value })), this.keys, (value) => ((this.keys = value), this.draw())),
      segments("memory", "Gates", [{ value: "full", label: "forget nothing" }, { value: "natural", label: "natural" }], this.memory, (value) => ((this.memory = value), this.draw())),
      segments("precision", "In", [{ value: "fp32", label: "fp32" }, { value: "fp64", label: "fp64" }], this.precision, (value) => ((this.precision = value), this.draw())));
    onWidth(byId("accuracy"), (width) => ((this.width = width), this.draw()));
  }

  private draw(): void {
    const panels = byId("accuracy").querySelector<HTMLElement>(".panels")!;
    const shown = this.series.filter((s) => s.keys === this.keys && s.memory === this.memory && s.precision === this.precision);
    if (shown.length === 0 || !this.width) return panels.replaceChildren(h("p", { class: "note" }, "Not measured."));
    // The substitutions agree to the bit: one line stands for them.
    const named = (s: Series) => (s.stable ? { name: "substitution", role: "leaf" } : s.solver === "neumann" ? { name: "Neumann", role: "alarm" } : { name: s.solver, role: "bark" });
    const drawn = shown.filter((s, i) => !s.stable || shown.findIndex((t) => t.stable) === i);
    const floor = kFloor[this.precision], top = 1e12;
    const width = Math.min(860, this.width), sizes = drawn[0].nodes;
    const lines: Line[] = drawn.map((s) => ({ ...named(s), points: s.nodes.map((n, i) => [n, s.relative[i] === null ? top * 100 : Math.min(top * 100, Math.max(floor, s.relative[i]!))] as [number, number]) }));
    const box = h("div", { class: "chart" });
    box.innerHTML = lineChart({
      title: `Error of o against the fp64 oracle, chains, keys ${this.keys}, ${this.precision}`, width, height: 320, lines, dots: true,
      x: { label: "nodes of the chain", log: true, range: [sizes[0], sizes[sizes.length - 1]], ticks: sizes.filter((n) => Math.log2(n) % 1 === 0 && (width > 480 || Math.log2(n) % 2 === 0)) },
      y: { label: "relative error", range: [floor, top], ticks: decades(floor, top, 8).map((e) => [10 ** e, power(e)]) },
      marks: [{ y: 1, text: "no correct digit above this line" }],
    });
    const trusted = drawn.filter((s) => !s.stable).map((s) => `${named(s).name} up to depth ${s.trustedDepth}`).join(", ");
    panels.replaceChildren(h("figure", {}, box, h("p", { class: "note" }, `Every chain stayed below ${scientific(drawn[0].threshold)}: substitution up to depth ${Math.min(...shown.filter((s) => s.stable).map((s) => s.trustedDepth))}, the deepest tried; ${trusted}.`),
      tableBelow(() => ({
        caption: `Relative error of o, chains, keys ${this.keys}, ${this.precision}`,
        head: ["Nodes", ...shown.map((s) => s.solver.replace("_", " "))],
        rows: sizes.map((n, i) => [n, ...shown.map((s) => scientific(s.relative[i]))]),
      }))));
  }
}
