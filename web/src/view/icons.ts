// Icons as paths, so that they look the same with every font.

const kIcons = {
  start: "M5 5v14M19 5 9 12l10 7z",
  back: "M15 5 7 12l8 7",
  play: "M8 5v14l11-7z",
  pause: "M8 5v14M16 5v14",
  forward: "M9 5l8 7-8 7",
  auto: "M12 4a8 8 0 1 0 0 16 8 8 0 0 0 0-16zM12 5v14M15 6v12M18 8.5v7",
  light: "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5",
  dark: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
} as const;
export type IconName = keyof typeof kIcons;

export function icon(name: IconName): SVGSVGElement {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg"), path = document.createElementNS("http://www.w3.org/2000/svg", "path");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", `icon ${name}`);
  svg.setAttribute("aria-hidden", "true");
  path.setAttribute("d", kIcons[name]);
  svg.append(path);
  return svg;
}
