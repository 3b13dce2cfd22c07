/**
 * Property: Python's metrics, spans and Prometheus endpoint are what python/tests/test_metrics.py says, and none of its tests is skipped.
 * Method: that file, with OpenTelemetry's SDK in a folder of its own (skipped, with the reason, where it cannot be installed).
 */
import { spawnSync } from "node:child_process";
import { join } from "node:path";
import { expect, test } from "vitest";
import { obtain, opentelemetry } from "../../harness/tools.js";
import { root } from "../source-tree.js";

test("ranks, producers, stores, loaders and commands of Python are heard", async (context) => {
  const tool = await obtain(opentelemetry);
  if ("skipped" in tool) context.skip(`no OpenTelemetry for Python: ${tool.skipped}`);
  const { path } = tool as { path: string };
  const ended = spawnSync(path, ["-m", "unittest", "test_metrics"], {
    cwd: join(root, "python/tests"),
    env: { ...process.env, PYTHONPATH: join(root, "python") },
    encoding: "utf8",
  });
  expect(ended.stderr).toMatch(/^OK$/m);
}, 600_000);
