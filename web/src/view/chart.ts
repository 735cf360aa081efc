// Line and bar charts as SVG text: logarithmic scales, direct labels, no legend to decode.

export interface Line {
  name: string;
  role: string; // class of line, points and label: which colour
  points: [number, number][]; // values; infinite ones leave the chart at the top
  label?: boolean;
}

export interface LineChart {
  title: string;
  width: number;
  height: number;
  lines: Line[];
  x: { label: string; log: boolean; range: [number, number]; ticks: number[] };
  y: { label: string; range: [number, number]; ticks: [number, string][] };
  marks?: { x?: number; y?: number; text: string }[]; // reference lines
  dots: boolean;
}

const escape = (text: string) => text.replace(/[&<>"]/g, (c) => ({ "&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;" })[c]!);
const f = (n: number) => n.toFixed(1);

export function lineChart(chart: LineChart): string {
  const { width, height, lines, x, y } = chart;
  const labels = lines.filter((line) => line.label !== false && line.points.length > 0);
  const right = labels.length ? Math.min(width * 0.3, 12 + 6.6 * Math.max(...labels.map((line) => line.name.length))) : 20;
  const left = 12 + 7 * Math.max(3, ...y.ticks.map(([, text]) => [...text].length)), top = 26, bottom = 38;
  const to = (value: number, [least, most]: [number, number], log: boolean) =>
    most === least ? 0.5 : log ? Math.log(value / least) / Math.log(most / least) : (value - least) / (most - least);
  const px = (value: number) => left + to(value, x.range, x.log) * (width - left - right);
  const py = (value: number) => {
    const share = to(Math.max(value, y.range[0]), y.range, true);
    return top + (1 - Math.min(1.04, share)) * (height - top - bottom);
  };
  const parts: string[] = [];
  for (const [value, text] of y.ticks)
    parts.push(`<path class="grid" d="M${left} ${f(py(value))}H${width - right}"/><text class="tick" x="${left - 8}" y="${f(py(value) + 4)}" text-anchor="end">${text}</text>`);
  for (const value of x.ticks) parts.push(`<text class="tick" x="${f(px(value))}" y="${height - bottom + 18}" text-anchor="middle">${value}</text>`);
  parts.push(`<path class="axis" d="M${left} ${height - bottom}H${width - right}"/>`);
  parts.push(`<text class="axis-name" x="${width - right}" y="${height - 4}" text-anchor="end">${escape(x.label)}</text><text class="axis-name" x="0" y="12">${escape(y.label)}</text>`);
  for (const mark of chart.marks ?? []) {
    if (mark.x !== undefined) parts.push(`<path class="mark" d="M${f(px(mark.x))} ${top}V${height - bottom}"/>`);
    if (mark.y !== undefined) {
      const place = clearest(mark.text.length * 6.4, left + 4, width - right, py(mark.y), lines.map((line) => line.points.map(([vx, vy]) => [px(vx), py(vy)])));
      parts.push(`<path class="mark" d="M${left} ${f(py(mark.y))}H${width - right}"/><text class="mark-name" x="${f(place.x)}" y="${f(place.y)}">${escape(mark.text)}</text>`);
    }
  }
  // Labels beside the last points, pushed apart.
  const ends = labels.map((line) => ({ line, y: py(line.points[line.points.length - 1][1]) })).sort((a, b) => a.y - b.y);
  for (let i = 1; i < ends.length; ++i) ends[i].y = Math.max(ends[i].y, ends[i - 1].y + 15);
  const over = ends.length ? ends[ends.length - 1].y - (height - bottom) : 0;
  if (over > 0) for (const end of ends) end.y -= over;
  for (const line of lines) {
    const shown = line.points.map(([vx, vy]) => `${f(px(vx))} ${f(py(vy))}`);
    parts.push(`<path class="line ${line.role}" d="M${shown.join("L")}"/>`);
    if (chart.dots)
      for (const [vx, vy] of line.points) parts.push(`<circle class="dot ${line.role}" cx="${f(px(vx))}" cy="${f(py(vy))}" r="3"/>`);
  }
  for (const { line, y: at } of ends) {
    const [vx] = line.points[line.points.length - 1];
    parts.push(`<text class="name ${line.role}" x="${f(px(vx) + 8)}" y="${f(at + 4)}">${escape(line.name)}</text>`);
  }
  return svg(chart.title, width, height, parts.join(""));
}

// Where along a horizontal line its label is farthest from the curves, above it or below.
function clearest(wide: number, left: number, right: number, y: number, curves: number[][][]): { x: number; y: number } {
  const places = [0, 0.25, 0.5, 0.75, 1].map((share) => left + share * Math.max(0, right - wide - left)).flatMap((x) => [y - 6, y + 15].map((baseline) => ({ x, y: baseline })));
  const clearance = ({ x, y: baseline }: { x: number; y: number }) => {
    let least = Infinity;
    for (const curve of curves)
      for (let i = 1; i < curve.length; ++i)
        for (let t = 0; t <= 1; t += 0.05) {
          const cx = curve[i - 1][0] + t * (curve[i][0] - curve[i - 1][0]), cy = curve[i - 1][1] + t * (curve[i][1] - curve[i - 1][1]);
          const away = Math.max(0, x - cx, cx - x - wide);
          least = Math.min(least, Math.hypot(away, cy - (baseline - 4)));
        }
    return least;
  };
  return places.reduce((best, place) => (clearance(place) > clearance(best) + 1 ? place : best));
}

export function svg(title: string, width: number, height: number, inside: string): string {
  return `<svg role="img" aria-label="${escape(title)}" width="${width}" height="${height}" viewBox="0 0 ${width} ${height}">${inside}</svg>`;
}

export interface Bar {
  name: string;
  value: number;
  text: string;
  role: string;
}

// Horizontal bars on one linear scale from zero: lengths may be compared.
export function barChart(title: string, width: number, groups: { name: string; bars: Bar[] }[]): string {
  const narrow = width < 520, nameWidth = narrow ? 0 : 150, thick = 22, gap = narrow ? 24 : 10;
  const parts: string[] = [];
  let y = 0;
  for (const group of groups) {
    const most = Math.max(...group.bars.map((bar) => bar.value)) || 1;
    parts.push(`<text class="group" x="0" y="${y + 14}">${escape(group.name)}</text>`);
    y += 26;
    for (const bar of group.bars) {
      const room = width - nameWidth - 90, length = Math.max((bar.value / most) * room, bar.value > 0 ? 1.5 : 0);
      if (narrow) parts.push(`<text class="bar-name" x="0" y="${y + 12}">${escape(bar.name)}</text>`), (y += 18);
      else parts.push(`<text class="bar-name" x="${nameWidth - 12}" y="${y + 16}" text-anchor="end">${escape(bar.name)}</text>`);
      parts.push(bar.value > 0 ? `<rect class="bar ${bar.role}" x="${nameWidth}" y="${y}" width="${f(length)}" height="${thick}" rx="2"/>` : `<path class="zero" d="M${nameWidth + 0.5} ${y}v${thick}"/>`);
      parts.push(`<text class="bar-value" x="${f(nameWidth + length + 8)}" y="${y + 16}">${escape(bar.text)}</text>`);
      y += thick + gap - (narrow ? 14 : 0);
    }
    y += 18;
  }
  return svg(title, width, y, parts.join(""));
}

// Powers of ten between two values, at most about `most` of them.
export function decades(least: number, most: number, count: number): number[] {
  const from = Math.ceil(Math.log10(least) - 1e-9), to = Math.floor(Math.log10(most) + 1e-9);
  const step = Math.max(1, Math.ceil((to - from + 1) / count));
  const ticks: number[] = [];
  for (let e = from; e <= to; e += step) ticks.push(e);
  return ticks;
}
