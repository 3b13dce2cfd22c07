/**
 * `npm run fuzz -- --minutes N [--seed S]`: fuzzes every decoder for so long and prints what it found as JSON lines; ends with 1 if it found anything.
 * `npm run fuzz -- --store N` writes the first cases of N seeds, with what TypeScript makes of them, to test/fuzz/corpus.jsonl: both
 * languages run those in their tests.
 */
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { parseArgs } from "node:util";
import { root } from "../source-tree.js";
import { fuzzOnce } from "./fuzzer.js";

const { values } = parseArgs({
  options: { minutes: { type: "string" }, seed: { type: "string" }, store: { type: "string" } },
});
const first = Number(values.seed ?? 1);
/** Segments are large and much alike: those few bytes of a case are kept. */
const storedBytesMax = 2_500;
const stored: string[] = [];
const untilMs = performance.now() + Number(values.minutes ?? 1) * 60_000;
let [seed, found] = [first, 0];
const isOver = (): boolean =>
  values.store === undefined ? performance.now() >= untilMs : seed >= first + Number(values.store);
for (; !isOver(); seed++) {
  const findings = await fuzzOnce(seed, (given, expect) => {
    const line = JSON.stringify({ ...given, name: `seed ${seed}: ${given.name}`, expect });
    if (line.length < storedBytesMax) stored.push(line);
  });
  found += findings.length;
  for (const finding of findings) process.stdout.write(`${JSON.stringify(finding)}\n`);
}
if (values.store !== undefined) writeFileSync(join(root, "test/fuzz/corpus.jsonl"), `${stored.join("\n")}\n`);
process.stderr.write(`${seed - first} seeds of 13 decoders, ${found} findings\n`);
process.exitCode = found > 0 ? 1 : 0;
