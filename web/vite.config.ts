import { defineConfig } from "vitest/config";
import { repositoryData } from "./scripts/data.ts";

export default defineConfig({
  base: "./", // the page works under any path
  plugins: [repositoryData()],
  build: { target: "es2022", assetsInlineLimit: 0, modulePreload: { polyfill: false } },
  preview: { host: "127.0.0.1" },
  test: {
    include: ["tests/**/*.test.ts"],
    fileParallelism: false, // two cores, and times are measured
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
