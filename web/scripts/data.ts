// What the build takes from the repository: the wasm module of the core, the recorded results, the published trees.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import type { Plugin } from "vite";
import { addFile, emptyResults, type Results } from "../src/data/records.ts";

export const root = join(dirname(fileURLToPath(import.meta.url)), "..", "..");
export const wasmFile = join(root, "build-wasm", "canopy.wasm");

// Below a folder too: results/MACHINE/sweep.jsonl.
function files(folder: string, ending: string): string[] {
  const path = join(root, folder);
  return existsSync(path) ? readdirSync(path, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(ending)).sort() : [];
}

export function readResults(): Results {
  const results = emptyResults();
  for (const name of files("results", ".jsonl")) addFile(results, `results/${name}`, readFileSync(join(root, "results", name), "utf8"));
  return results;
}

export interface TreeFile {
  name: string;
  source: string;
  text: string;
}

export function readTrees(): TreeFile[] {
  return files("data/trees", ".json").map((name) => {
    const text = readFileSync(join(root, "data/trees", name), "utf8");
    return { name: name.replace(/\.json$/, ""), source: String(JSON.parse(text).source ?? ""), text };
  });
}

// Where the repository lives, once CITATION.cff says so.
function repository(): string {
  return /^repository-code:\s*"?([^"\s]+)"?\s*$/m.exec(readFileSync(join(root, "CITATION.cff"), "utf8"))?.[1] ?? "";
}

// virtual:canopy gives the addresses of core and results (fetched while the page is already painted) and the trees.
export function repositoryData(): Plugin {
  const id = "virtual:canopy";
  let serving = false;
  return {
    name: "canopy-data",
    configResolved(config) {
      serving = config.command === "serve";
    },
    resolveId: (source) => (source === id ? `\0${id}` : undefined),
    load(source) {
      if (source !== `\0${id}`) return;
      if (!existsSync(wasmFile)) this.error(`${wasmFile} is missing: run \`make page\``);
      const trees = `export const treeFiles = ${JSON.stringify(readTrees())};\nexport const repository = ${JSON.stringify(repository())};\n`;
      if (serving) return `${trees}export const coreUrl = "/core.wasm", resultsUrl = "/results.json";`;
      const core = this.emitFile({ type: "asset", name: "core.wasm", source: readFileSync(wasmFile) });
      const results = this.emitFile({ type: "asset", name: "results.json", source: JSON.stringify(readResults()) });
      return `${trees}export const coreUrl = import.meta.ROLLUP_FILE_URL_${core}, resultsUrl = import.meta.ROLLUP_FILE_URL_${results};`;
    },
    configureServer(server) {
      server.middlewares.use("/core.wasm", (_, answer) => void answer.setHeader("Content-Type", "application/wasm").end(readFileSync(wasmFile)));
      server.middlewares.use("/results.json", (_, answer) => void answer.setHeader("Content-Type", "application/json").end(JSON.stringify(readResults())));
    },
  };
}
