// What papers report, always as other hardware against another baseline: never on one scale with the measurements above.
import type { Published } from "../data/records.ts";
import { barChart } from "./chart.ts";
import { byId, h, onWidth, tableBelow } from "./dom.ts";
import { microseconds, times } from "./format.ts";

const ratio = (p: Published) => (p.speedUp[0] === p.speedUp[1] ? times(p.speedUp[0]) : `${p.speedUp[0]} to ${p.speedUp[1]}×`);

export class PublishedView {
  constructor(private readonly published: Published[]) {
    onWidth(byId("published"), (width) => this.draw(width));
  }

  private draw(width: number): void {
    const panels = byId("published").querySelector<HTMLElement>(".panels")!;
    const timed = this.published.filter((p) => p.serialUs !== null && p.medianUs !== null), ranged = this.published.filter((p) => p.medianUs === null);
    const gpus = [...new Set(timed.map((p) => p.gpu))];
    const columns = width < 720 ? 1 : 2, inner = Math.floor((width - 28 * (columns - 1)) / columns);
    const figures = gpus.map((gpu) => {
      const own = timed.filter((p) => p.gpu === gpu), box = h("div", { class: "chart" });
      box.innerHTML = barChart(`${own[0].work} on ${gpu}`, inner, own.map((p) => ({
        name: `${p.batch === 1 ? "one sequence" : `${p.batch} sequences`}, ${ratio(p)}`,
        bars: [{ name: p.baseline, value: p.serialUs!, text: microseconds(p.serialUs!), role: "bark" }, { name: p.work, value: p.medianUs!, text: microseconds(p.medianUs!), role: "ink" }],
      })));
      return h("figure", {}, h("figcaption", { class: "above" }, `${own[0].work} on ${gpu} `, h("span", { class: "tag" }, "other hardware")), box);
    });
    const others = h("ul", { class: "plain" }, ...ranged.map((p) => h("li", {}, h("strong", {}, `${p.work}: ${ratio(p)}`), ` of ${p.baseline} on ${p.gpu} `, h("span", { class: "tag" }, "other hardware"), h("br"), p.what)));
    panels.replaceChildren(h("p", {}, "Another GPU, another baseline, another way to measure: these show the size of the effect and compare with nothing above."),
      h("div", { class: `small-multiples columns-${columns}` }, ...figures), others,
      tableBelow(() => ({
        caption: "As the papers report it: other hardware, other baselines",
        head: ["Work", "arXiv", "GPU", "What", "B", "Baseline", "Baseline time", "Its time", "Speed-up"],
        rows: this.published.map((p) => [p.work, p.arxiv, p.gpu, p.what, p.batch ?? "", p.baseline, p.serialUs ? microseconds(p.serialUs) : "", p.medianUs ? microseconds(p.medianUs) : "", ratio(p)]),
      })));
  }
}
