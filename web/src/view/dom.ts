// Elements without a framework. Text always goes in as text; SVG strings are made of numbers and classes only.

type Child = Node | string | null | undefined | false;
type Attributes = Record<string, string | number | boolean | ((event: Event) => void) | undefined>;

export function h<K extends keyof HTMLElementTagNameMap>(tag: K, attributes: Attributes = {}, ...children: Child[]): HTMLElementTagNameMap[K] {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (typeof value === "function") element.addEventListener(name, value);
    else if (typeof value === "boolean") element.toggleAttribute(name, value);
    else if (value !== undefined) element.setAttribute(name, String(value));
  }
  for (const child of children) if (child) element.append(child);
  return element;
}

export function byId<T extends HTMLElement = HTMLElement>(id: string): T {
  const element = document.getElementById(id);
  if (!element) throw new Error(`the page has no #${id}`);
  return element as T;
}

export interface Table {
  caption: string;
  head: string[];
  rows: (string | number)[][]; // the first column names the row
}

export function table(content: Table): HTMLElement {
  const head = h("tr", {}, ...content.head.map((text) => h("th", { scope: "col" }, text)));
  const body = content.rows.map((row) =>
    h("tr", {}, ...row.map((cell, c) => (c === 0 ? h("th", { scope: "row" }, String(cell)) : h("td", {}, String(cell))))),
  );
  return h("div", { class: "scroll", tabindex: 0, role: "region", "aria-label": content.caption },
    h("table", {}, h("caption", {}, content.caption), h("thead", {}, head), h("tbody", {}, ...body)));
}

// A chart's text alternative, built only when it is opened.
export function tableBelow(make: () => Table): HTMLElement {
  const box = h("div");
  const details = h("details", { class: "table" }, h("summary", {}, "As a table"), box);
  details.addEventListener("toggle", () => {
    if (details.open && !box.firstChild) box.append(table(make()));
  });
  return details;
}

// Fills a table that stands in the page inside <details>, now if it is open, otherwise when it is opened.
export function fillWhenOpen(box: HTMLElement, make: () => Table): void {
  const details = box.closest("details");
  const fill = () => box.replaceChildren(table(make()));
  if (!details || details.open) return fill();
  box.replaceChildren();
  details.ontoggle = () => {
    if (details.open) fill();
  };
}

export interface Choice {
  value: string;
  label: string;
}

// A row of choices of which one holds: radio buttons, so that arrow keys and screen readers work.
export function segments(name: string, legend: string, choices: Choice[], chosen: string, change: (value: string) => void): HTMLElement {
  const set = h("fieldset", { class: "segments" }, h("legend", {}, legend));
  for (const { value, label } of choices) {
    const input = h("input", { type: "radio", name, value, id: `${name}-${value}`, change: () => change(value) });
    input.checked = value === chosen;
    set.append(input, h("label", { for: input.id }, label));
  }
  return set;
}

export function select(id: string, label: string, choices: Choice[], chosen: string, change: (value: string) => void): HTMLElement {
  const list = h("select", { id, change: () => change(list.value) }, ...choices.map((c) => h("option", { value: c.value }, c.label)));
  list.value = chosen;
  return h("div", { class: "field" }, h("label", { for: id }, label), list);
}

export const stillness = () => matchMedia("(prefers-reduced-motion: reduce)").matches;

// Calls back with the inner width whenever it changes, and once at the start.
export function onWidth(element: HTMLElement, draw: (width: number) => void): void {
  let last = 0;
  new ResizeObserver(([entry]) => {
    const width = Math.floor(entry.contentRect.width);
    if (width > 0 && width !== last) draw((last = width));
  }).observe(element);
}
