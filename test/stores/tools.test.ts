/** Whoever waits for a server to be installed is told so at once. Method: obtain tools that install nothing, or whose lock is held, and read stderr. */
import { mkdirSync, rmSync } from "node:fs";
import { afterEach, expect, test, vi } from "vitest";
import { obtain } from "../../harness/tools.js";

const nothing = { program: "none", version: String(process.pid), install: [["true"]], timeoutMs: 1_200 };

afterEach(() => {
  vi.restoreAllMocks();
});

function captureStderr(): { text: () => string } {
  const write = vi.spyOn(process.stderr, "write").mockReturnValue(true);
  return { text: () => write.mock.calls.map(([text]) => String(text)).join("") };
}

test("installing says what, and how long it may take, before it begins", async () => {
  const stderr = captureStderr();
  const tool = await obtain({ ...nothing, name: "absent-tool" });
  expect(tool).toEqual({ skipped: expect.stringContaining("the program is not there") });
  expect(stderr.text()).toMatch(/^Installing absent-tool .*this may take 0\.02 minutes\n$/);
});

test("waiting for another run's install says so once, and names the lock to remove", async () => {
  const stderr = captureStderr();
  const lock = new URL(`../../.cache/stores/held-tool-${process.pid}.lock`, import.meta.url);
  mkdirSync(lock, { recursive: true });
  try {
    const tool = await obtain({ ...nothing, name: "held-tool" });
    expect(tool).toEqual({ skipped: expect.stringContaining("too long") });
  } finally {
    rmSync(lock, { recursive: true });
  }
  expect(stderr.text().match(/Waiting for another run.*remove .*held-tool-\d+\.lock/g)).toHaveLength(1);
});
