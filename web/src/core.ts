// The library's C++ core as a WebAssembly module (bindings/wasm): trees, their plan, and a small problem solved.

export interface Tree {
  nodes: number;
  depth: number; // the largest number of strict ancestors
  parents: Int32Array; // by node
  depths: Int32Array;
  dfsRank: Int32Array;
  levelRank: Int32Array;
  subtree: Int32Array; // nodes below, itself included
  dfsOrder: Int32Array; // by depth-first rank: the node
  prefix: Int32Array; // by depth-first rank: ancestors outside its 16-row block
  ancestors: Uint32Array; // [T][8], bit j of word j / 32
}

export interface Block {
  first: number; // depth-first rank
  rows: number;
  ancestors: number; // of the first row: the columns that the block needs from outside
}

export interface Family {
  name: string;
  nodes: number;
  topK: number;
  depth: number;
  seed: number;
}

// One run of a solver, watched: entry 0 is the start, U = R.
export interface Run {
  steps: number; // that wait for one another
  residual: Float64Array; // [steps + 1]
  error: Float64Array; // [steps + 1][T] of each node's u against the fp64 oracle
}

export interface Outputs {
  o: Float64Array; // [T,V]
  u: Float64Array; // [T,V]
  l: Float64Array; // [T]
}

export interface Head {
  dimK: number;
  dimV: number;
  q: ArrayLike<number>; // [T,K]
  k: ArrayLike<number>;
  v: ArrayLike<number>; // [T,V]
  g: ArrayLike<number>; // [T]
  beta: ArrayLike<number>;
  state: ArrayLike<number>; // [K,V]
}

export class CoreError extends Error {}

const kAncestorWords = 8;
type Exports = Record<string, (...numbers: number[]) => number>;

export class Core {
  readonly families: readonly string[];
  readonly formats: readonly string[]; // 0 is "detect"
  readonly solvers: readonly string[];
  private readonly call: Exports;
  private readonly memory: WebAssembly.Memory;

  constructor(module: WebAssembly.Module) {
    const exports = new WebAssembly.Instance(module).exports; // it imports nothing
    this.call = exports as unknown as Exports;
    this.memory = exports.memory as WebAssembly.Memory;
    this.call._initialize();
    this.families = this.names("canopy_family_name");
    this.formats = this.names("canopy_format_name");
    this.solvers = this.names("canopy_solver_name");
  }

  // How many trees the text holds; the chosen one becomes the tree. Throws the core's own sentence.
  read(text: string, format = "detect", index = 0): number {
    const bytes = new TextEncoder().encode(text);
    const address = this.call.canopy_room(bytes.length);
    new Uint8Array(this.memory.buffer, address, bytes.length).set(bytes);
    const count = this.checked(this.call.canopy_read(this.formats.indexOf(format)));
    if (index > 0) this.checked(this.call.canopy_pick(index));
    return count;
  }

  make(family: Family): void {
    const low = family.seed >>> 0, high = Math.floor(family.seed / 2 ** 32) >>> 0;
    this.checked(this.call.canopy_family(this.families.indexOf(family.name), family.nodes, family.topK, family.depth, low, high));
  }

  write(format: string): string {
    this.checked(this.call.canopy_write(this.formats.indexOf(format)));
    return this.text();
  }

  tree(): Tree {
    const nodes = this.call.canopy_nodes();
    const array = (which: number) => this.integers(this.call.canopy_tree_array(which), nodes);
    return {
      nodes,
      depth: this.call.canopy_depth(),
      parents: array(0),
      depths: array(1),
      dfsRank: array(2),
      levelRank: array(3),
      subtree: array(4),
      dfsOrder: array(5),
      prefix: array(6),
      ancestors: new Uint32Array(this.integers(this.call.canopy_ancestors(), nodes * kAncestorWords).buffer),
    };
  }

  blocks(rows: number): Block[] {
    const address = this.call.canopy_blocks(rows);
    const count = this.integers(address, 1)[0];
    const flat = this.integers(address + 4, 3 * count);
    return Array.from({ length: count }, (_, b) => ({ first: flat[3 * b], rows: flat[3 * b + 1], ancestors: flat[3 * b + 2] }));
  }

  denseBlocks(rows: number): number {
    return this.call.canopy_dense_block_count(rows);
  }

  compressedBlocks(rows: number): number {
    return this.call.canopy_compressed_block_count(rows);
  }

  // Bytes kept from verification until commit, one layer and sequence.
  keptBytes(): { snapshots: number; pseudoValues: number; resolve: number } {
    const bytes = this.call.canopy_kept_bytes;
    return { snapshots: bytes(0), pseudoValues: bytes(1), resolve: bytes(2) };
  }

  model(): { headsV: number; dimK: number; dimV: number; layers: number } {
    const fact = this.call.canopy_model;
    return { headsV: fact(0), dimK: fact(1), dimV: fact(2), layers: fact(3) };
  }

  // A small problem for the tree. forgets: natural gates and betas; otherwise nothing is forgotten.
  sample(seed: number, cosine: number, forgets: boolean): void {
    this.checked(this.call.canopy_sample(seed, cosine, forgets ? 1 : 0));
  }

  watch(solver: string, rows: number): Run {
    const steps = this.checked(this.call.canopy_watch(this.solvers.indexOf(solver), rows));
    return { steps, residual: this.answer(4, steps + 1), error: this.answer(5, (steps + 1) * this.call.canopy_nodes()) };
  }

  setHead(head: Head): void {
    this.checked(this.call.canopy_head(head.dimK, head.dimV));
    [head.q, head.k, head.v, head.g, head.beta, head.state].forEach((values, which) => {
      const address = this.call.canopy_head_array(which);
      new Float64Array(this.memory.buffer, address, values.length).set(values);
    });
  }

  // solver "oracle" is E1, the others the closed form; fp64.
  outputs(solver: string, rows = 16): Outputs {
    this.checked(this.call.canopy_outputs(solver === "oracle" ? -1 : this.index(this.solvers, solver), rows));
    const nodes = this.call.canopy_nodes(), dimV = this.call.canopy_head_width(1);
    return { o: this.answer(0, nodes * dimV), u: this.answer(1, nodes * dimV), l: this.answer(2, nodes) };
  }

  // The state [K,V] after a node; "stash" uses the last outputs().
  commit(method: "resolve" | "stash" | "replay", leaf: number): Float64Array {
    this.checked(this.call.canopy_commit_state(["resolve", "stash", "replay"].indexOf(method), leaf));
    return this.answer(3, this.call.canopy_head_width(0) * this.call.canopy_head_width(1));
  }

  private index(names: readonly string[], name: string): number {
    const at = names.indexOf(name);
    if (at < 0) throw new CoreError(`${name}: expected one of ${names.join(", ")}`);
    return at;
  }

  private answer(which: number, count: number): Float64Array {
    const address = this.call.canopy_answer(which);
    return new Float64Array(this.memory.buffer, address, count).slice();
  }

  // A call may grow the memory, which detaches the buffer: the call comes first, the buffer is taken after it.
  private integers(address: number, count: number): Int32Array {
    return new Int32Array(this.memory.buffer, address, count).slice();
  }

  private names(call: string): string[] {
    const names: string[] = [];
    while (this.call[call](names.length) >= 0) names.push(this.text());
    return names;
  }

  private text(): string {
    const address = this.call.canopy_text(), bytes = this.call.canopy_text_bytes();
    return new TextDecoder().decode(new Uint8Array(this.memory.buffer, address, bytes));
  }

  private checked(answer: number): number {
    if (answer < 0) throw new CoreError(this.text());
    return answer;
  }
}

export function isAncestor(tree: Tree, ancestor: number, node: number): boolean {
  return ((tree.ancestors[node * kAncestorWords + (ancestor >> 5)] >>> (ancestor & 31)) & 1) === 1;
}

// Root first, the node last.
export function pathTo(tree: Tree, node: number): number[] {
  const path: number[] = [];
  for (let i = node; i >= 0; i = tree.parents[i]) path.push(i);
  return path.reverse();
}

// The renumbered tree that the core proposes in a message about parents after their children; undefined if it has none.
export function proposedOrder(message: string): string | undefined {
  return /the same tree is the parent array (\[[-\d, ]+\])/.exec(message)?.[1];
}
