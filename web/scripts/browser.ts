// The built page in Debian's Chromium: shared by the tests and the screenshots.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { chromium, type BrowserContext, type BrowserContextOptions, type Page } from "playwright-core";
import { preview, type PreviewServer } from "vite";
import { root } from "./data.ts";

const executablePath = process.env.CHROMIUM ?? "/usr/bin/chromium";

export async function serve(): Promise<{ address: string; server: PreviewServer }> {
  if (!existsSync(join(root, "web/dist/index.html"))) throw new Error("web/dist is missing: run `make page`");
  const server = await preview({ root: join(root, "web"), logLevel: "silent", preview: { port: 0, host: "127.0.0.1" } });
  const address = server.httpServer.address();
  if (!address || typeof address === "string") throw new Error("the preview server has no port");
  return { address: `http://127.0.0.1:${address.port}/`, server };
}

export class Browser {
  private readonly profiles: string[] = [];
  private readonly contexts: BrowserContext[] = [];

  // A page in a browser of its own with a new profile. Errors of the page are collected in `errors`.
  async open(options: BrowserContextOptions): Promise<{ page: Page; errors: string[] }> {
    const profile = mkdtempSync(join(tmpdir(), "canopy-page-"));
    this.profiles.push(profile);
    const context = await chromium.launchPersistentContext(profile, {
      executablePath, headless: true, args: ["--no-sandbox", "--disable-gpu", "--disable-background-networking"], ...options,
    });
    this.contexts.push(context);
    const page = context.pages()[0] ?? (await context.newPage());
    const errors: string[] = [];
    page.on("pageerror", (error) => errors.push(error.message));
    page.on("console", (message) => message.type() === "error" && errors.push(message.text()));
    return { page, errors };
  }

  async close(): Promise<void> {
    for (const context of this.contexts) await context.close();
    for (const profile of this.profiles) rmSync(profile, { recursive: true, force: true });
  }
}

export async function ready(page: Page): Promise<void> {
  await page.waitForSelector("html[data-ready=yes]");
  await page.waitForSelector("#solve:not([aria-busy])");
}
