// What the address says: which tree, and how it is numbered. A link shows the same tree.
import type { Core, Family } from "./core.ts";

export type Order = "dfs" | "level";

export type Choice =
  | { kind: "family"; family: Family }
  | { kind: "file"; name: string; index: number }
  | { kind: "text"; text: string };

export interface PageState {
  choice: Choice;
  order: Order;
}

export const kMostNodes = 256;
export const kStart: PageState = {
  choice: { kind: "family", family: { name: "best-first", nodes: 64, topK: 4, depth: 8, seed: 0 } },
  order: "dfs",
};

// Which of a family's numbers change its tree (docs/trees.md).
export function usesTopK(name: string): boolean {
  return name === "balanced" || name === "best-first" || name === "specla";
}
export function usesDepth(name: string): boolean {
  return name === "skewed" || name === "spine" || name === "best-first" || name === "specla";
}
export function usesSeed(name: string): boolean {
  return name === "random" || name === "best-first";
}

export function toQuery(state: PageState): string {
  const query = new URLSearchParams();
  const { choice } = state;
  if (choice.kind === "family") {
    const f = choice.family;
    query.set("tree", f.name);
    query.set("nodes", String(f.nodes));
    if (usesTopK(f.name)) query.set("k", String(f.topK));
    if (usesDepth(f.name)) query.set("depth", String(f.depth));
    if (usesSeed(f.name)) query.set("seed", String(f.seed));
  } else if (choice.kind === "file") {
    query.set("published", choice.name);
    if (choice.index > 0) query.set("index", String(choice.index));
  } else {
    query.set("text", choice.text);
  }
  if (state.order !== kStart.order) query.set("order", state.order);
  return `?${query}`;
}

// What cannot be read falls back to the start; a text is taken as it is, the core judges it.
export function fromQuery(search: string, core: Core, files: readonly string[]): PageState {
  const query = new URLSearchParams(search);
  const order: Order = query.get("order") === "level" ? "level" : "dfs";
  const text = query.get("text"), file = query.get("published"), name = query.get("tree");
  const whole = (key: string, least: number, most: number, otherwise: number) => {
    const value = Number(query.get(key) ?? NaN);
    return Number.isInteger(value) && value >= least && value <= most ? value : otherwise;
  };
  if (text !== null) return { choice: { kind: "text", text }, order };
  if (file !== null && files.includes(file)) return { choice: { kind: "file", name: file, index: whole("index", 0, 1000, 0) }, order };
  if (name === null || !core.families.includes(name)) return { ...kStart, order };
  const family = {
    name,
    nodes: whole("nodes", 1, kMostNodes, 64),
    topK: whole("k", 1, 16, 4),
    depth: whole("depth", 0, kMostNodes - 1, 8),
    seed: whole("seed", 0, Number.MAX_SAFE_INTEGER, 0),
  };
  return { choice: { kind: "family", family }, order };
}
