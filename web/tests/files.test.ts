// What is in the repository: no download address in the lock file, deployment files as the owner's host needs them.
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, it } from "vitest";
import { root } from "../scripts/data.ts";

const read = (path: string) => readFileSync(join(root, path), "utf8");

describe("the lock file", () => {
  const lock = JSON.parse(read("web/package-lock.json")) as { packages: Record<string, { resolved?: string; integrity?: string; version?: string }> };
  it("names no download address, and pins every package", () => {
    for (const [name, entry] of Object.entries(lock.packages)) {
      expect(entry.resolved, name).toBeUndefined();
      if (name !== "") expect(entry.integrity, name).toMatch(/^sha512-/);
    }
    expect(read("web/package-lock.json") + read("web/.npmrc") + read("web/package.json")).not.toMatch(/regis[t]ry\.|\.tgz/);
  });
});

describe("the deployment", () => {
  it("builds without what the legacy builder lacks", () => {
    const file = read("deploy/Dockerfile");
    expect(file).not.toMatch(/--chmod|--mount|<<|^# ?syntax|--link/m);
    expect(file.match(/^FROM .*$/gm)).toEqual([expect.stringContaining(" AS build"), "FROM nginx:alpine"]);
  });

  it("publishes no port and joins the proxy's network as canopy", () => {
    const file = read("deploy/compose.yml");
    expect(file).not.toMatch(/^\s*ports:/m);
    expect(file).toMatch(/edge:\n\s+aliases: \[canopy\]/);
    expect(file).toMatch(/networks:\n {2}edge:\n {4}external: true/);
  });

  it("only ever appends to the proxy's file", () => {
    const steps = read("deploy/README.md");
    expect(steps).toContain("cat >> CADDYFILE");
    expect(steps).toContain("caddy validate");
    expect(steps.indexOf("caddy validate")).toBeLessThan(steps.indexOf("caddy reload"));
  });
});
