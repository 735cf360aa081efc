// Trees drawn: every family, size and box keeps nodes apart and inside; and colours keep their contrast.
import { readFileSync } from "node:fs";
import { describe, expect, it } from "vitest";
import { wasmFile } from "../scripts/data.ts";
import { Core } from "../src/core.ts";
import { layOut, nearest } from "../src/view/layout.ts";

const core = new Core(new WebAssembly.Module(readFileSync(wasmFile)));

describe("the drawing of a tree", () => {
  it.each(core.families)("%s: nodes apart, inside the box, found where they are", (name) => {
    for (const nodes of [1, 2, 16, 64, 200, 256])
      for (const [width, height] of [[728, 495], [328, 344], [1040, 520]]) {
        const depth = Math.max(1, Math.min(40, nodes - 1));
        core.make({ name, nodes, topK: name === "specla" ? 8 : 4, depth: name === "best-first" ? 8 : depth, seed: 1 });
        const tree = core.tree(), layout = layOut(tree, width, height, 6), where = `${name} ${nodes} ${width}x${height}`;
        let least = Infinity;
        for (let i = 0; i < nodes; ++i) {
          expect(layout.x[i], where).toBeGreaterThanOrEqual(0);
          expect(layout.x[i], where).toBeLessThanOrEqual(width);
          expect(layout.y[i], where).toBeGreaterThanOrEqual(0);
          expect(layout.y[i], where).toBeLessThanOrEqual(height);
          for (let j = 0; j < i; ++j) least = Math.min(least, Math.hypot(layout.x[i] - layout.x[j], layout.y[i] - layout.y[j]));
        }
        const near = Math.min(least, 50) * 0.3; // less than half the way to a neighbour
        for (let i = 0; i < nodes; ++i) expect(nearest(layout, layout.x[i] + near, layout.y[i]), where).toBe(i);
        if (nodes > 1) expect(least, where).toBeGreaterThan(0.9 * layout.gap);
        // 256 leaves of a star on a phone are the worst case; a chain bends and keeps its numbers readable.
        if (name === "chain" && nodes === 256) expect(layout.gap).toBeGreaterThan(width > 500 ? 25 : 15);
      }
  });
});

// ---- contrast ---------------------------------------------------------------------------------------------------

type Rgb = [number, number, number];
const channels = (hex: string): Rgb => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)) as Rgb;
const mix = (a: Rgb, b: Rgb, share: number): Rgb => a.map((x, i) => x * share + b[i] * (1 - share)) as Rgb;
function luminance(rgb: Rgb): number {
  const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}
export function contrast(a: Rgb, b: Rgb): number {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
}

const css = readFileSync(new URL("../src/style/tokens.css", import.meta.url), "utf8");
const themes = [...css.matchAll(/\{\s*color-scheme: (light|dark);([^}]*)\}/g)].map(([, name, body]) => ({
  name, colours: Object.fromEntries([...body.matchAll(/--([a-z0-9-]+): (#[0-9a-f]{6});/g)].map(([, key, value]) => [key, channels(value)])) as Record<string, Rgb>,
}));

describe("contrast", () => {
  it("has one light theme, and the dark one twice the same", () => {
    expect(themes.map((t) => t.name)).toEqual(["light", "dark", "dark"]);
    expect(themes[1].colours).toEqual(themes[2].colours);
    expect(Object.keys(themes[0].colours)).toEqual(Object.keys(themes[1].colours));
  });

  it.each(themes.slice(0, 2))("of text is AA in the $name theme", ({ colours }) => {
    for (const ground of ["paper", "card", "sunk"])
      for (const text of ["ink", "ink-2", "leaf", "bark", "sky", "alarm"]) expect(contrast(colours[text], colours[ground]), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    for (const [text, ground] of [["ink", "leaf-soft"], ["ink", "bark-soft"], ["ink", "alarm-soft"], ["on-strong", "leaf"], ["on-strong", "leaf-deep"], ["on-strong", "bark"], ["on-strong", "alarm"]])
      expect(contrast(colours[text], colours[ground]), `${text} on ${ground}`).toBeGreaterThanOrEqual(4.5);
    for (const [strong, share] of [["leaf", 0.42], ["alarm", 0.3]] as const) // the squares of the crossover map
      expect(contrast(colours.ink, mix(colours[strong], colours.card, share)), strong).toBeGreaterThanOrEqual(4.5);
  });

  it.each(themes.slice(0, 2))("of what is drawn or focused is 3 in the $name theme", ({ colours }) => {
    for (const ground of ["paper", "card"])
      for (const line of ["edge", "leaf", "bark", "sky", "alarm", "focus", "cell-self"]) expect(contrast(colours[line], colours[ground]), `${line} on ${ground}`).toBeGreaterThanOrEqual(3);
    for (const cell of ["cell", "cell-self"])
      for (const ground of ["cell-empty", "paper"]) expect(contrast(colours[cell], colours[ground]), `${cell} on ${ground}`).toBeGreaterThanOrEqual(3);
  });
});
