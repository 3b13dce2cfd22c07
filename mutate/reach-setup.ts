/** Runs inside every test file of a reach run (reach.ts): which lines of the product did this file's tests execute? V8 counts; source maps lead back to our lines. */
import { mkdirSync, writeFileSync } from "node:fs";
import { Session } from "node:inspector/promises";
import { SourceMap } from "node:module";
import { join, relative } from "node:path";
import { afterAll, expect } from "vitest";

const root = process.cwd();
const session = new Session();
session.connect();
await session.post("Profiler.enable");
await session.post("Profiler.startPreciseCoverage", { callCount: true, detailed: true });
const begun = performance.now();

interface Range {
  readonly startOffset: number;
  readonly endOffset: number;
  readonly count: number;
}

/** Lines that have something that ran; `ranges` go from the outside to the inside. */
function ranLines(text: string, ranges: readonly Range[]): number[] {
  const found = /sourceMappingURL=data:application\/json;[^,]*base64,([\w+/=]+)/.exec(text);
  if (!found) return [];
  const payload = JSON.parse(Buffer.from(found[1] as string, "base64").toString());
  const map = new SourceMap(payload);
  const lines = new Set<number>();
  let lineStart = 0;
  for (const [i, line] of text.split("\n").entries()) {
    for (const { index } of line.matchAll(/\S+/g)) {
      const entry = map.findEntry(i, index);
      if (!("originalLine" in entry)) continue;
      const at = lineStart + index;
      const inner = ranges.findLast(({ startOffset, endOffset }) => startOffset <= at && at < endOffset);
      if (inner && inner.count > 0) lines.add(entry.originalLine + 1);
    }
    lineStart += line.length + 1;
  }
  return [...lines].sort((a, b) => a - b);
}

afterAll(async () => {
  const folder = join(root, ".reach");
  const { result } = await session.post("Profiler.takePreciseCoverage");
  await session.post("Debugger.enable");
  const lines: Record<string, number[]> = {};
  for (const { scriptId, url, functions } of result) {
    const file = relative(root, url.replace(/^file:\/\//, ""));
    if (!file.startsWith("src/")) continue;
    const { scriptSource } = await session.post("Debugger.getScriptSource", { scriptId });
    // Functions come from the outside to the inside, and so do the blocks of each.
    const ranges = functions.flatMap((f) => f.ranges);
    lines[file] = ranLines(scriptSource, ranges);
  }
  session.disconnect();
  const path = relative(root, expect.getState().testPath as string);
  mkdirSync(folder, { recursive: true });
  const report = { path, ms: Math.round(performance.now() - begun), lines };
  writeFileSync(join(folder, `${path.replaceAll("/", "+")}.json`), JSON.stringify(report));
});
