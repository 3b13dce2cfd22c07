/**
 * The processes whose memory `bench sources` compares. Both ways read the same files with the same reader and give 8 ranks the same kind of
 * batches; only the arrangement differs.
 *
 *   worker FOLDER SOURCES INDEX COUNT   one of COUNT loader workers: holds every source open, as a torch DataLoader's worker does
 *   rank FOLDER SOURCES RANK RANKS WORKERS   a rank with its own workers, receiving batches from them
 *   producer FOLDER SOURCES URI RANKS THREADS   ours: one process with all sources
 *   consumer URI RANK RANKS   ours: a rank that reads the log
 *
 * Each says {"ready":true} once it is in steady state, and then idles until it is killed.
 */
import { type ChildProcess, fork } from "node:child_process";
import { closeSync, openSync, readSync, statSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { createNamespace, openNamespace, systemEnv } from "../../src/index.js";
import { definePipeline, OpenPipeline, parquet, tokenize } from "../../src/plan/index.js";
import { parquetPaths } from "./parquet-sources.js";

const [role = "", ...args] = process.argv.slice(2);
const batchSamples = 64;
const seqLength = 4096;

function ready(): void {
  process.stdout.write(`${JSON.stringify({ ready: true, pid: process.pid })}\n`);
  process.send?.({ ready: true });
}

const idle = (): Promise<never> => new Promise(() => setInterval(() => {}, 60_000));

/** A source as a worker of a torch DataLoader holds it: an open file, its footer, and the row group it is in. */
class OpenSource {
  readonly #file: number;
  readonly #size: number;
  readonly #hyparquet: typeof import("hyparquet");
  #footer: Awaited<ReturnType<typeof import("hyparquet")["parquetMetadataAsync"]>> | undefined;
  #rows: Record<string, unknown>[] = [];
  #group = 0;
  #at = 0;

  constructor(path: string, hyparquet: typeof import("hyparquet")) {
    this.#file = openSync(path, "r");
    this.#size = statSync(path).size;
    this.#hyparquet = hyparquet;
  }

  async next(): Promise<string> {
    const buffer = {
      byteLength: this.#size,
      slice: async (start: number, end = this.#size): Promise<ArrayBuffer> => {
        const bytes = new Uint8Array(end - start);
        readSync(this.#file, bytes, 0, bytes.length, start);
        return bytes.buffer;
      },
    };
    this.#footer ??= await this.#hyparquet.parquetMetadataAsync(buffer);
    if (this.#at >= this.#rows.length) {
      const { row_groups } = this.#footer;
      const rows = Number(row_groups[0]?.num_rows);
      const rowStart = (this.#group++ % row_groups.length) * rows;
      this.#rows = await this.#hyparquet.parquetReadObjects({
        file: buffer,
        metadata: this.#footer,
        rowStart,
        rowEnd: rowStart + rows,
      });
      this.#at = 0;
    }
    return this.#rows[this.#at++]?.["text"] as string;
  }

  close(): void {
    closeSync(this.#file);
  }
}

async function worker([folder = "", sources = "0", index = "0", count = "1"]: string[]): Promise<void> {
  const hyparquet = await import("hyparquet");
  const open = parquetPaths(folder, Number(sources)).map((path) => new OpenSource(path, hyparquet));
  // Every source was drawn from at least twice, each worker starting elsewhere, as shuffles do.
  let at = Math.floor((Number(index) * open.length) / Number(count));
  for (let batch = 0; batch * batchSamples < 2 * open.length; batch++) {
    const tokens: Buffer[] = [];
    for (let i = 0; i < batchSamples; i++)
      tokens.push(Buffer.from(await (open[at++ % open.length] as OpenSource).next()));
    process.send?.({ batch: Buffer.concat(tokens).toString("base64") });
    await new Promise((resolve) => setImmediate(resolve));
  }
  ready();
  await idle();
  for (const source of open) source.close();
}

async function rank([folder = "", sources = "0", number = "0", ranks = "1", workers = "1"]: string[]): Promise<void> {
  const script = fileURLToPath(import.meta.url);
  const prefetch: unknown[][] = [];
  const children = Array.from({ length: Number(workers) }, (_, w): ChildProcess => {
    const index = Number(number) * Number(workers) + w;
    return fork(script, ["worker", folder, sources, String(index), String(Number(ranks) * Number(workers))], {
      stdio: ["ignore", "ignore", "inherit", "ipc"],
    });
  });
  process.on("SIGTERM", () => {
    for (const child of children) child.kill("SIGKILL");
    process.exit(0);
  });
  const whenReady = (child: ChildProcess, w: number): Promise<void> =>
    new Promise((resolve) => {
      const held: unknown[] = [];
      prefetch[w] = held;
      child.on("message", (message: { ready?: boolean; batch?: string }) => {
        if (message.ready) return resolve();
        // prefetch_factor 2, torch's default.
        held.push(message.batch);
        if (held.length > 2) held.shift();
      });
    });
  await Promise.all(children.map(whenReady));
  process.stdout.write(
    `${JSON.stringify({ ready: true, pid: process.pid, children: children.map(({ pid }) => pid) })}\n`,
  );
  await idle();
}

async function producer([folder = "", sources = "0", uri = "", ranks = "1", threads = "2"]: string[]): Promise<void> {
  const tokens = tokenize({ tokenizer: { kind: "bytes" } });
  const pipeline = definePipeline({
    namespace: { uri, grid: { rows: Number(ranks), chunks: 1 }, lanes: 1 },
    sources: Object.fromEntries(
      parquetPaths(folder, Number(sources)).map((path, i) => [
        `s${i}`,
        parquet({ shards: path, transforms: [tokens] }),
      ]),
    ),
    strategy: (graph) => graph.balance(),
    construct: { seqLength, microbatches: 2 },
    batch: { samples: 8 * Number(ranks) },
    workers: { threads: Number(threads) },
  });
  // Three rounds over all sources are steady state; from then on at the pace of training, for as long as it is measured.
  const batches = Math.ceil((3 * Number(sources)) / (8 * Number(ranks)));
  const ns = await createNamespace(
    uri,
    { grid: pipeline.spec.namespace.grid, order: "lanes", lanes: 1 },
    { storeSettings: { durability: "process-crash" } },
  );
  await using open = await OpenPipeline.open(pipeline, systemEnv);
  const log = await ns.producer({ id: "lane-0" });
  const planner = open.planner(0, 1);
  for (let made = 1; ; made++) {
    const batch = await planner.next();
    if (!batch) break;
    await log.append(batch.slices, { resumePoint: batch.resumePoint, lineage: batch.lineage });
    if (made === batches) await log.flush().then(ready);
    if (made >= batches) await new Promise((resolve) => setTimeout(resolve, 200));
  }
}

async function consumer([uri = "", number = "0", ranks = "1"]: string[]): Promise<void> {
  const ns = await openNamespace(uri);
  const reader = await ns.consumer({ mesh: { dp: Number(ranks) }, rank: Number(number) });
  let read = 0;
  for await (const share of reader) {
    if (++read === 8) ready();
    // A training step takes its time.
    await new Promise((resolve) => setTimeout(resolve, share.slices.length * 200));
  }
}

const roles: Readonly<Record<string, (args: string[]) => Promise<void>>> = { worker, rank, producer, consumer };
await roles[role]?.(args);
