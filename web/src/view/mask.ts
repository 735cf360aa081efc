// The mask as the kernel sees it: T rows, T columns, the 16-row blocks of the compressed solve outlined; beside it the
// same rows with only the columns that their block needs.
import { isAncestor, pathTo, type Block, type Core, type Tree } from "../core.ts";
import type { Order } from "../state.ts";

const kGap = 3; // cells between a block's outside columns and its diagonal block
const kHairFrom = 6; // canvas pixels a cell from which on a hair of ground is left between cells

// What a cell is, as the pixels' 32 bits.
interface CellColours {
  empty: number; // computed by a dense kernel, zero
  seen: number;
  self: number;
}

function cellColours(): CellColours {
  const style = getComputedStyle(document.documentElement), bytes = new Uint8Array(4), pixel = new Uint32Array(bytes.buffer);
  const of = (name: string) => {
    const rgb = parseInt(style.getPropertyValue(name).trim().slice(1), 16);
    bytes.set([rgb >> 16, rgb >> 8, rgb, 255]);
    return pixel[0];
  };
  return { empty: of("--cell-empty"), seen: of("--cell"), self: of("--cell-self") };
}

interface Figure {
  box: HTMLElement;
  canvas: HTMLCanvasElement;
  overlay: SVGSVGElement;
}

function figure(box: HTMLElement, label: string): Figure {
  const canvas = document.createElement("canvas");
  const overlay = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  canvas.setAttribute("aria-hidden", "true");
  overlay.setAttribute("role", "img");
  overlay.setAttribute("aria-label", label);
  box.replaceChildren(canvas, overlay);
  return { box, canvas, overlay };
}

// Ascending numbers as runs of neighbours: [first, count].
function runs(numbers: number[]): [number, number][] {
  const found: [number, number][] = [];
  for (const n of numbers) {
    const last = found.at(-1);
    if (last && n === last[0] + last[1]) ++last[1];
    else found.push([n, 1]);
  }
  return found;
}

const rectangle = (x: number, y: number, width: number, height: number) => `M${x} ${y}h${width}v${height}h${-width}z`;

export class MaskView {
  private readonly full: Figure;
  private readonly gathered: Figure;
  private tree!: Tree;
  private blocks: Block[] = [];
  private order: Order = "dfs";
  private colours = cellColours();
  private readonly small = document.createElement("canvas"); // one pixel a cell
  private cell = 4; // CSS pixels a cell
  private sharp = 4; // canvas pixels a cell, a whole number: scaled down where cells are small
  private position!: Int32Array; // node to row
  private at!: Int32Array; // row to node
  private node = 0;

  constructor(full: HTMLElement, gathered: HTMLElement, private readonly choose: (node: number) => void) {
    this.full = figure(full, "Ancestor mask");
    this.gathered = figure(gathered, "Gathered columns");
    this.full.overlay.setAttribute("tabindex", "0");
    const point = (event: PointerEvent) => {
      const box = this.full.overlay.getBoundingClientRect();
      const row = Math.floor((event.clientY - box.top) / this.cell);
      if (this.tree && row >= 0 && row < this.tree.nodes) choose(this.at[row]);
    };
    this.full.overlay.addEventListener("pointermove", (event) => event.pointerType !== "touch" && point(event));
    this.full.overlay.addEventListener("pointerdown", point);
    this.full.overlay.addEventListener("keydown", (event) => {
      const row = this.position[this.node], last = this.tree.nodes - 1;
      const next = ({ ArrowUp: row - 1, ArrowDown: row + 1, PageUp: row - 16, PageDown: row + 16, Home: 0, End: last } as Record<string, number>)[event.key];
      if (next === undefined) return;
      event.preventDefault();
      this.choose(this.at[Math.max(0, Math.min(last, next))]);
    });
  }

  draw(core: Core, tree: Tree, node: number, order: Order, widthFull: number, widthGathered: number): void {
    this.tree = tree;
    this.order = order;
    this.blocks = core.blocks(16);
    this.position = order === "dfs" ? tree.dfsRank : tree.levelRank;
    this.at = new Int32Array(tree.nodes);
    for (let i = 0; i < tree.nodes; ++i) this.at[this.position[i]] = i;
    const columns = this.gatheredColumns();
    // One scale for both, so that the saved area can be seen.
    const ratio = window.devicePixelRatio || 1;
    const fit = Math.min(widthFull / tree.nodes, widthGathered / columns, 22);
    this.sharp = fit * ratio >= kHairFrom ? Math.floor(fit * ratio) : Math.ceil(fit * ratio);
    this.cell = fit * ratio >= kHairFrom ? this.sharp / ratio : fit;
    this.paintFull();
    this.paintGathered();
    this.show(node);
  }

  // With the theme's other colours. They are asked for here alone: the question makes the browser restyle the page.
  repaint(): void {
    this.colours = cellColours();
    if (!this.tree) return;
    this.paintFull();
    this.paintGathered();
    this.show(this.node);
  }

  show(node: number): void {
    this.node = node;
    if (!this.tree) return;
    const { tree, cell } = this, row = this.position[node], path = pathTo(tree, node);
    const side = tree.nodes * cell;
    const lit = path.map((i) => rectangle(this.position[i] * cell, row * cell, cell, cell)).join("");
    const up = path.map((i) => rectangle(this.position[i] * cell, this.position[i] * cell, cell, cell)).join("");
    const blocks = this.order === "dfs" ? `<path class="block" d="${this.blockOutlines()}"/>` : "";
    this.full.overlay.innerHTML = `${blocks}<rect class="row" x="0" y="${row * cell}" width="${side}" height="${cell}"/><path class="lit" d="${lit}"/><path class="up" d="${up}"/>`;
    this.full.overlay.setAttribute("aria-label", `Ancestor mask, ${tree.nodes} by ${tree.nodes}. Row ${row} sees ${path.map((i) => this.position[i]).join(", ")}. Arrow keys move the row.`);
    this.showGathered(tree.dfsRank[node]);
  }

  private size(f: Figure, columns: number, rows: number): void {
    const width = columns * this.cell, height = rows * this.cell;
    for (const e of [f.canvas, f.overlay]) (e.style.width = `${width}px`), (e.style.height = `${height}px`);
    f.overlay.setAttribute("viewBox", `0 0 ${width} ${height}`);
  }

  // One pixel a cell, then enlarged without smoothing: a chain of 256 has 32,896 cells, too many to draw one by one.
  private paint(f: Figure, columns: number, rows: number, fill: (pixels: Uint32Array) => void): void {
    this.size(f, columns, rows);
    const image = new ImageData(columns, rows), { small, sharp } = this;
    fill(new Uint32Array(image.data.buffer));
    small.width = columns;
    small.height = rows;
    small.getContext("2d")!.putImageData(image, 0, 0);
    f.canvas.width = columns * sharp;
    f.canvas.height = rows * sharp;
    const context = f.canvas.getContext("2d")!;
    context.imageSmoothingEnabled = false;
    context.drawImage(small, 0, 0, columns * sharp, rows * sharp);
    if (sharp < kHairFrom) return;
    for (let r = 1; r < rows; ++r) context.clearRect(0, r * sharp - 1, columns * sharp, 1);
    for (let c = 1; c < columns; ++c) context.clearRect(c * sharp - 1, 0, 1, rows * sharp);
  }

  private paintFull(): void {
    const { tree, at, position, colours } = this, T = tree.nodes;
    this.paint(this.full, T, T, (pixels) => {
      for (let r = 0; r < T; ++r) {
        pixels.fill(colours.empty, r * T, r * T + r); // the dense triangle
        for (let i = tree.parents[at[r]]; i >= 0; i = tree.parents[i]) pixels[r * T + position[i]] = colours.seen;
        pixels[r * T + r] = colours.self;
      }
    });
  }

  // Columns of a gathered row: the prefix of the first row's root path by depth, a gap, the block's own ranks.
  private paintGathered(): void {
    const { tree, colours } = this, columns = this.gatheredColumns();
    this.paint(this.gathered, columns, tree.nodes, (pixels) => {
      for (const block of this.blocks) {
        const own = block.ancestors > 0 ? block.ancestors + kGap : 0;
        for (let r = 0; r < block.rows; ++r) {
          const rank = block.first + r, node = tree.dfsOrder[rank], row = rank * columns;
          pixels.fill(colours.seen, row, row + tree.prefix[rank]).fill(colours.empty, row + tree.prefix[rank], row + block.ancestors);
          for (let t = 0; t < r; ++t) pixels[row + own + t] = isAncestor(tree, tree.dfsOrder[block.first + t], node) ? colours.seen : colours.empty;
          pixels[row + own + r] = colours.self;
        }
      }
    });
  }

  private gatheredColumns(): number {
    return Math.max(...this.blocks.map((b) => (b.ancestors > 0 ? b.ancestors + kGap : 0) + b.rows));
  }

  private showGathered(rank: number): void {
    const { cell, tree } = this;
    let outlines = "";
    for (const b of this.blocks) {
      const top = b.first * cell, height = b.rows * cell, own = (b.ancestors > 0 ? b.ancestors + kGap : 0) * cell;
      if (b.ancestors > 0) outlines += rectangle(0, top, b.ancestors * cell, height);
      outlines += rectangle(own, top, b.rows * cell, height);
    }
    const b = this.blocks[Math.floor(rank / 16)], own = b.ancestors > 0 ? b.ancestors + kGap : 0, node = tree.dfsOrder[rank];
    let lit = rectangle(0, rank * cell, tree.prefix[rank] * cell, cell);
    for (let t = 0; t <= rank - b.first; ++t) {
      const other = tree.dfsOrder[b.first + t];
      if (other === node || isAncestor(tree, other, node)) lit += rectangle((own + t) * cell, rank * cell, cell, cell);
    }
    this.gathered.overlay.innerHTML = `<path class="block" d="${outlines}"/><path class="lit" d="${lit}"/>`;
    this.gathered.overlay.setAttribute("aria-label", `Gathered columns of ${this.blocks.length} blocks of 16 rows. Row ${rank}: ${tree.prefix[rank]} ancestors outside its block.`);
  }

  private blockOutlines(): string {
    const { tree, cell } = this;
    let d = "";
    for (const block of this.blocks) {
      const top = block.first * cell, height = block.rows * cell;
      d += rectangle(top, top, height, height);
      // The columns outside: the first row's root path, neighbours joined.
      const path = pathTo(tree, tree.dfsOrder[block.first]).slice(0, -1).map((i) => tree.dfsRank[i]);
      for (const [first, count] of runs(path)) d += rectangle(first * cell, top, count * cell, height);
    }
    return d;
  }
}
