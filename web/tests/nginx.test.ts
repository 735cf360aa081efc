// deploy/nginx.conf served by Debian's nginx: MIME types, compression, caching, headers, 404; and the page runs under them.
import { execFileSync, spawn, type ChildProcess } from "node:child_process";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request, type IncomingHttpHeaders } from "node:http";
import { createServer, type AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gunzipSync } from "node:zlib";
import { afterAll, beforeAll, describe, expect, it } from "vitest";
import { Browser, ready } from "../scripts/browser.ts";
import { root } from "../scripts/data.ts";

const dist = join(root, "web/dist");
const unpacked = join(root, "build-nginx");
const installed = ["/usr/sbin/nginx", "/usr/local/sbin/nginx"].find(existsSync);
const program = installed ?? join(unpacked, "usr/sbin/nginx");
const mimeTypes = installed && existsSync("/etc/nginx/mime.types") ? "/etc/nginx/mime.types" : join(unpacked, "etc/nginx/mime.types");

let folder: string, port: number, nginx: ChildProcess;
const asset = (ending: string) => `/assets/${readdirSync(join(dist, "assets")).find((name) => name.endsWith(ending))}`;

function freePort(): Promise<number> {
  return new Promise((resolve) => {
    const server = createServer().listen(0, "127.0.0.1", () => {
      const { port: free } = server.address() as AddressInfo;
      server.close(() => resolve(free));
    });
  });
}

interface Answer {
  status: number;
  headers: IncomingHttpHeaders;
  body: Buffer;
}
function get(path: string, headers: Record<string, string> = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    request({ host: "127.0.0.1", port, path, headers }, (answer) => {
      const parts: Buffer[] = [];
      answer.on("data", (part: Buffer) => parts.push(part)).on("end", () => resolve({ status: answer.statusCode!, headers: answer.headers, body: Buffer.concat(parts) }));
    }).on("error", reject).end();
  });
}

beforeAll(async () => {
  if (!existsSync(program)) throw new Error("nginx is missing: run scripts/setup.sh page-test");
  folder = mkdtempSync(join(tmpdir(), "canopy-nginx-"));
  mkdirSync(join(folder, "logs"));
  port = await freePort();
  // The file as it is, but for where the page lies and the port.
  const site = readFileSync(join(root, "deploy/nginx.conf"), "utf8").replace("/usr/share/nginx/html", dist).replace("listen 8080;", `listen 127.0.0.1:${port};`);
  writeFileSync(join(folder, "site.conf"), site);
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"].map((kind) => `${kind}_temp_path ${folder}/${kind};`).join(" ");
  const user = process.getuid?.() === 0 ? "user root;" : "";
  writeFileSync(join(folder, "nginx.conf"), `${user} daemon off; pid ${folder}/pid; error_log ${folder}/error.log; events {} http { access_log off; ${temporary} include ${mimeTypes}; default_type application/octet-stream; include ${folder}/site.conf; }`);
  execFileSync(program, ["-t", "-q", "-p", folder, "-e", join(folder, "error.log"), "-c", join(folder, "nginx.conf")], { stdio: "pipe" });
  nginx = spawn(program, ["-p", folder, "-e", join(folder, "error.log"), "-c", join(folder, "nginx.conf")], { stdio: "ignore" });
  for (let tries = 0; ; ++tries) {
    try {
      await get("/");
      return;
    } catch (error) {
      if (tries > 100) throw error;
      await new Promise((resolve) => setTimeout(resolve, 50));
    }
  }
});
afterAll(async () => {
  if (nginx) {
    const gone = new Promise((resolve) => nginx.once("exit", resolve));
    nginx.kill("SIGTERM");
    await gone;
  }
  if (folder) rmSync(folder, { recursive: true, force: true });
});

describe("nginx", () => {
  it.each([
    ["/", /^text\/html; charset=utf-8$/],
    ["/icon.svg", /^image\/svg\+xml/],
    ["/theme.js", /^(application|text)\/javascript/],
    [() => asset(".css"), /^text\/css/],
    [() => asset(".js"), /^(application|text)\/javascript/],
    [() => asset(".wasm"), /^application\/wasm$/],
    [() => asset(".json"), /^application\/json/],
  ])("gives %s its type, compressed, the same bytes", async (where, type) => {
    const path = typeof where === "string" ? where : where();
    const plain = await get(path), packed = await get(path, { "Accept-Encoding": "gzip" });
    expect(plain.status).toBe(200);
    expect(plain.headers["content-type"]).toMatch(type);
    expect(packed.headers["content-type"]).toMatch(type);
    expect(plain.headers["content-encoding"]).toBeUndefined();
    if (plain.body.length < 512) return;
    expect(packed.headers["content-encoding"]).toBe("gzip");
    expect(packed.headers.vary).toContain("Accept-Encoding");
    expect(packed.body.length).toBeLessThan(plain.body.length);
    expect(gunzipSync(packed.body).equals(plain.body)).toBe(true);
  });

  it("compresses behind a proxy too", async () => {
    expect((await get(asset(".wasm"), { "Accept-Encoding": "gzip", Via: "1.1 proxy" })).headers["content-encoding"]).toBe("gzip");
  });

  it("lets hashed assets be kept for ever, the page be asked for again, and nothing else be kept", async () => {
    for (const ending of [".css", ".js", ".wasm", ".json"]) expect((await get(asset(ending))).headers["cache-control"], ending).toBe("public, max-age=31536000, immutable");
    const page = await get("/");
    expect(page.headers["cache-control"]).toBe("no-cache");
    expect((await get("/theme.js")).headers["cache-control"]).toBe("no-cache");
    expect((await get("/", { "If-None-Match": page.headers.etag! })).status).toBe(304);
    expect((await get("/assets/gone-12345678.js")).headers["cache-control"]).toBe("no-store");
  });

  it.each(["/nothing", "/assets/nothing.js", "/.env", "/.git/config", "/assets/../../etc/passwd", "/tree/"])("has no %s", async (path) => {
    const answer = await get(path);
    expect([400, 404]).toContain(answer.status);
    expect(answer.body.toString()).not.toContain("root:");
  });

  it("says 404 in plain words", async () => {
    const answer = await get("/nothing");
    expect(answer.status).toBe(404);
    expect(answer.headers["content-type"]).toMatch(/^text\/plain/);
    expect(answer.body.toString()).toBe("404: there is no such page here.\n");
  });

  it.each(["/", "/nothing", "/assets/nothing.js", () => asset(".js")])("sends the security headers with %s", async (where) => {
    const { headers } = await get(typeof where === "string" ? where : where());
    expect(headers["content-security-policy"]).toContain("default-src 'none'");
    expect(headers["content-security-policy"]).not.toMatch(/'unsafe-(inline|eval)'/);
    expect(headers).toMatchObject({
      "x-content-type-options": "nosniff", "x-frame-options": "DENY", "referrer-policy": "no-referrer",
      "cross-origin-opener-policy": "same-origin", "cross-origin-resource-policy": "same-origin",
    });
    expect(headers["permissions-policy"]).toContain("camera=()");
    expect(headers.server).toBe("nginx"); // no version
  });

  it("asks for no other host, and runs the page under these headers", async () => {
    const browser = new Browser();
    try {
      const { page, errors } = await browser.open({ viewport: { width: 1280, height: 860 } });
      const hosts = new Set<string>();
      page.on("request", (sent) => hosts.add(new URL(sent.url()).host));
      await page.goto(`http://127.0.0.1:${port}/?tree=chain&nodes=64`);
      await ready(page);
      await page.locator("#explode").click();
      await page.waitForTimeout(100);
      await ready(page);
      expect(await page.locator("#solve-table tbody tr").count()).toBe(3);
      expect(await page.locator("#crossover .square").count()).toBeGreaterThan(20);
      expect(errors).toEqual([]); // a refusal by the policy is one
      expect([...hosts]).toEqual([`127.0.0.1:${port}`]);
    } finally {
      await browser.close();
    }
  });
});
