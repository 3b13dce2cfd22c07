/**
 * A producer of packed token batches: makes text, tokenizes it byte by byte, packs documents into rows of a fixed length and publishes them.
 * Kill it and run it again: it goes on with the very next document, and every document is in the log once.
 *
 *   node dist/examples/train-gpt/produce.js URI ID BATCHES [BATCHES_PER_SECOND]
 */
import { setTimeout as sleep } from "node:timers/promises";
import { encodeSafetensors, openNamespace } from "batchweave";

const [uri = "", id = "tokenizer-0", batches = "10", rate = "0"] = process.argv.slice(2);
const tokensPerRow = 64;
/** Bytes are tokens 0 to 255. */
const endOfText = 256;
/** Where this producer stands: the next document, and the tokens of the last one that did not fit any more. */
interface Position {
  readonly batch: number;
  readonly document: number;
  readonly left: readonly number[];
  readonly leftDocument: number;
}

/** Text that a small model can learn, the same for the same number. */
function makeText(number: number): string {
  const pick = <T>(list: readonly T[], salt: number): T =>
    list[(number * 2_654_435_761 + salt * 40_503) % list.length] as T;
  const who = pick(["the miller", "a sailor", "the queen", "my neighbour", "an old fox", "the clockmaker"], 1);
  const what = pick(["counted", "forgot", "painted", "sold", "found", "sang about"], 2);
  const whom = pick(["seven apples", "the moon", "a broken lamp", "the river", "two letters", "a red door"], 3);
  const when = pick(["before dawn", "in the rain", "every winter", "at the fair", "without a word"], 4);
  return `${who} ${what} ${whom} ${when}, and that was story ${number}.`;
}

/** One row: as many documents as fit, the last one cut; what is left of it begins the next row. */
function packRow(
  position: Position,
  first: number,
  stride: number,
): { tokens: number[]; documents: number[]; next: Position } {
  const tokens = [...position.left];
  const documents = tokens.length > 0 ? [position.leftDocument] : [];
  let { document } = position;
  while (tokens.length <= tokensPerRow) {
    const number = first + document * stride;
    tokens.push(...Buffer.from(makeText(number)), endOfText);
    documents.push(number);
    document++;
  }
  // Labels are the tokens one place further on, so a row takes one more than it feeds.
  const left = tokens.slice(tokensPerRow);
  const next = { ...position, document, left, leftDocument: documents.at(-1) as number };
  return { tokens: tokens.slice(0, tokensPerRow + 1), documents, next };
}

const ns = await openNamespace(uri);
await using producer = await ns.producer({ id });
// Documents are divided by producer, so no two tokenize the same one.
const [lane, lanes] = [Number(/\d+$/.exec(id)?.[0] ?? 0), 2];
let position = (producer.resumePoint ?? { batch: 0, document: 0, left: [], leftDocument: -1 }) as Position;
while (position.batch < Number(batches)) {
  const slices: Uint8Array[] = [];
  const lineage = [];
  for (let row = 0; row < ns.grid.rows; row++) {
    const packed = packRow(position, lane, lanes);
    position = packed.next;
    const documents = BigInt64Array.from({ length: 8 }, (_, i) => BigInt(packed.documents[i] ?? -1));
    slices.push(
      encodeSafetensors({
        input_ids: { dtype: "I32", shape: [tokensPerRow], data: Int32Array.from(packed.tokens.slice(0, -1)) },
        labels: { dtype: "I32", shape: [tokensPerRow], data: Int32Array.from(packed.tokens.slice(1)) },
        sample_ids: { dtype: "I64", shape: [8], data: documents },
      }),
    );
    for (const document of packed.documents) lineage.push({ source: "stories", id: String(document), tokens: 1, row });
  }
  position = { ...position, batch: position.batch + 1 };
  await producer.append(slices, { resumePoint: position, contentType: "application/vnd.safetensors", lineage });
  if (Number(rate) > 0) await sleep(1_000 / Number(rate));
}
await producer.flush();
console.log(`${id}: ${position.batch} batches, ${position.document} documents`);
