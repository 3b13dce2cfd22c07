/**
 * A producer in ten lines. Kill it and run it again: it goes on behind its last published batch, and every batch is published once.
 *
 *   node dist/examples/write.js file:///tmp/batchweave-example
 */
import { createNamespace, openNamespace } from "batchweave";

const uri = process.argv[2] ?? "file:///tmp/batchweave-example";
const grid = { rows: 4, chunks: 2 };

/** Stands for your own preprocessing: 32 batches, from the position behind the last one that was published. */
async function* tokenize({ after }: { after: unknown }): AsyncGenerator<{ slices: Uint8Array[]; position: number }> {
  for (let batch = (after as number | undefined) ?? 0; batch < 32; batch++) {
    const text = (cell: number): string => `batch ${batch}, row ${Math.floor(cell / 2)}, chunk ${cell % 2}`;
    const slices = Array.from({ length: grid.rows * grid.chunks }, (_, cell) => new TextEncoder().encode(text(cell)));
    yield { slices, position: batch + 1 };
  }
}

// A run that came to its end has ended the log: nothing can be appended, so there is nothing to do.
const earlier = await openNamespace(uri).catch(() => undefined);
if ((await earlier?.info())?.closed) {
  console.log(`all batches are in ${uri} already`);
  process.exit();
}

// #region readme
const ns = await createNamespace(uri, { grid: { rows: 4, chunks: 2 } }); // opens it when it is there
await using producer = await ns.producer({ id: "tokenizer-0" }); // a stable id; a newer holder fences this one
for await (const batch of tokenize({ after: producer.resumePoint })) {
  await producer.append(batch.slices, { resumePoint: batch.position }); // accepted; leave its bytes alone until flushed
}
await producer.flush(); // now all of it is in the log
// #endregion
await ns.endLog();
console.log(`${producer.nextSeq} batches are in ${uri}`);
