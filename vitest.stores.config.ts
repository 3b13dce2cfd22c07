import { defineConfig } from "vitest/config";

/** `make test-stores`: every server there is, one after another, so that they do not time each other out. */
export default defineConfig({
  test: {
    include: [
      "test/store/memory.test.ts",
      "test/store/file.test.ts",
      "test/stores/*.test.ts",
      "test/stores/*.stores.ts",
    ],
    maxWorkers: 1,
    testTimeout: 60_000,
    hookTimeout: 60_000,
  },
});
