// The picker: a family and its numbers, a published tree, or a text in any form that `canopy tree` reads.
import { CoreError, proposedOrder, type Core, type Family } from "../core.ts";
import { kMostNodes, usesDepth, usesSeed, usesTopK, type Choice, type Order } from "../state.ts";
import { h, segments } from "./dom.ts";

export interface PickerFile {
  name: string;
  source: string;
  count: number; // trees in it
}

const kOwn = "own";

export class Picker {
  private readonly controls = h("div", { class: "knobs" });
  private readonly message = h("div", { class: "message", role: "status" });
  private readonly list: HTMLSelectElement;
  private readonly order: HTMLElement;
  private family: Family;
  private text = "[-1, 0, 0, 1, 1, 2]";

  constructor(
    form: HTMLFormElement,
    private readonly core: Core,
    private readonly files: PickerFile[],
    private choice: Choice,
    order: Order,
    private readonly change: (choice: Choice) => void,
    setOrder: (order: Order) => void,
  ) {
    this.family = choice.kind === "family" ? { ...choice.family } : { name: "best-first", nodes: 64, topK: 4, depth: 8, seed: 0 };
    if (choice.kind === "text") this.text = choice.text;
    const option = (value: string, label: string) => h("option", { value }, label);
    this.list = h("select", { id: "family", change: () => this.choose(this.list.value) },
      h("optgroup", { label: "Families" }, ...core.families.map((name) => option(name, name === "balanced" ? "balanced top-k" : name))),
      h("optgroup", { label: "As published" }, ...files.flatMap((file) =>
        Array.from({ length: file.count }, (_, i) => option(`file:${file.name}:${i}`, file.count > 1 ? `${file.name}, tree ${i + 1}` : file.name)))),
      h("optgroup", { label: "Your own" }, option(kOwn, "a parent array, or any form")));
    this.order = segments("order", "Numbered", [{ value: "dfs", label: "depth first" }, { value: "level", label: "by level" }], order, (value) => setOrder(value as Order));
    form.addEventListener("submit", (event) => event.preventDefault());
    form.replaceChildren(h("div", { class: "field" }, h("label", { for: "family" }, "Tree"), this.list), this.order, this.controls, this.message);
    this.show(choice);
  }

  // Called with what now holds, also when it came from elsewhere on the page.
  show(choice: Choice): void {
    this.choice = choice;
    if (choice.kind === "family") this.family = { ...choice.family };
    if (choice.kind === "text") this.text = choice.text;
    this.list.value = choice.kind === "family" ? choice.family.name : choice.kind === "file" ? `file:${choice.name}:${choice.index}` : kOwn;
    this.drawControls();
  }

  say(message: string, offer?: { label: string; accept: () => void }): void {
    this.message.classList.toggle("bad", message !== "");
    this.message.replaceChildren(message);
    if (offer) this.message.append(" ", h("button", { type: "button", class: "link", click: offer.accept }, offer.label));
  }

  private choose(value: string): void {
    if (value.startsWith("file:")) {
      const [, name, index] = value.split(":");
      this.take({ kind: "file", name, index: Number(index) });
    } else if (value === kOwn) {
      this.take({ kind: "text", text: this.text });
    } else {
      this.take({ kind: "family", family: { ...this.family, name: value } });
    }
    this.drawControls();
  }

  private take(choice: Choice): void {
    this.choice = choice;
    if (choice.kind === "family") this.family = { ...choice.family };
    this.change(choice);
  }

  private drawControls(): void {
    const { choice } = this;
    if (choice.kind === "text") return this.drawText();
    if (choice.kind === "file") {
      const file = this.files.find((f) => f.name === choice.name);
      return this.controls.replaceChildren(h("p", { class: "note" }, file?.source ?? ""));
    }
    const { name } = choice.family;
    const knobs = [this.slider("nodes", "Nodes", 1, kMostNodes)];
    if (usesTopK(name)) knobs.push(this.slider("topK", "Children, top-k", 1, 8));
    if (usesDepth(name)) knobs.push(this.slider("depth", name === "best-first" || name === "specla" ? "Depth limit" : "Spine", 1, name === "skewed" || name === "spine" ? kMostNodes - 1 : 32));
    if (usesSeed(name)) knobs.push(this.seed());
    this.controls.replaceChildren(...knobs);
  }

  private slider(key: "nodes" | "topK" | "depth", label: string, least: number, most: number): HTMLElement {
    const id = `knob-${key}`;
    const output = h("output", { for: id }, String(this.family[key]));
    const input = h("input", { type: "range", id, min: least, max: Math.max(most, this.family[key]), value: this.family[key], input: () => {
      output.textContent = input.value;
      this.take({ kind: "family", family: { ...this.family, [key]: Number(input.value) } });
    } });
    return h("div", { class: "knob" }, h("label", { for: id }, label), input, output);
  }

  private seed(): HTMLElement {
    const input = h("input", { type: "number", id: "knob-seed", min: 0, max: Number.MAX_SAFE_INTEGER, step: 1, value: this.family.seed, input: () => {
      const seed = Number(input.value);
      if (input.value === "" || !Number.isSafeInteger(seed) || seed < 0) return this.say(`seed: expected a whole number from 0, found ${input.value || "nothing"}`);
      this.take({ kind: "family", family: { ...this.family, seed } });
    } });
    const next = h("button", { type: "button", class: "quiet", click: () => {
      input.value = String(this.family.seed + 1);
      input.dispatchEvent(new Event("input"));
    } }, "another");
    return h("div", { class: "knob" }, h("label", { for: "knob-seed" }, "Seed"), input, next);
  }

  private drawText(): void {
    const area = h("textarea", { id: "own-text", rows: 3, spellcheck: "false", autocomplete: "off", "aria-describedby": "own-help", input: () => {
      this.text = area.value;
      this.take({ kind: "text", text: area.value });
    } });
    area.value = this.text;
    this.controls.replaceChildren(h("div", { class: "own" }, h("label", { for: "own-text" }, "Parents, node by node"), area,
      h("p", { id: "own-help", class: "note" }, `Up to ${kMostNodes} nodes; the root's parent is -1. Also ${this.core.formats.slice(2).join(", ")}: the core finds out which form it is.`)));
  }
}

// Makes the choice the core's tree. A refusal is shown with the core's own sentence, and with its proposal if it has one.
export function apply(core: Core, choice: Choice, textOf: (file: string) => string): void {
  if (choice.kind === "family") core.make(choice.family);
  else if (choice.kind === "file") core.read(textOf(choice.name), "detect", choice.index);
  else core.read(choice.text);
}

export function explain(picker: Picker, error: unknown, accept: (choice: Choice) => void): void {
  if (!(error instanceof CoreError)) throw error;
  const proposal = proposedOrder(error.message);
  const sentence = error.message.replace(/^the text: /, "").replace(/; renumber the nodes level by level: the same tree is the parent array .*$/s, "");
  picker.say(`${sentence}.`, proposal ? { label: "Reorder: the same tree with parents first", accept: () => accept({ kind: "text", text: proposal }) } : undefined);
}
