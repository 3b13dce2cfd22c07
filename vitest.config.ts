import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["test/**/*.test.ts"],
    // Many tests wait for processes or clocks; more workers than a small machine has cores use that time, and no test is judged by its speed.
    maxWorkers: 3,
    // Catches a test that hangs. A busy machine takes ten times as long as an idle one, and no test proves anything by being quick.
    testTimeout: 300_000,
    hookTimeout: 300_000,
    expect: { poll: { timeout: 240_000 } },
  },
});
