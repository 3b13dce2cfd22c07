import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // Several tests start real processes; two workers keep a small machine from timing them out.
    maxWorkers: 2,
    // Catches a test that hangs. A busy machine takes ten times as long as an idle one, and no test proves anything by being quick.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 240_000 } },
  },
});
