// The page as pictures: scripts/screenshots.ts FOLDER. Desktop and phone, light and dark; the README's first screen.
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { Browser, ready, serve } from "./browser.ts";
import { root } from "./data.ts";

const folder = process.argv[2] ?? "out/page";
const readme = join(root, "docs"); // the first screen, as the README shows it
mkdirSync(folder, { recursive: true });
const { address, server } = await serve();
const browser = new Browser();
try {
  for (const [name, width, height] of [["desktop", 1280, 860], ["phone", 360, 780]] as const)
    for (const colorScheme of ["light", "dark"] as const) {
      const { page, errors } = await browser.open({ viewport: { width, height }, colorScheme, deviceScaleFactor: 2, reducedMotion: "reduce" });
      await page.goto(address);
      await ready(page);
      await page.locator("#tree-view svg").focus();
      for (const key of ["End", "ArrowUp"]) await page.keyboard.press(key);
      await page.evaluate(() => (document.activeElement as HTMLElement).blur());
      await page.evaluate(() => scrollTo(0, 0));
      await page.screenshot({ path: join(folder, `${name}-${colorScheme}.png`) });
      if (name === "desktop") await page.screenshot({ path: join(readme, `page-${colorScheme}.png`), scale: "css" });
      for (const section of ["mask", "solve", "memory", "latency", "crossover", "accuracy", "published"])
        await page.locator(`#${section}`).screenshot({ path: join(folder, `${name}-${colorScheme}-${section}.png`) });
      await page.locator("#explode").click();
      await ready(page);
      for (let i = 0; i < 20; ++i) await page.getByRole("button", { name: "Step forward" }).click();
      await page.locator("#solve").screenshot({ path: join(folder, `${name}-${colorScheme}-explode.png`) });
      await page.locator("#tree").screenshot({ path: join(folder, `${name}-${colorScheme}-chain.png`) });
      if (errors.length) throw new Error(errors.join("\n"));
    }
} finally {
  await browser.close();
  await server.close();
}
