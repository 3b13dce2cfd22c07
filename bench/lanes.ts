/**
 * Bytes read per byte of a source, by the number of lanes, each lane in a process of its own: what dividing a source among machines costs. Real
 * files of every format, one epoch, read to the end; the bytes are counted where shards are read. Parquet is written without a page index, as
 * pyarrow does by default.
 */
import { execFile, execFileSync } from "node:child_process";
import { mkdirSync, readdirSync, rmSync, statSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { gzipSync } from "node:zlib";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { SeededRandom } from "../src/plan/index.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";

export const summary: string = "bytes of sources read per byte, by lanes in as many processes";

const script = fileURLToPath(new URL("./parts/lane-process.js", import.meta.url));
const formats = ["jsonl", "jsonl.gz", "parquet", "webdataset", "megatron"] as const;
type Format = (typeof formats)[number];

/** Texts of skewed lengths, about `chars` long on average. */
function textsOf(count: number, chars: number, seed: string): string[] {
  const random = new SeededRandom(seed);
  return Array.from({ length: count }, () => {
    const length = Math.max(8, Math.round(chars * Math.exp(0.8 * random.normal() - 0.32)));
    return Array.from({ length: Math.ceil(length / 8) }, () => random.uint32().toString(36)).join(" ");
  });
}

function writeTar(folder: string, name: string, texts: readonly string[]): void {
  const inner = join(folder, `${name}-files`);
  mkdirSync(inner);
  const files = texts.map((text, i) => {
    writeFileSync(join(inner, `${i}.txt`), text);
    return `${i}.txt`;
  });
  execFileSync("tar", ["--format=gnu", "-cf", join(folder, `${name}.tar`), "-C", inner, ...files]);
  rmSync(inner, { recursive: true });
}

/** A Megatron pair of int32 tokens. */
function writeMegatron(prefix: string, lengths: readonly number[]): void {
  const n = lengths.length;
  const idx = Buffer.alloc(34 + 20 * n + 8);
  idx.write("MMIDIDX\0\0", 0, "latin1");
  idx.writeBigUInt64LE(1n, 9);
  idx.writeUInt8(4, 17);
  idx.writeBigUInt64LE(BigInt(n), 18);
  idx.writeBigUInt64LE(BigInt(n + 1), 26);
  let at = 0;
  lengths.forEach((length, i) => {
    idx.writeInt32LE(length, 34 + 4 * i);
    idx.writeBigInt64LE(BigInt(at), 34 + 4 * n + 8 * i);
    at += 4 * length;
  });
  writeFileSync(`${prefix}.idx`, idx);
  writeFileSync(`${prefix}.bin`, Buffer.alloc(at, 1));
}

async function writeShards(format: Format, folder: string, shards: number, samples: number): Promise<void> {
  for (let shard = 0; shard < shards; shard++) {
    const texts = textsOf(samples, 1000, `${format} ${shard}`);
    const name = join(folder, `shard-${String(shard).padStart(3, "0")}`);
    const lines = (): string => texts.map((text) => `${JSON.stringify({ text })}\n`).join("");
    if (format === "jsonl") writeFileSync(`${name}.jsonl`, lines());
    else if (format === "jsonl.gz") writeFileSync(`${name}.jsonl.gz`, gzipSync(lines()));
    else if (format === "webdataset") writeTar(folder, `shard-${shard}`, texts);
    else if (format === "megatron")
      writeMegatron(
        name,
        texts.map((text) => text.length >> 2),
      );
    else {
      const { parquetWriteBuffer } = await import("hyparquet-writer");
      const bytes = parquetWriteBuffer({
        columnData: [{ name: "text", data: texts, type: "STRING", offsetIndex: false }],
        rowGroupSize: Math.ceil(samples / 16),
      });
      writeFileSync(`${name}.parquet`, new Uint8Array(bytes));
    }
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["lanes", "shards", "samples", "formats", "dir"]);
  const report = new Report("lanes", options.json);
  const [shards, samples] = [number(options.shards, 8), number(options.samples, 1500)];
  const wanted = (options.formats?.split(",") ?? formats) as readonly Format[];
  await inScratchFolder(options.dir, async (scratch) => {
    for (const format of wanted) {
      const folder = join(scratch, format);
      mkdirSync(folder);
      await writeShards(format, folder, shards, samples);
      const bytes = readdirSync(folder).reduce((sum, name) => sum + statSync(join(folder, name)).size, 0);
      for (const lanes of numbers(options.lanes, [1, 4, 8])) {
        const uri = pathToFileURL(join(scratch, `log-${format}-${lanes}`)).href;
        const results = await Promise.all(
          Array.from({ length: lanes }, async (_, lane) => {
            const { stdout } = await promisify(execFile)(process.execPath, [
              script,
              folder,
              format,
              String(lanes),
              String(lane),
              uri,
            ]);
            return JSON.parse(stdout) as { readBytes: number; samples: number };
          }),
        );
        const sum = (pick: (one: (typeof results)[number]) => number): number =>
          results.map(pick).reduce((a, b) => a + b, 0);
        const each = results.map((one) => one.samples);
        report.row(
          { format, shards, lanes, sourceBytes: bytes, readPerByte: sum((one) => one.readBytes) / bytes },
          {
            samples: sum((one) => one.samples),
            mostOverMean: (Math.max(...each) * lanes) / (sum((one) => one.samples) || 1),
          },
        );
      }
    }
  });
  report.end();
}
