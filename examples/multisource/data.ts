/**
 * Makes the example's data, once: text in four formats and captioned images, with lengths as skewed as real ones (most samples are short, most
 * tokens are in long ones). Decided by a seed, so every machine makes the same.
 */
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { gzipSync } from "node:zlib";
import { SeededRandom } from "batchweave/plan";

/** Where the data is made. */
export const dataFolder: URL = new URL("./data/", import.meta.url);

const words = "the weave of a batch holds every thread once and no thread twice whoever drops the shuttle".split(" ");

/** Text of a length that is log-normal: `typical` words, now and then fifty times as many. */
function text(random: SeededRandom, typical: number): string {
  const count = Math.max(2, Math.min(600, Math.round(typical * Math.exp(0.9 * random.normal()))));
  return Array.from({ length: count }, () => words[random.below(words.length)]).join(" ");
}

function jsonLines(name: string, shard: number, count: number, typical: number): string {
  const random = new SeededRandom(name, shard);
  return Array.from({ length: count }, () => `${JSON.stringify({ text: text(random, typical) })}\n`).join("");
}

/** One file of a tar archive. */
function tarEntry(name: string, data: Uint8Array): Uint8Array[] {
  const header = Buffer.alloc(512);
  header.write(name, 0);
  header.write("0000644\0", 100);
  header.write("0000000\0", 108);
  header.write("0000000\0", 116);
  header.write(`${data.length.toString(8).padStart(11, "0")}\0`, 124);
  header.write("00000000000\0", 136);
  header.write("        ", 148);
  header.write("0", 156);
  header.write("ustar\0", 257);
  header.write("00", 263);
  const sum = header.reduce((a, b) => a + b, 0);
  header.write(`${sum.toString(8).padStart(6, "0")}\0 `, 148);
  return [header, data, Buffer.alloc((512 - (data.length % 512)) % 512)];
}

/** Pictures of very different sizes, each a smooth colour field. */
async function captionedImages(shard: number, count: number): Promise<Uint8Array> {
  const { default: sharp } = await import("sharp");
  const random = new SeededRandom("vlm", shard);
  const parts: Uint8Array[] = [];
  for (let i = 0; i < count; i++) {
    const side = (): number => 32 + Math.min(480, Math.round(48 * Math.exp(0.8 * random.normal())));
    const [width, height] = [side(), side()];
    const background = { r: random.below(256), g: random.below(256), b: random.below(256) };
    const jpeg = await sharp({ create: { width, height, channels: 3, background } })
      .jpeg()
      .toBuffer();
    const key = `${shard}-${String(i).padStart(5, "0")}`;
    parts.push(...tarEntry(`${key}.jpg`, jpeg), ...tarEntry(`${key}.txt`, Buffer.from(text(random, 6))));
  }
  return Buffer.concat([...parts, Buffer.alloc(1024)]);
}

/** Documents that were tokenized before (one token per byte), as Megatron keeps them. */
function megatronPair(count: number): { readonly idx: Uint8Array; readonly bin: Uint8Array } {
  const random = new SeededRandom("books");
  const documents = Array.from({ length: count }, () => Buffer.from(text(random, 120)));
  const idx = Buffer.alloc(34 + 12 * count + 8 * (count + 1));
  idx.write("MMIDIDX\0\0", 0, "latin1");
  idx.writeBigUInt64LE(1n, 9);
  idx.writeUInt8(8, 17);
  idx.writeBigUInt64LE(BigInt(count), 18);
  idx.writeBigUInt64LE(BigInt(count + 1), 26);
  const bin = Buffer.alloc(2 * documents.reduce((sum, d) => sum + d.length, 0));
  let at = 0;
  documents.forEach((document, i) => {
    idx.writeInt32LE(document.length, 34 + 4 * i);
    idx.writeBigInt64LE(BigInt(at), 34 + 4 * count + 8 * i);
    idx.writeBigInt64LE(BigInt(i), 34 + 12 * count + 8 * i);
    for (const byte of document) at = bin.writeUInt16LE(byte, at);
  });
  idx.writeBigInt64LE(BigInt(count), 34 + 20 * count);
  return { idx, bin };
}

/** Makes the data unless it is there. Safe to call from several processes: it appears whole or not at all. */
export async function makeData(): Promise<void> {
  if (existsSync(dataFolder)) return;
  const draft = new URL(`./data-${process.pid}/`, import.meta.url);
  mkdirSync(draft, { recursive: true });
  const put = (name: string, bytes: string | Uint8Array): void => writeFileSync(new URL(name, draft), bytes);
  for (let shard = 0; shard < 4; shard++) put(`web-${shard}.jsonl.gz`, gzipSync(jsonLines("web", shard, 700, 14)));
  for (let shard = 0; shard < 3; shard++) put(`code-${shard}.jsonl`, jsonLines("code", shard, 600, 20));
  const { parquetWriteBuffer } = await import("hyparquet-writer");
  for (let shard = 0; shard < 2; shard++) {
    const random = new SeededRandom("math", shard);
    const data = Array.from({ length: 600 }, () => text(random, 10));
    put(
      `math-${shard}.parquet`,
      new Uint8Array(parquetWriteBuffer({ columnData: [{ name: "text", data, type: "STRING" }], rowGroupSize: 200 })),
    );
  }
  const { idx, bin } = megatronPair(700);
  put("books.idx", idx);
  put("books.bin", bin);
  for (let shard = 0; shard < 2; shard++) put(`vlm-${shard}.tar`, await captionedImages(shard, 400));
  try {
    renameSync(draft, dataFolder);
  } catch {
    // Another process was first; its data are the same.
    rmSync(draft, { recursive: true, force: true });
  }
}
