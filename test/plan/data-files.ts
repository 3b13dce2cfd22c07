/** Small data sets of every format, made on the spot, for tests of `plan`. */
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import { onTestFinished } from "vitest";

/** A folder that goes away with the test. */
export function dataFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "batchweave-plan-"));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Lines `{"id":n,"text":…}`, `counts[i]` of them in shard i. Returns the number of all. */
export function writeJsonl(
  folder: string,
  name: string,
  counts: readonly number[],
  options: { gzip?: boolean } = {},
): number {
  let id = 0;
  counts.forEach((count, shard) => {
    const lines = Array.from({ length: count }, () => {
      const n = id++;
      return JSON.stringify({ id: n, text: `sample ${n} of ${name} ${"x".repeat((n * 7919) % 97)}` });
    });
    const text = lines.map((line) => `${line}\n`).join("");
    const path = join(folder, `${name}-${String(shard).padStart(3, "0")}.jsonl${options.gzip ? ".gz" : ""}`);
    writeFileSync(path, options.gzip ? gzipSync(text) : text);
  });
  return id;
}

/** A WebDataset archive made by the system's own tar. */
export function writeTar(folder: string, name: string, count: number, longNames = false): void {
  const inner = join(folder, `${name}-files`);
  mkdirSync(inner);
  const files: string[] = [];
  for (let i = 0; i < count; i++) {
    const key = `${longNames ? "a-rather-long-folder-name/".repeat(6) : ""}sample-${String(i).padStart(4, "0")}`;
    mkdirSync(join(inner, key, ".."), { recursive: true });
    writeFileSync(join(inner, `${key}.json`), JSON.stringify({ id: i }));
    writeFileSync(join(inner, `${key}.seg.txt`), `text ${i}`.repeat(i % 50));
    files.push(`${key}.json`, `${key}.seg.txt`);
  }
  const args = [longNames ? "--format=pax" : "--format=gnu", "-cf", join(folder, `${name}.tar`), "-C", inner, ...files];
  execFileSync("tar", args);
}

/** A Megatron pair with uint16 tokens: sequence n holds n, n+1, … */
export function writeMegatron(folder: string, name: string, lengths: readonly number[]): void {
  const n = lengths.length;
  const idx = Buffer.alloc(34 + 4 * n + 8 * n + 8 * (n + 1));
  idx.write("MMIDIDX\0\0", 0, "latin1");
  idx.writeBigUInt64LE(1n, 9);
  idx.writeUInt8(8, 17);
  idx.writeBigUInt64LE(BigInt(n), 18);
  idx.writeBigUInt64LE(BigInt(n + 1), 26);
  const bin = Buffer.alloc(2 * lengths.reduce((a, b) => a + b, 0));
  let at = 0;
  lengths.forEach((length, i) => {
    idx.writeInt32LE(length, 34 + 4 * i);
    idx.writeBigInt64LE(BigInt(at), 34 + 4 * n + 8 * i);
    idx.writeBigInt64LE(BigInt(i), 34 + 12 * n + 8 * i);
    for (let t = 0; t < length; t++, at += 2) bin.writeUInt16LE((i + t) % 65_536, at);
  });
  idx.writeBigInt64LE(BigInt(n), 34 + 12 * n + 8 * n);
  writeFileSync(join(folder, `${name}.idx`), idx);
  writeFileSync(join(folder, `${name}.bin`), bin);
}

/** A Parquet file with the columns `id` and `text`, in small row groups. */
export async function writeParquet(
  folder: string,
  name: string,
  count: number,
  first = 0,
  rowGroupSize = 50,
): Promise<void> {
  const { parquetWriteBuffer } = await import("hyparquet-writer");
  const ids = Array.from({ length: count }, (_, i) => first + i);
  const bytes = parquetWriteBuffer({
    columnData: [
      { name: "id", data: ids, type: "INT32" },
      { name: "text", data: ids.map((i) => `row ${i} ${"y".repeat(i % 60)}`), type: "STRING" },
    ],
    rowGroupSize,
  });
  writeFileSync(join(folder, `${name}.parquet`), new Uint8Array(bytes));
}
