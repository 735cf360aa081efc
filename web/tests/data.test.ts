// Result files as the benchmarks write them, good and bad; the address; numbers as people read them.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { readResults, wasmFile } from "../scripts/data.ts";
import { Core } from "../src/core.ts";
import { addFile, emptyResults } from "../src/data/records.ts";
import { fromQuery, kStart, toQuery, type PageState } from "../src/state.ts";
import { crossover } from "../src/view/crossover_view.ts";
import { bytes, microseconds, scientific, times } from "../src/view/format.ts";
import { contender } from "../src/view/latency_view.ts";

const layer = { H: 16, HV: 32, K: 128, V: 128, state: "f32" };
const gpu = { type: "environment", cpu: "Some CPU", canopy: "0.1.0", commit: "abc", compiler: "gcc", system: "Linux", gpu: { name: "NVIDIA X", multiprocessors: 100, compute_capability: "9.0", driver: "1", runtime: "2" } };
const cpu = { type: "environment", cpu: "Some CPU", threads: 2, peak_flops: 1e11, canopy: "0.1.0", commit: "abc", instruction_set_in_use: "avx2", gpu: "none found" };
const cell = (more: object) => ({ type: "cell", schema: 1, contender: "cuda_fused half", B: 1, T: 64, depth: 8, family: "best-first", ...layer, cache: "warm", n: 200, median_us: 9.5, p10_us: 9, p90_us: 10, relative: 1e-3, ...more });
const lines = (...records: object[]) => records.map((r) => JSON.stringify(r)).join("\n");

describe("result files", () => {
  it("of several machines stand side by side, files of one machine are joined", () => {
    const results = emptyResults();
    addFile(results, "gpu.jsonl", lines(gpu, cell({}), cell({ cache: "cold", median_us: 12 })));
    addFile(results, "cpu.jsonl", lines(cpu, cell({ contender: "cpu_closed_form" })));
    addFile(results, "gpu-more.jsonl", lines(gpu, cell({ median_us: 8 }), cell({ contender: "plan", relative: undefined })));
    expect(results.machines.map((m) => m.name)).toEqual(["NVIDIA X", "Some CPU, 2 threads"]);
    expect(results.machines[0].cells).toHaveLength(3);
    expect(results.machines[0].cells.find((c) => c.cache === "warm" && c.contender !== "plan")?.medianUs).toBe(8); // the later one counts
    expect(results.machines[0].cells.find((c) => c.contender === "plan")?.relative).toBeNull();
    const before = JSON.stringify(results); // measured, but not drawn
    addFile(results, "gpu-more.jsonl", lines(gpu, { type: "memory" }, { type: "rounds" }, { type: "accuracy" }, { type: "conv" }, cell({ stash: true, family: "best-first-4, u stored" }), { type: "published", work: "x", us: [1] }));
    expect(JSON.stringify(results)).toBe(before);
  });

  it.each([
    ["a cell before any environment", lines(cell({})), "x.jsonl:1: a cell before any environment record"],
    ["a missing number", lines(gpu, cell({ median_us: undefined })), 'x.jsonl:2: "median_us": expected a number, found undefined'],
    ["a later schema", lines(gpu, cell({ schema: 2 })), 'x.jsonl:2: "schema": expected 1, found 2'],
    ["no JSON", "{", "x.jsonl:1: "],
    ["an unknown record", lines({ type: "plot" }), 'x.jsonl:1: "type": expected environment, cell or published, found "plot"'],
  ])("say where they are wrong: %s", (_, text, message) => {
    expect(() => addFile(emptyResults(), "x.jsonl", text)).toThrow(message);
  });

  it("in the repository are read, with a machine, the study and the papers", () => {
    const results = readResults();
    expect(results.machines.length).toBeGreaterThan(0);
    for (const machine of results.machines) expect(machine.cells.length).toBeGreaterThan(50);
    expect(results.numerics.length).toBeGreaterThanOrEqual(168);
    expect(results.published.map((p) => p.work)).toContain("Bole");
    expect(crossover(results.machines[0].cells, "serial_snapshot").length).toBeGreaterThanOrEqual(30);
  });

  it("give the ratio of the fastest solve to the walk", () => {
    const results = emptyResults();
    addFile(results, "x", lines(gpu, cell({ median_us: 10 }), cell({ contender: "cuda_fused precise", median_us: 20 }), cell({ contender: "cuda_serial_snapshot fp32", median_us: 40 })));
    expect(crossover(results.machines[0].cells, "serial_snapshot")).toEqual([{ levels: 8, width: 8, ratio: expect.closeTo(4, 9), shapes: 1 }]);
    expect(crossover(results.machines[0].cells, "serial_resident")).toEqual([]);
    expect(contender("cuda_fused half").name).toBe("one solve, half");
    expect(contender("triton_thing").name).toBe("triton_thing");
  });
});

describe("the address", () => {
  const core = new Core(new WebAssembly.Module(readFileSync(wasmFile)));
  const files = ["ddtree-budget", "vllm-token-tree"];
  it.each<PageState>([
    kStart,
    { choice: { kind: "family", family: { name: "skewed", nodes: 200, topK: 4, depth: 33, seed: 0 } }, order: "level" },
    { choice: { kind: "family", family: { name: "random", nodes: 9, topK: 4, depth: 8, seed: 123456789012 } }, order: "dfs" },
    { choice: { kind: "file", name: "vllm-token-tree", index: 2 }, order: "dfs" },
    { choice: { kind: "text", text: "[-1, 0, 0, 1] & more=%20" }, order: "dfs" },
  ])("keeps %j", (state) => expect(fromQuery(toQuery(state), core, files)).toEqual(state));

  it.each(["", "?tree=nonsense", "?published=none", "?tree=best-first&nodes=-4&k=x&depth=1e9&seed=1.5"])("falls back for %j", (query) => {
    expect(fromQuery(query, core, files)).toEqual(kStart);
  });
});

describe("numbers", () => {
  it("read well", () => {
    expect([0, 512, 2 ** 20, 268435456, 1.5 * 2 ** 30].map(bytes)).toEqual(["0 B", "512 B", "1 MiB", "256 MiB", "1.5 GiB"]);
    expect([0.52, 9.5, 123.4, 3420, 2.5e6].map(microseconds)).toEqual(["0.52 µs", "9.5 µs", "123 µs", "3.42 ms", "2.5 s"]);
    expect([2.13e-7, 0.12, 1e-4, 2.6e9, null, Infinity].map(scientific)).toEqual(["2.1·10⁻⁷", "0.12", "1·10⁻⁴", "2.6·10⁹", "overflow", "overflow"]);
    expect([1.55, 7.7, 82].map(times)).toEqual(["1.6×", "7.7×", "82×"]);
  });
});
