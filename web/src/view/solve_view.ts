// The stepper: one tree, one small problem, three ways to solve it, a step at a time.
import type { Block, Core, Run, Tree } from "../core.ts";
import type { Answer, Question } from "../solver.worker.ts";
import { decades, lineChart, type Line } from "./chart.ts";
import { byId, fillWhenOpen, h, onWidth, segments, stillness, table } from "./dom.ts";
import { counted, power, scientific } from "./format.ts";
import { icon, type IconName } from "./icons.ts";
import { TreeView } from "./tree_view.ts";

export const kMethods = [
  { id: "path16", name: "16-row blocks", solver: "path_blocked", rows: 16, role: "leaf", step: "block" },
  { id: "path64", name: "64-row blocks", solver: "path_blocked", rows: 64, role: "sky", step: "block" },
  { id: "neumann", name: "Neumann series", solver: "neumann", rows: 16, role: "alarm", step: "term" },
] as const;
type MethodId = (typeof kMethods)[number]["id"];

export const kKeys = [
  { id: "natural", name: "natural", cosine: 0, forgets: true },
  { id: "similar", name: "similar keys, nothing forgotten", cosine: 0.95, forgets: false },
] as const;
type KeysId = (typeof kKeys)[number]["id"];

const kFloor = 1e-8; // fp32 cannot go lower; the chart's lower edge
// A node's error against the oracle, in classes of the legend.
const kGood = 1e-4, kLost = 1e-1;

export class SolveView {
  private readonly view: TreeView;
  private readonly worker: Worker;
  private tree!: Tree;
  private node = 0;
  private runs: Run[] = [];
  private blocks: Record<number, Block[]> = {};
  private method: MethodId = "path16";
  private keys: KeysId = "natural";
  private step = 0;
  private timer = 0;
  private asked = 0;
  private treeWidth = 0;
  private chartWidth = 0;
  private readonly slider: HTMLInputElement;
  private readonly play: HTMLButtonElement;

  constructor(private readonly core: Core, module: WebAssembly.Module, choose: (node: number) => void, label: (node: number) => string, number: (node: number) => number) {
    this.worker = new Worker(new URL("../solver.worker.ts", import.meta.url), { type: "module" });
    this.worker.postMessage(module);
    this.worker.onmessage = ({ data }: MessageEvent<Answer>) => data.id === this.asked && this.solved(data.runs);
    this.worker.onerror = (event) => {
      byId("solve").removeAttribute("aria-busy");
      byId("solve-read").textContent = `The solver could not start here: ${event.message || "its worker was refused"}`;
    };
    this.view = new TreeView(byId("solve-tree"), { label, number, choose });
    const button = (name: string, picture: IconName, act: () => void) => h("button", { type: "button", class: "step", "aria-label": name, title: name, click: act }, icon(picture));
    this.slider = h("input", { type: "range", id: "solve-step", min: 0, max: 1, value: 0, input: () => (this.stop(), this.go(Number(this.slider.value))) });
    this.play = button("Play", "play", () => (this.timer ? this.stop() : this.start()));
    this.play.classList.add("play");
    byId("solve-controls").addEventListener("submit", (event) => event.preventDefault());
    byId("solve-controls").replaceChildren(
      segments("method", "Solver", kMethods.map((m) => ({ value: m.id, label: m.name })), this.method, (value) => this.pick(value as MethodId)),
      segments("keys", "Keys", kKeys.map((k) => ({ value: k.id, label: k.name })), this.keys, (value) => this.setKeys(value as KeysId)),
      h("div", { class: "transport", role: "group", "aria-label": "Steps" },
        button("To the start", "start", () => (this.stop(), this.go(0))),
        button("Step back", "back", () => (this.stop(), this.go(this.step - 1))),
        this.play,
        button("Step forward", "forward", () => (this.stop(), this.go(this.step + 1))),
        h("label", { for: "solve-step", class: "hidden" }, "Step"), this.slider));
    onWidth(byId("solve-tree"), (width) => ((this.treeWidth = width), this.drawTree()));
    onWidth(byId("solve-chart"), (width) => ((this.chartWidth = width), this.drawChart()));
  }

  setTree(tree: Tree, node: number): void {
    this.tree = tree;
    this.node = node;
    this.blocks = { 16: this.core.blocks(16), 64: this.core.blocks(64) };
    this.ask();
    this.drawTree();
  }

  setKeys(keys: KeysId): void {
    this.keys = keys;
    byId<HTMLInputElement>(`keys-${keys}`).checked = true;
    if (this.tree) this.ask();
  }

  pick(method: MethodId): void {
    this.method = method;
    byId<HTMLInputElement>(`method-${method}`).checked = true;
    this.stop();
    this.go(0);
    this.drawChart();
  }

  show(node: number): void {
    this.node = node;
    this.view.show(node);
  }

  renumber(): void {
    this.drawTree();
  }

  start(): void {
    const run = this.run();
    if (!run) return;
    if (this.step >= run.steps) this.go(0);
    // The whole solve in about six seconds, but never faster than the eye.
    const pause = Math.max(90, Math.min(700, 6000 / Math.max(1, run.steps)));
    this.timer = window.setInterval(() => (this.step < (this.run()?.steps ?? 0) ? this.go(this.step + 1) : this.stop()), stillness() ? Math.max(pause, 500) : pause);
    this.playing(true);
  }

  private stop(): void {
    window.clearInterval(this.timer);
    this.timer = 0;
    this.playing(false);
  }

  private playing(on: boolean): void {
    this.play.replaceChildren(icon(on ? "pause" : "play"));
    for (const name of ["aria-label", "title"]) this.play.setAttribute(name, on ? "Pause" : "Play");
  }

  private ask(): void {
    this.stop();
    const keys = kKeys.find((k) => k.id === this.keys)!;
    const question: Question = {
      id: ++this.asked, parents: JSON.stringify([...this.tree.parents]), cosine: keys.cosine, forgets: keys.forgets,
      methods: kMethods.map(({ solver, rows }) => ({ solver, rows })),
    };
    byId("solve").setAttribute("aria-busy", "true");
    this.worker.postMessage(question);
  }

  private solved(runs: Run[]): void {
    this.runs = runs;
    byId("solve").removeAttribute("aria-busy");
    const row = (m: (typeof kMethods)[number], run: Run) => [m.name, run.steps, scientific(Math.max(...run.residual)), scientific(run.residual[run.steps]), scientific(this.worst(run))];
    byId("solve-table").replaceChildren(table({
      caption: `Steps that wait for one another, this tree of ${counted(this.tree.nodes, "node")}`,
      head: ["Solver", "Steps", "Largest residual", "Last residual", "Last error of a node"],
      rows: kMethods.map((m, i) => row(m, runs[i])),
    }));
    fillWhenOpen(byId("solve-steps"), () => ({
      caption: "Residual after each step",
      head: ["Step", ...kMethods.map((m) => m.name)],
      rows: Array.from({ length: Math.max(...runs.map((r) => r.steps)) + 1 }, (_, s) => [s, ...runs.map((r) => (s <= r.steps ? scientific(r.residual[s]) : "done"))]),
    }));
    this.go(0);
    this.drawChart();
  }

  private run(): Run | undefined {
    return this.runs[kMethods.findIndex((m) => m.id === this.method)];
  }

  private worst(run: Run): number {
    const T = this.tree.nodes;
    return Math.max(...run.error.subarray(run.steps * T, (run.steps + 1) * T));
  }

  go(step: number): void {
    const run = this.run();
    if (!run || run.error.length !== (run.steps + 1) * this.tree.nodes) return;
    this.step = Math.max(0, Math.min(run.steps, step));
    this.slider.max = String(run.steps);
    this.slider.value = String(this.step);
    const method = kMethods.find((m) => m.id === this.method)!;
    const before = run.residual[this.step];
    const what = this.step === 0 ? "Nothing solved yet: U = R" : method.step === "block" ? this.blockSentence(method.rows) : `Term ${this.step}: nodes of depth ${this.step} get their last contribution`;
    byId("solve-read").replaceChildren(h("strong", {}, `Step ${this.step} of ${run.steps}`), ` ${what}. Residual ${scientific(before)}.`);
    this.slider.setAttribute("aria-valuetext", `step ${this.step} of ${run.steps}, residual ${scientific(before)}`);
    this.paint();
    this.cursor();
  }

  private blockSentence(rows: number): string {
    const block = this.blocks[rows][this.step - 1];
    return `${counted(block.rows, "row")} from row ${block.first}, and ${counted(block.ancestors, "row")} of U above them`;
  }

  private paint(): void {
    const run = this.run();
    if (!run || !this.tree) return;
    const T = this.tree.nodes, method = kMethods.find((m) => m.id === this.method)!, at = this.step * T;
    this.view.paint((node) => {
      const error = run.error[at + node];
      if (method.step === "block") {
        const solvedIn = Math.floor(this.tree.dfsRank[node] / method.rows) + 1;
        return solvedIn > this.step ? "waiting" : error > kLost ? "lost" : solvedIn === this.step ? "now" : "done";
      }
      return error > kLost ? (this.tree.depths[node] > this.step ? "waiting" : "lost") : error > kGood ? "shaky" : this.tree.depths[node] === this.step && this.step > 0 ? "now" : "done";
    });
    byId("solve-legend").textContent = method.step === "block"
      ? "Filled: solved. Ringed: the block of this step. Hollow: waiting."
      : `Filled: within ${power(-4)} of the fp64 oracle. Ringed: the level of this term. Hollow: its terms have not come. Pale: up to a tenth off. Broken rim: more, although all its terms are there.`;
  }

  private drawTree(): void {
    if (!this.tree || !this.treeWidth) return;
    this.view.draw(this.tree, Math.min(this.node, this.tree.nodes - 1), this.treeWidth, Math.min(360, Math.max(220, this.treeWidth * 0.66)), "The tree as the solver sees it");
    this.paint();
  }

  private drawChart(): void {
    if (!this.runs.length || !this.chartWidth) return;
    const top = Math.max(1e2, ...this.runs.flatMap((r) => [...r.residual].filter(Number.isFinite)));
    const range: [number, number] = [kFloor, 10 ** Math.ceil(Math.log10(top))];
    const steps = Math.max(1, ...this.runs.map((r) => r.steps));
    const lines: Line[] = kMethods.map((m, i) => ({
      name: m.name, role: `${m.role}${m.id === this.method ? " picked" : ""}`, label: false,
      points: [...this.runs[i].residual].map((r, s) => [s, Math.max(kFloor, Number.isFinite(r) ? r : range[1] * 10)] as [number, number]),
    }));
    const every = Math.max(1, Math.ceil(steps / 8 / (steps > 20 ? 5 : 1)) * (steps > 20 ? 5 : 1));
    const key = h("p", { class: "key" }, ...kMethods.map((m) => h("span", { class: `chip ${m.role}${m.id === this.method ? " picked" : ""}` }, m.name)));
    byId("solve-chart").innerHTML = lineChart({
      title: `Residual after each step: ${kMethods.map((m, i) => `${m.name} ends at ${scientific(this.runs[i].residual[this.runs[i].steps])} after ${this.runs[i].steps} steps`).join("; ")}`,
      width: this.chartWidth, height: Math.min(330, Math.max(240, this.chartWidth * 0.6)), lines,
      x: { label: "step", log: false, range: [0, steps], ticks: Array.from({ length: Math.floor(steps / every) + 1 }, (_, i) => i * every) },
      y: { label: "residual", range, ticks: decades(range[0], range[1], 7).map((e) => [10 ** e, power(e)]) },
      marks: [{ y: 1, text: "what U = 0 would leave" }, { x: 0, text: "" }],
      dots: steps <= 40,
    });
    byId("solve-chart").prepend(key);
    this.cursor();
  }

  // The vertical line at the step shown, moved without drawing the chart again.
  private cursor(): void {
    const mark = byId("solve-chart").querySelector<SVGPathElement>("path.mark[d*='V']"), run = this.run();
    const axis = byId("solve-chart").querySelector<SVGPathElement>("path.axis");
    if (!mark || !axis || !run) return;
    const [left, right] = axis.getAttribute("d")!.match(/M([\d.]+) [\d.]+H([\d.]+)/)!.slice(1).map(Number);
    const steps = Math.max(1, ...this.runs.map((r) => r.steps));
    mark.setAttribute("transform", `translate(${(((right - left) * this.step) / steps).toFixed(1)} 0)`);
  }
}
