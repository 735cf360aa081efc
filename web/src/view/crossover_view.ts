// Where one solve wins: the serial walk's time over the solve's, against depth and the mean width of a level.
import type { Cell, Machine } from "../data/records.ts";
import { svg } from "./chart.ts";
import { byId, h, onWidth, segments, tableBelow } from "./dom.ts";
import { times } from "./format.ts";

export interface Square {
  levels: number; // depth + 1, rounded to a power of two
  width: number; // nodes a level, likewise
  ratio: number; // geometric mean over the shapes of the square; above 1 the solve is faster
  shapes: number;
}

const solves = (name: string) => name.includes("closed_form") || /fused( |$)/.test(name);
const nearestPower = (x: number) => 2 ** Math.round(Math.log2(Math.max(1, x)));

// The fastest solve of a shape against one serial baseline, batch 1.
export function crossover(cells: Cell[], baseline: string): Square[] {
  const shapes = new Map<string, { cell: Cell; solve: number; serial: number }>();
  for (const cell of cells.filter((c) => c.batch === 1 && c.cache === "warm" && !c.family.startsWith("commit"))) {
    const key = `${cell.family} ${cell.nodes} ${cell.depth}`;
    const shape = shapes.get(key) ?? { cell, solve: Infinity, serial: 0 };
    if (solves(cell.contender) && !cell.contender.startsWith("reference")) shape.solve = Math.min(shape.solve, cell.medianUs);
    if (cell.contender.includes(baseline)) shape.serial = cell.medianUs;
    shapes.set(key, shape);
  }
  const squares = new Map<string, { square: Square; logs: number[] }>();
  for (const { cell, solve, serial } of shapes.values()) {
    if (!Number.isFinite(solve) || serial === 0) continue;
    const levels = nearestPower(cell.depth + 1), width = nearestPower(cell.nodes / (cell.depth + 1)), key = `${levels} ${width}`;
    const entry = squares.get(key) ?? { square: { levels, width, ratio: 1, shapes: 0 }, logs: [] };
    entry.logs.push(Math.log(serial / solve));
    squares.set(key, entry);
  }
  return [...squares.values()].map(({ square, logs }) => ({ ...square, shapes: logs.length, ratio: Math.exp(logs.reduce((a, b) => a + b, 0) / logs.length) }));
}

export class CrossoverView {
  private baseline = "serial_snapshot";
  private width = 0;

  constructor(private readonly machines: Machine[]) {
    byId("crossover").querySelector("form")!.append(segments("baseline", "Against the walk", [{ value: "serial_snapshot", label: "with a state a node" }, { value: "serial_resident", label: "with the state resident" }], this.baseline, (value) => ((this.baseline = value), this.draw())));
    onWidth(byId("crossover"), (width) => ((this.width = width), this.draw()));
  }

  private draw(): void {
    const shown = this.machines.map((machine) => ({ machine, squares: crossover(machine.cells, this.baseline) })).filter(({ squares }) => squares.length > 0);
    const panels = byId("crossover").querySelector<HTMLElement>(".panels")!;
    if (shown.length === 0) return panels.replaceChildren(h("p", { class: "note" }, "Not measured."));
    const columns = this.width < 900 ? 1 : Math.min(2, shown.length);
    const width = Math.min(720, Math.floor((this.width - 28 * (columns - 1)) / columns));
    panels.replaceChildren(h("div", { class: `small-multiples columns-${columns}` }, ...shown.map(({ machine, squares }) => {
      const box = h("div", { class: "chart" });
      box.innerHTML = heatMap(machine.name, squares, width);
      const faster = squares.filter((s) => s.ratio > 1).length;
      return h("figure", {}, h("figcaption", { class: "above" }, machine.name), box,
        h("p", { class: "note" }, `How many times faster one solve is, one sequence. It is faster in ${faster} of ${squares.length} squares.`),
        tableBelow(() => ({
          caption: `${machine.name}: time of the walk over time of one solve`,
          head: ["Levels", "Nodes a level", "Ratio", "Shapes"],
          rows: [...squares].sort((a, b) => a.levels - b.levels || a.width - b.width).map((s) => [s.levels, s.width, times(s.ratio), s.shapes]),
        })));
    })));
  }
}

// Classes each side of 1: the colour says which side, its strength how far.
const kSteps = [1.2, 1.5, 2.5, 4.5];
function shade(ratio: number): string {
  const strength = kSteps.filter((step) => Math.max(ratio, 1 / ratio) >= step).length;
  return `${ratio >= 1 ? "wins" : "loses"}-${strength}`;
}

function heatMap(name: string, squares: Square[], width: number): string {
  const range = (values: number[]) => {
    const list: number[] = [];
    for (let v = Math.min(...values); v <= Math.max(...values); v *= 2) list.push(v);
    return list;
  };
  const levels = range(squares.map((s) => s.levels)), widths = range(squares.map((s) => s.width)).reverse();
  const left = 40, top = 22, size = Math.min(64, (width - left) / levels.length), tall = Math.min(44, size * 0.8);
  const parts = [`<text class="axis-name" x="0" y="12">nodes a level</text>`];
  widths.forEach((w, r) => parts.push(`<text class="tick" x="${left - 10}" y="${(top + (r + 0.5) * tall + 4).toFixed(1)}" text-anchor="end">${w}</text>`));
  levels.forEach((l, c) => parts.push(`<text class="tick" x="${(left + (c + 0.5) * size).toFixed(1)}" y="${top + widths.length * tall + 17}" text-anchor="middle">${l}</text>`));
  for (const s of squares) {
    const x = left + levels.indexOf(s.levels) * size, y = top + widths.indexOf(s.width) * tall;
    parts.push(`<rect class="square ${shade(s.ratio)}" x="${(x + 1).toFixed(1)}" y="${(y + 1).toFixed(1)}" width="${(size - 2).toFixed(1)}" height="${(tall - 2).toFixed(1)}" rx="3"/>`);
    parts.push(`<text class="in-square ${shade(s.ratio)}" x="${(x + size / 2).toFixed(1)}" y="${(y + tall / 2 + 4).toFixed(1)}" text-anchor="middle" font-size="${size < 40 ? 10 : 12}">${s.ratio.toFixed(1)}</text>`);
  }
  const wide = left + levels.length * size, high = top + widths.length * tall + 40;
  parts.push(`<text class="axis-name" x="${wide}" y="${high - 4}" text-anchor="end">levels, depth + 1</text>`);
  return svg(`${name}: how many times faster one solve is, by levels and nodes a level`, wide, high, parts.join(""));
}
