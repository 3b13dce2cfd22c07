/** A run that waits for a server to be installed says so at once. Method: obtain tools that install nothing, or whose lock is held, and read stderr. */
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
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

const cache = fileURLToPath(new URL("../../.cache/stores", import.meta.url));

function lockOf(name: string, holder: number): string {
  mkdirSync(cache, { recursive: true });
  const lock = join(cache, `${name}-${process.pid}.lock`);
  writeFileSync(lock, String(holder));
  return lock;
}

test("waiting for another run's install says so once", async () => {
  const stderr = captureStderr();
  const lock = lockOf("held-tool", process.pid);
  try {
    const tool = await obtain({ ...nothing, name: "held-tool" });
    expect(tool).toEqual({ skipped: expect.stringContaining("too long") });
  } finally {
    rmSync(lock);
  }
  expect(stderr.text().match(/Waiting for another run/g)).toHaveLength(1);
});

test("the lock of a run that was killed is taken away, and nothing is left", async () => {
  const stderr = captureStderr();
  const { pid } = spawnSync("true");
  const lock = lockOf("orphaned-tool", pid);
  const tool = await obtain({ ...nothing, name: "orphaned-tool" });
  expect(tool).toEqual({ skipped: expect.stringContaining("the program is not there") });
  expect(stderr.text()).not.toContain("Waiting");
  expect(existsSync(lock)).toBe(false);
});
