/**
 * How much of the bare store's speed is left when batches go into the log: real producer processes on a local folder, or on MinIO with
 * `--store s3`, against the same processes that write the same bytes with the bare store. Same concurrency, same durability, no checksums in the
 * baseline; rounds of the two alternate, and the ratio is the median over the pairs. A round ends when every batch is committed.
 *
 * A payload is one whole batch, of 8 slices (grid 8x1).
 */

import { WorkerProcess } from "../harness/worker-process.js";
import { createNamespace } from "../src/index.js";
import { type BenchPlace, inBenchPlace } from "./parts/bench-place.js";
import type { IngestAnswer, IngestQuestion, IngestWorkerSettings } from "./parts/ingest-worker.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { median } from "./parts/statistics.js";

export const summary =
  "producer processes against the bare store [--payloads 100e3,1e6,10e6] [--producers 1,4] [--rounds 4] [--seconds 6] [--warm yes|no] [--store file|s3] [--folder DIR]";

const slices = 8;
const uploadsInFlight = 8;
/** Bytes of one round at most. A folder is emptied after each round; a server's disk holds all rounds of a cell. */
const roundBytesMax = { file: 12e9, s3: 4.5e9 };
/**
 * Batches of each producer before anything is measured: code that runs for days is not to be measured while it is being compiled. Small ones first,
 * which take no time, then some as they will be.
 */
const smallWarmBatches = 4_000;
/** Of all producers together: at so many they take a minute. */
const allSmallWarmBatches = 64_000;
const warmBatches = { file: 1_000, s3: 500 };
/** Of all producers together. A server on the same cores takes minutes for what a folder takes in seconds. */
const warmBytesMax = { file: 32e9, s3: 2e9 };

interface Cell {
  readonly payloadBytes: number;
  readonly producers: number;
  readonly rounds: number;
  readonly seconds: number;
  readonly isWarm: boolean;
}

interface Round extends IngestAnswer {
  readonly seconds: number;
}

class Crew {
  readonly #workers: WorkerProcess[];

  constructor(workers: WorkerProcess[]) {
    this.#workers = workers;
  }

  static start(cell: Cell, place: BenchPlace, name: string): Crew {
    const url = new URL(`./parts/ingest-worker.${import.meta.url.endsWith(".ts") ? "ts" : "js"}`, import.meta.url);
    return new Crew(
      Array.from({ length: cell.producers }, (_, i) => {
        const settings: IngestWorkerSettings = {
          number: i,
          logUri: place.uri(`${name}/log`),
          bareUri: place.uri(`${name}/bare`),
          payloadBytes: cell.payloadBytes,
          slices,
          uploadsInFlight,
        };
        return new WorkerProcess(url, settings);
      }),
    );
  }

  /** From the moment all are told to begin until the last one is done. */
  async all(question: IngestQuestion): Promise<Round> {
    const begun = performance.now();
    const answers = await Promise.all(this.#workers.map((worker) => worker.ask<IngestAnswer>(question)));
    const sum = (of: keyof IngestAnswer): number => answers.reduce((all, answer) => all + answer[of], 0);
    return {
      seconds: (performance.now() - begun) / 1_000,
      bytesSent: sum("bytesSent"),
      requests: sum("requests"),
      writes: sum("writes"),
      reads: sum("reads"),
      cpuSeconds: sum("cpuSeconds"),
    };
  }

  async stop(): Promise<void> {
    await Promise.all(this.#workers.map((worker) => worker.stop()));
  }
}

/** How many batches of each producer fill a round: each try is sized by the one before, and the first ones also make the folders. */
async function roundBatches(cell: Cell, place: BenchPlace, crew: Crew): Promise<number> {
  const { producers, payloadBytes } = cell;
  let batches = 4 * uploadsInFlight;
  let fastest = 0;
  for (let i = 0; i < 3; i++) {
    const { seconds } = await crew.all({ kind: "bare", batches, round: 0 });
    const most = roundBytesMax[place.kind] / payloadBytes / producers;
    // By the fastest: a disk that was busy for a moment must not make the rounds so short that their end is all one sees.
    fastest = Math.max(fastest, batches / seconds);
    batches = Math.max(uploadsInFlight, Math.ceil(Math.min(most, fastest * cell.seconds)));
  }
  return batches;
}

async function warmUp(cell: Cell, place: BenchPlace, crew: Crew, kind: "bare" | "log"): Promise<void> {
  const { payloadBytes, producers } = cell;
  const small = Math.min(smallWarmBatches, Math.ceil(allSmallWarmBatches / producers));
  await crew.all({ kind, batches: small, round: 0, isSmall: true });
  let left = Math.min(warmBatches[place.kind], Math.ceil(warmBytesMax[place.kind] / payloadBytes / producers));
  const most = Math.ceil(roundBytesMax[place.kind] / payloadBytes / producers);
  for (; left > 0; left -= most) {
    await crew.all({ kind, batches: Math.min(left, most), round: 0 });
    await place.empty(nameOf(cell));
  }
}

function nameOf({ payloadBytes, producers }: Cell): string {
  return `${payloadBytes}-${producers}`;
}

async function measure(cell: Cell, place: BenchPlace, report: Report): Promise<void> {
  const { payloadBytes, producers } = cell;
  const name = nameOf(cell);
  await createNamespace(place.uri(`${name}/log`), { grid: { rows: slices, chunks: 1 } });
  const crew = Crew.start(cell, place, name);
  try {
    await crew.all({ kind: "open" });
    const batches = await roundBatches(cell, place, crew);
    const payload = batches * producers * payloadBytes;
    const bare: number[] = [];
    const log: number[] = [];
    const sent: number[] = [];
    const requests: number[] = [];
    const writes: number[] = [];
    const reads: number[] = [];
    const cpu = { bare: [] as number[], log: [] as number[] };
    if (cell.isWarm) for (const kind of ["bare", "log"] as const) await warmUp(cell, place, crew, kind);
    for (let round = 1; round <= cell.rounds; round++) {
      // Whoever comes second finds the disk's burst spent: so they take turns in that too.
      for (const kind of round % 2 === 1 ? (["bare", "log"] as const) : (["log", "bare"] as const)) {
        const done = await crew.all({ kind, batches, round });
        await place.empty(name);
        const { seconds, bytesSent } = done;
        (kind === "log" ? log : bare).push(payload / 1e6 / seconds);
        cpu[kind].push(done.cpuSeconds / (payload / 1e9));
        if (kind !== "log") continue;
        sent.push(bytesSent / payload);
        requests.push(done.requests / batches / producers);
        writes.push(done.writes / batches / producers);
        reads.push(done.reads / batches / producers);
      }
      const speeds = `bare ${bare.at(-1)?.toFixed(0)} log ${log.at(-1)?.toFixed(0)} MB/s`;
      report.note(`  ${payloadBytes} B x ${batches} x ${producers}: ${speeds}`);
    }
    report.row(
      {
        payloadBytes,
        producers,
        mbPerS: median(log),
        bareMbPerS: median(bare),
        ratio: median(log.map((speed, i) => speed / (bare[i] as number))),
        bytesPerByte: median(sent),
      },
      // One PUT per batch; what is above one is commits and looks at the chain, shared by all batches that one commit carries.
      // CPU is that of the producers, without the server's.
      {
        requestsPerBatch: median(requests),
        writesPerBatch: median(writes),
        readsPerBatch: median(reads),
        cpuSPerGb: median(cpu.log),
        bareCpuSPerGb: median(cpu.bare),
      },
    );
  } finally {
    await crew.stop();
  }
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["payloads", "producers", "rounds", "seconds", "warm", "folder", "store"]);
  const report = new Report("ingest", options.json);
  await inBenchPlace(options.store, options.folder, async (place) => {
    for (const payloadBytes of numbers(options.payloads, [100_000, 1_000_000, 10_000_000]))
      for (const producers of numbers(options.producers, [1, 4])) {
        const cell = {
          payloadBytes,
          producers,
          rounds: number(options.rounds, 4),
          seconds: number(options.seconds, 6),
          // Without, only what is counted means something.
          isWarm: options.warm !== "no",
        };
        await measure(cell, place, report);
        // Of a folder only names are left, and deleting those would slow the next cell.
        if (place.kind === "s3") await place.sweep(nameOf(cell), "");
      }
  });
  report.end();
}
