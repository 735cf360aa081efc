// The shapes of the recorded measurements: the result files below results/ (bench/schema.json) as far as they are drawn,
// and the compact form that the page fetches. Read by the build (scripts/data.ts) and by the page.

// A contender on one shape.
export interface Cell {
  contender: string;
  batch: number;
  nodes: number;
  depth: number;
  family: string;
  cache: string; // "warm" or "cold"
  medianUs: number;
  p10Us: number;
  p90Us: number;
  relative: number | null; // error against the fp64 oracle, of o (of the state: a commit); null: computes nothing
  repeats: number;
}

export interface Machine {
  id: string;
  name: string; // the GPU, or the CPU and its threads
  facts: [string, string][]; // the environment record, as it is shown
  layer: string; // H, HV, K, V and the state's type
  cells: Cell[];
}

// One line of the numerics study.
export interface Series {
  solver: string;
  precision: string;
  memory: string; // "full": nothing forgotten; "natural"
  keys: string;
  stable: boolean;
  nodes: number[]; // lengths of the chains
  relative: (number | null)[]; // error of o; null: overflow
  threshold: number;
  trustedDepth: number;
}

// A number that a paper reports, on its own hardware against its own baseline.
export interface Published {
  work: string;
  arxiv: string;
  gpu: string;
  what: string;
  batch: number | null;
  serialUs: number | null;
  medianUs: number | null;
  speedUp: [number, number];
  baseline: string;
}

export interface Results {
  machines: Machine[];
  numerics: Series[];
  published: Published[];
}

type Json = Record<string, unknown>;
class BadRecord extends Error {}

function need<T extends "number" | "string">(record: Json, key: string, type: T): T extends "number" ? number : string {
  const value = record[key];
  if (typeof value !== type) throw new BadRecord(`"${key}": expected a ${type}, found ${JSON.stringify(value)}`);
  return value as T extends "number" ? number : string;
}

function optional(record: Json, key: string): number | null {
  return record[key] === undefined || record[key] === null ? null : need(record, key, "number");
}

function describe(env: Json): { name: string; facts: [string, string][] } {
  const facts: [string, string][] = [];
  const add = (label: string, value: unknown) => {
    if (value !== undefined && value !== null && value !== "") facts.push([label, String(value)]);
  };
  const gpu = typeof env.gpu === "object" && env.gpu !== null ? (env.gpu as Json) : null;
  const threads = typeof env.threads === "number" ? env.threads : null;
  const onCpu = threads === null ? "" : `, ${threads} thread${threads === 1 ? "" : "s"}`;
  const name = gpu ? need(gpu, "name", "string") : need(env, "cpu", "string") + onCpu;
  if (gpu) {
    add("GPU", gpu.name);
    add("multiprocessors", gpu.multiprocessors);
    add("compute capability", gpu.compute_capability);
    add("driver", gpu.driver);
    add("CUDA runtime", gpu.runtime);
  } else {
    add("threads", threads);
    add("kernels", env.instruction_set_in_use);
    if (typeof env.peak_flops === "number") add("fp32 multiply-add peak", `${(env.peak_flops * 1e-9).toFixed(1)} GFLOP/s`);
  }
  add("CPU", env.cpu);
  add("compiler", env.compiler);
  add("system", env.system);
  add("canopy", `${env.canopy} (commit ${env.commit})`);
  return { name, facts };
}

function cellOf(record: Json): Cell {
  const schema = need(record, "schema", "number");
  if (schema !== 1) throw new BadRecord(`"schema": expected 1, found ${schema}; this page is older than the file`);
  return {
    contender: need(record, "contender", "string"),
    batch: need(record, "B", "number"),
    nodes: need(record, "T", "number"),
    depth: need(record, "depth", "number"),
    family: need(record, "family", "string"),
    cache: need(record, "cache", "string"),
    medianUs: need(record, "median_us", "number"),
    p10Us: need(record, "p10_us", "number"),
    p90Us: need(record, "p90_us", "number"),
    relative: optional(record, "relative"),
    repeats: need(record, "n", "number"),
  };
}

function layerOf(record: Json): string {
  const fact = (key: string) => need(record, key, "number");
  return `H ${fact("H")}, HV ${fact("HV")}, K ${fact("K")}, V ${fact("V")}, ${need(record, "state", "string")} state`;
}

function seriesOf(record: Json): Series {
  const nodes = record.nodes as number[], relative = record.relative as (number | null)[];
  if (!Array.isArray(nodes) || !Array.isArray(relative) || nodes.length !== relative.length)
    throw new BadRecord(`"nodes" and "relative": expected two arrays of one length`);
  return {
    solver: need(record, "solver", "string"),
    precision: need(record, "precision", "string"),
    memory: need(record, "memory", "string"),
    keys: need(record, "keys", "string"),
    stable: record.stable === true,
    nodes,
    relative: relative.map((x) => (typeof x === "number" ? x : null)),
    threshold: need(record, "threshold", "number"),
    trustedDepth: need(record, "trusted_depth", "number"),
  };
}

function publishedOf(record: Json): Published {
  const low = need(record, "speed_up_low", "number");
  return {
    work: need(record, "work", "string"),
    arxiv: need(record, "arxiv", "string"),
    gpu: need(record, "gpu", "string"),
    what: need(record, "what", "string"),
    batch: optional(record, "B"),
    serialUs: optional(record, "serial_us"),
    medianUs: optional(record, "median_us"),
    speedUp: [low, optional(record, "speed_up_high") ?? low],
    baseline: need(record, "baseline", "string"),
  };
}

// The text of one file into `into`. Cells belong to the environment record before them; machines of one name are joined,
// and of two cells of one shape the later one counts. Throws file, line, what was expected and what was found.
export function addFile(into: Results, file: string, text: string): void {
  let environment: ReturnType<typeof describe> | undefined;
  text.split("\n").forEach((line, number) => {
    if (line.trim() === "") return;
    try {
      const record = JSON.parse(line) as Json;
      if (record.type === "environment") {
        environment = describe(record);
      } else if (record.type === "cell") {
        if (!environment) throw new BadRecord("a cell before any environment record");
        const { name, facts } = environment;
        let machine = into.machines.find((known) => known.name === name);
        if (!machine) into.machines.push((machine = { id: name.toLowerCase().replace(/[^a-z0-9]+/g, "-"), name, facts, layer: "", cells: [] }));
        const cell = cellOf(record), layer = layerOf(record);
        if (machine.layer && machine.layer !== layer) return; // another layer's shapes are not this page's curves
        if (record.stash === true) return; // nor are calls that store u
        machine.layer = layer;
        const same = (known: Cell) =>
          known.contender === cell.contender && known.batch === cell.batch && known.nodes === cell.nodes &&
          known.depth === cell.depth && known.family === cell.family && known.cache === cell.cache;
        machine.cells = machine.cells.filter((known) => !same(known));
        machine.cells.push(cell);
      } else if (record.type === "published") {
        if (record.us === undefined) into.published.push(publishedOf(record)); // lists of times are for docs/benchmarks.md
      } else if (typeof record.solver === "string") {
        into.numerics.push(seriesOf(record));
      } else if (!["accuracy", "conv", "memory", "rounds"].includes(String(record.type))) {
        throw new BadRecord(`"type": expected environment, cell or published, found ${JSON.stringify(record.type)}`);
      }
    } catch (error) {
      throw new Error(`${file}:${number + 1}: ${error instanceof Error ? error.message : error}`);
    }
  });
}

export function emptyResults(): Results {
  return { machines: [], numerics: [], published: [] };
}
