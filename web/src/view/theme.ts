// Light, dark, or as the system has it.
import { icon, type IconName } from "./icons.ts";

const kNext: Record<string, string> = { auto: "light", light: "dark", dark: "auto" };

export function watchTheme(changed: () => void): void {
  const button = document.getElementById("theme") as HTMLButtonElement, root = document.documentElement;
  const show = () => {
    const now = root.dataset.theme ?? "auto";
    button.replaceChildren(icon(now as IconName));
    button.setAttribute("aria-label", `Colours: ${now === "auto" ? "as the system" : now}. Change to ${kNext[now] === "auto" ? "the system's" : kNext[now]}`);
    button.title = button.getAttribute("aria-label")!;
  };
  button.addEventListener("click", () => {
    const next = kNext[root.dataset.theme ?? "auto"];
    if (next === "auto") delete root.dataset.theme;
    else root.dataset.theme = next;
    try {
      if (next === "auto") localStorage.removeItem("theme");
      else localStorage.setItem("theme", next);
    } catch {
      // not remembered, then
    }
    show();
    changed();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", changed);
  show();
}
