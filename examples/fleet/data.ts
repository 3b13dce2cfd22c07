/** Makes the example's data, once: six sources of text, some with long documents and some with short ones. Decided by a seed. */
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { SeededRandom } from "batchweave/plan";

/** Where the data is made. */
export const dataFolder: URL = new URL("./data/", import.meta.url);

const words = "a loader reads a constructor plans a rank trains and the log between them forgets nothing".split(" ");

/** Source: shards, documents in each, words of a typical one. */
export const sources: Readonly<Record<string, readonly [shards: number, documents: number, typical: number]>> = {
  web: [6, 500, 60],
  code: [4, 400, 90],
  forum: [4, 500, 25],
  papers: [3, 120, 300],
  math: [3, 300, 40],
  books: [2, 80, 500],
};

function shard(name: string, index: number, documents: number, typical: number): string {
  const random = new SeededRandom(name, index);
  const length = (): number => Math.max(2, Math.min(2_000, Math.round(typical * Math.exp(0.8 * random.normal()))));
  const text = (): string => Array.from({ length: length() }, () => words[random.below(words.length)]).join(" ");
  return Array.from({ length: documents }, () => `${JSON.stringify({ text: text() })}\n`).join("");
}

/** Makes the data unless it is there. Whole or not at all: processes may start together. */
export function makeData(): void {
  if (existsSync(dataFolder)) return;
  const draft = new URL(`./data-${process.pid}/`, import.meta.url);
  mkdirSync(draft);
  for (const [name, [shards, documents, typical]] of Object.entries(sources))
    for (let i = 0; i < shards; i++)
      writeFileSync(new URL(`${name}-${i}.jsonl`, draft), shard(name, i, documents, typical));
  try {
    renameSync(draft, dataFolder);
  } catch (error) {
    // Another process was faster, with the same data.
    rmSync(draft, { recursive: true });
    if (!existsSync(dataFolder)) throw error;
  }
}
