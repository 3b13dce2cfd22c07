/**
 * A training rank in ten lines. Any mesh reads any log: try `1 3`, a third data-parallel size, on what `write.ts` wrote.
 *
 *   node dist/examples/read.js file:///tmp/batchweave-example RANK DP
 */
import { existsSync, readFileSync, writeFileSync } from "node:fs";
import { type Cursor, openNamespace, type Slice } from "batchweave";

const [uri = "file:///tmp/batchweave-example", rank = "0", dp = "2", file] = process.argv.slice(2);
const saved = file && existsSync(file) ? (JSON.parse(readFileSync(file, "utf8")) as Cursor) : undefined;
const mesh = { dp: Number(dp), cp: 2 };

/** Stands for your own training step and the checkpoint of your framework. */
async function trainStep(slices: readonly Slice[]): Promise<void> {
  for (const { bytes } of slices) console.log(new TextDecoder().decode(bytes));
}
async function save(cursor: Cursor): Promise<void> {
  if (file) writeFileSync(file, JSON.stringify(cursor));
}

// #region readme
const ns = await openNamespace(uri);
await using consumer = await ns.consumer({ mesh, rank: Number(rank), from: saved ?? "earliest" });
for await (const share of consumer) {
  await trainStep(share.slices); // exactly this rank's rows and chunks, checked
  if (share.iteration % 10 !== 9) continue; // the same iteration on every rank
  await save(share.next); // small JSON, valid on any mesh
  await consumer.checkpoint(`iter-${share.iteration + 1}`, share.next); // keeps the data from here on
}
// #endregion
