// Recorded times: a panel a machine and batch size, all on one scale, so that machines can be compared side by side.
import type { Cell, Machine } from "../data/records.ts";
import { decades, lineChart, type Line } from "./chart.ts";
import { byId, h, onWidth, select, tableBelow } from "./dom.ts";
import { microseconds, scientific } from "./format.ts";

interface Known {
  name: string;
  role: string;
}

// How a contender is called and coloured; what is not known here is shown under its own name.
export function contender(name: string): Known {
  if (name.includes("serial_snapshot")) return { name: "walk, a state a node", role: "bark" };
  if (name.includes("serial_resident")) return { name: "walk, state resident", role: "sky" };
  if (name.includes("closed_form")) return { name: "one solve", role: "leaf" };
  const [base, ...precision] = name.split(" ");
  const dash: Record<string, string> = { precise: " dashed", fp32: " dotted" };
  if (base.includes("fused")) return { name: ["one solve", ...precision].join(", "), role: `leaf${dash[precision[0]] ?? ""}` };
  if (base === "floor") return { name: "loads and stores only", role: "ink" };
  return { name, role: "ink" };
}
const kHidden = new Set(["plan", "copy"]); // not verification

const unique = <T>(values: T[]): T[] => [...new Set(values)];

export class LatencyView {
  private family: string;
  private cache: string;
  private width = 0;
  private readonly cells: Cell[];

  constructor(private readonly machines: Machine[]) {
    this.cells = machines.flatMap((m) => m.cells).filter((c) => !c.family.startsWith("commit"));
    const families = unique(this.cells.map((c) => c.family)).filter((name) => unique(this.cells.filter((c) => c.family === name).map((c) => c.nodes)).length > 1);
    this.family = families.find((name) => name.startsWith("best-first")) ?? families[0] ?? "";
    const caches = unique(this.cells.map((c) => c.cache)).sort().reverse();
    this.cache = caches[0] ?? "";
    const form = byId("latency").querySelector("form")!;
    form.append(select("latency-family", "Family", families.map((value) => ({ value, label: value })), this.family, (value) => ((this.family = value), this.draw())));
    if (caches.length > 1) form.append(select("latency-cache", "Caches", caches.map((value) => ({ value, label: value })), this.cache, (value) => ((this.cache = value), this.draw())));
    onWidth(byId("latency"), (width) => ((this.width = width), this.draw()));
  }

  private draw(): void {
    const panels = byId("latency").querySelector<HTMLElement>(".panels")!;
    // Families of one kind carry other labels on other devices: best-first, best-first-4.
    const chosen = (c: Cell) => c.cache === this.cache && !kHidden.has(c.contender) && (c.family === this.family || c.family.replace(/-\d+$/, "") === this.family.replace(/-\d+$/, ""));
    const shown = this.machines.map((machine) => ({ machine, cells: machine.cells.filter(chosen) })).filter(({ cells }) => cells.length > 0);
    if (shown.length === 0) return panels.replaceChildren(h("p", { class: "note" }, "Not measured."));
    const all = shown.flatMap(({ cells }) => cells), sizes = unique(all.map((c) => c.nodes)).sort((a, b) => a - b);
    const least = 0.75 * Math.min(...all.map((c) => c.medianUs)), most = 1.3 * Math.max(...all.map((c) => c.medianUs));
    panels.replaceChildren(...shown.map(({ machine, cells }) => {
      const batches = unique(cells.map((c) => c.batch)).sort((a, b) => a - b);
      const columns = this.width < 620 ? 1 : Math.min(3, batches.length);
      const width = Math.floor((this.width - 28 * (columns - 1)) / columns);
      const row = h("div", { class: `small-multiples columns-${columns}` });
      for (const batch of batches) {
        const own = cells.filter((c) => c.batch === batch);
        const lines: Line[] = unique(own.map((c) => c.contender)).map((name) => {
          const known = contender(name);
          return { ...known, label: false, points: own.filter((c) => c.contender === name).sort((a, b) => a.nodes - b.nodes).map((c) => [c.nodes, c.medianUs] as [number, number]) };
        });
        const figure = h("figure", {}, h("figcaption", { class: "above" }, batch === 1 ? "One sequence" : `${batch} sequences`));
        const box = h("div", { class: "chart" });
        box.innerHTML = lineChart({
          title: `${machine.name}, ${this.family}, batch ${batch}: time against nodes`, width, height: 250, lines, dots: true,
          x: { label: "nodes T", log: true, range: [sizes[0], sizes[sizes.length - 1]], ticks: sizes.filter((_, i) => sizes.length < 8 || i % 2 === 0) },
          y: { label: "time a layer", range: [least, most], ticks: decades(least, most, 6).map((e) => [10 ** e, microseconds(10 ** e)]) },
        });
        figure.append(box);
        row.append(figure);
      }
      const key = h("p", { class: "key" });
      for (const name of unique(cells.map((c) => c.contender))) {
        const known = contender(name);
        key.append(h("span", { class: `chip ${known.role}` }, known.name));
      }
      const first = cells[0], farthest = Math.max(...cells.map((c) => c.relative ?? 0));
      return h("div", { class: "machine" }, h("h4", {}, machine.name), h("p", { class: "note" }, `${machine.layer}; median of ${first.repeats}, ${this.cache} caches; at most ${scientific(farthest)} from the fp64 oracle.`), key, row,
        tableBelow(() => ({
          caption: `${machine.name}, ${this.family}: median, 10th to 90th percentile, error against the fp64 oracle`,
          head: ["Contender", "B", "T", "Depth", "Median", "10th", "90th", "Error"],
          rows: [...cells].sort((a, b) => a.batch - b.batch || a.nodes - b.nodes || a.contender.localeCompare(b.contender)).map((c) => [contender(c.contender).name, c.batch, c.nodes, c.depth, microseconds(c.medianUs), microseconds(c.p10Us), microseconds(c.p90Us), c.relative === null ? "computes nothing" : scientific(c.relative)]),
        })));
    }));
  }
}
