// The module against the same goldens as the C++ library: tests/golden, the hashes of tests/unit/tree_families_test.cpp,
// the published trees; and against the built program where there is one.
import { execFileSync } from "node:child_process";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { beforeEach, describe, expect, it } from "vitest";
import { root, readTrees, wasmFile } from "../scripts/data.ts";
import { Core, isAncestor, pathTo, proposedOrder, type Family } from "../src/core.ts";

const module = new WebAssembly.Module(readFileSync(wasmFile));
let core: Core;
beforeEach(() => {
  core = new Core(module);
});

const family = (name: string, nodes: number, topK = 4, depth = 8, seed = 0): Family => ({ name, nodes, topK, depth, seed });
const flat = (value: unknown): number[] => (Array.isArray(value) ? value.flatMap(flat) : [value as number]);

interface Golden {
  parents: number[];
  scale: number;
  l2norm: boolean;
  eps: number;
  q: number[][][];
  k: number[][][];
  v: number[][][];
  g: number[][];
  beta: number[][];
  state: number[][];
  expected: { o: number[][][]; u: number[][][]; l: number[][]; state_after: number[][][] };
}

// [V][K] of the files to [K,V] of the core.
function transposed(vk: number[][]): number[] {
  return vk[0].flatMap((_, k) => vk.map((row) => row[k]));
}

function rows(values: number[][][], file: Golden, scale: number): number[] {
  return values.flatMap((node) => {
    const norm = file.l2norm ? 1 / Math.sqrt(node[0].reduce((sum, x) => sum + x * x, file.eps)) : 1;
    return node[0].map((x) => x * norm * scale);
  });
}

function expectNear(got: ArrayLike<number>, expected: number[], what: string): void {
  expect(got.length, what).toBe(expected.length);
  expected.forEach((value, i) => {
    expect(Math.abs(got[i] - value), `${what}, element ${i}: ${got[i]} for ${value}`).toBeLessThanOrEqual(1e-12 * Math.max(1, Math.abs(value)));
  });
}

describe("the module", () => {
  it("imports nothing", () => {
    expect(WebAssembly.Module.imports(module)).toEqual([]);
  });

  it("knows the library's names", () => {
    expect(core.families).toContain("best-first");
    expect(core.formats[0]).toBe("detect");
    expect(core.solvers).toEqual(["row", "blocked", "level", "path_blocked", "neumann", "squaring"]);
  });
});

describe("golden problems", () => {
  const folder = join(root, "tests/golden");
  const files = readdirSync(folder).filter((name) => name.endsWith(".json"));
  it("are all there", () => expect(files.length).toBeGreaterThanOrEqual(6));
  it.each(files)("%s: oracle, every solver, every commit", (name) => {
    const file = JSON.parse(readFileSync(join(folder, name), "utf8")) as Golden;
    core.read(JSON.stringify(file.parents), "parents");
    core.setHead({
      dimK: file.k[0][0].length, dimV: file.v[0][0].length,
      q: rows(file.q, file, file.scale), k: rows(file.k, file, 1), v: flat(file.v), g: flat(file.g), beta: flat(file.beta), state: transposed(file.state),
    });
    for (const solver of ["oracle", ...core.solvers]) {
      const out = core.outputs(solver, 4);
      expectNear(out.o, flat(file.expected.o), `o ${solver}`);
      expectNear(out.u, flat(file.expected.u), `u ${solver}`);
      expectNear(out.l, flat(file.expected.l), `l ${solver}`);
      for (const method of ["resolve", "stash", "replay"] as const)
        file.parents.forEach((_, leaf) => expectNear(core.commit(method, leaf), transposed(file.expected.state_after[leaf]), `${method} ${leaf}`));
    }
  });
});

describe("trees", () => {
  it("are the library's: the hashes of its own test", () => {
    const source = readFileSync(join(root, "tests/unit/tree_families_test.cpp"), "utf8");
    const golden = [...source.matchAll(/\{"([a-z-]+)", (\d+), (\d+), (\d+), (\d+), (0x[0-9a-f]+)u\}/g)];
    expect(golden.length).toBeGreaterThanOrEqual(20);
    for (const [, name, nodes, topK, depth, seed, hash] of golden) {
      core.make(family(name, Number(nodes), Number(topK), Number(depth), Number(seed)));
      let fnv = 0xcbf29ce484222325n;
      for (const parent of core.tree().parents)
        for (let shift = 0; shift < 32; shift += 8) fnv = ((fnv ^ BigInt((parent >> shift) & 0xff)) * 0x100000001b3n) & 0xffffffffffffffffn;
      expect(`0x${fnv.toString(16)}`, `${name} ${nodes}`).toBe(`0x${BigInt(hash).toString(16)}`);
    }
  });

  const program = [process.env.CANOPY, join(root, "build/canopy"), join(root, "build-page/canopy")].find((path) => path && existsSync(path));
  it.skipIf(!program)("are what the built program prints", () => {
    for (const [name, nodes, seed] of [["random", 200, 17], ["skewed", 256, 0], ["best-first", 100, 5]] as const) {
      const printed = JSON.parse(execFileSync(program!, ["tree", "--family", name, "--nodes", String(nodes), "--depth", "20", "--seed", String(seed), "--json"], { encoding: "utf8" }));
      core.make(family(name, nodes, 4, 20, seed));
      const tree = core.tree();
      expect({
        nodes: tree.nodes, depth: tree.depth, parents: [...tree.parents], depths: [...tree.depths], dfs_order: [...tree.dfsOrder], level_order: [...tree.levelRank.keys()].sort((a, b) => tree.levelRank[a] - tree.levelRank[b]),
        subtree_sizes: [...tree.subtree], blocks: core.blocks(16), dense_blocks: core.denseBlocks(16), compressed_blocks: core.compressedBlocks(16),
      }).toEqual(printed);
    }
  });

  it("hold what docs/trees.md counts", () => {
    const counts = (f: Family) => (core.make(f), [core.denseBlocks(16), core.compressedBlocks(16)]);
    expect(counts(family("best-first", 128))).toEqual([36, 15]);
    expect(counts(family("best-first", 256))).toEqual([136, 31]);
    expect(counts(family("skewed", 256, 4, 48))).toEqual([136, 46]);
    expect(counts(family("chain", 256))).toEqual([136, 136]);
  });

  it("as published are read, and written in every form", () => {
    for (const { name, text } of readTrees()) {
      const count = core.read(text), expected = (JSON.parse(text) as { expect_parents?: number[][] }).expect_parents;
      for (let i = 0; i < count; ++i) {
        core.read(text, "detect", i);
        const tree = core.tree();
        if (expected) expect([...tree.parents], name).toEqual(expected[i]);
        for (const form of core.formats.slice(1)) {
          let written: string;
          try {
            core.read(text, "detect", i);
            written = core.write(form);
          } catch (error) {
            expect(form).toBe("widths"); // only uniform levels can be written so
            continue;
          }
          core.read(written);
          expect([...core.tree().depths].sort(), `${name} as ${form}`).toEqual([...tree.depths].sort());
        }
      }
    }
  });

  it("have ancestors, paths and prefixes that agree", () => {
    core.make(family("random", 130, 4, 8, 3));
    const tree = core.tree();
    for (let i = 0; i < tree.nodes; ++i) {
      const path = new Set(pathTo(tree, i).slice(0, -1));
      for (let j = 0; j < tree.nodes; ++j) expect(isAncestor(tree, j, i)).toBe(path.has(j));
      const first = tree.dfsRank[i] - (tree.dfsRank[i] % 16);
      expect(tree.prefix[tree.dfsRank[i]]).toBe([...path].filter((j) => tree.dfsRank[j] < first).length);
    }
  });

  it("that are none are refused in words, with an order that works", () => {
    const refusal = (text: string) => {
      try {
        core.read(text);
      } catch (error) {
        return (error as Error).message;
      }
      return "accepted";
    };
    expect(refusal("-1 0 5 1 2 0")).toContain("parents[2] = 5: a parent must precede its child (expected 0 <= parent < 2)");
    expect(proposedOrder(refusal("-1 0 5 1 2 0"))).toBe("[-1, 0, 0, 1, 2, 4]");
    expect(refusal("")).toContain("empty");
    expect(refusal("[-1, 0, -1]")).toContain("a second root");
    expect(refusal(JSON.stringify(Array.from({ length: 257 }, (_, i) => i - 1)))).toContain("257 nodes");
    expect(refusal("[-1, 2, 1]")).toContain("parents[1] = 2");
    expect(proposedOrder(refusal("[-1, 2, 1]"))).toBeUndefined(); // a circle has no order
    expect(() => core.make(family("specla", 200, 2, 4))).toThrow(/31/);
    core.read("[-1, 0]");
    expect(core.tree().nodes).toBe(2); // a refusal before leaves nothing behind
  });

  it("survive a growing memory", () => {
    for (let round = 0; round < 3; ++round)
      for (const nodes of [1, 256, 17]) {
        core.make(family("chain", nodes));
        core.sample(1, 0.95, false);
        core.watch("neumann", 16);
        expect(core.tree().ancestors.length).toBe(nodes * 8);
        expect(core.solvers.length).toBe(6);
      }
  });
});

describe("a watched solve", () => {
  it("takes a step a block, or a term a level", () => {
    core.make(family("best-first", 100));
    core.sample(1, 0, true);
    expect(core.watch("path_blocked", 16).steps).toBe(7);
    expect(core.watch("path_blocked", 64).steps).toBe(2);
    expect(core.watch("neumann", 16).steps).toBe(core.tree().depth);
  });

  it("ends right by substitution and nowhere by the series, where keys are similar and the path is deep", () => {
    core.make(family("chain", 64));
    core.sample(1, 0.95, false);
    const blocks = core.watch("path_blocked", 16), series = core.watch("neumann", 16);
    expect(blocks.residual[blocks.steps]).toBeLessThan(1e-5);
    expect(Math.max(...blocks.error.subarray(blocks.steps * 64))).toBeLessThan(1e-5);
    expect(series.residual[series.steps]).toBeGreaterThan(1e3);
  });

  it("is right by both where keys are random", () => {
    core.make(family("best-first", 64));
    core.sample(1, 0, true);
    for (const solver of ["path_blocked", "neumann"]) {
      const run = core.watch(solver, 16);
      expect(run.residual[run.steps], solver).toBeLessThan(1e-5);
    }
  });

  it("needs a head", () => {
    core.make(family("chain", 4));
    expect(() => core.outputs("row")).toThrow(/canopy_sample or canopy_head/);
  });
});
