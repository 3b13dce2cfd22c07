/**
 * What one rank reads to get its slice: bytes read per byte wanted, requests per slice, and the time of one share against a bare
 * range read of the same bytes. Two ways: `targeted`, the real consumer; `dense`, what a loader without slice tables would do: the whole
 * batch, then filter. Ranks are logical, each with a handle of its own, and read one after another. A batch has one slice per rank.
 *
 * Bytes and requests count everything a rank does from opening the namespace on: manifests, index, footers, slices. Every share is
 * read when it is asked for, not ahead, and in turn with the bare read, whose place is known beforehand; the file system's cache is warm for both.
 *
 * Two further rows are about processor time, with the defaults, against bare range reads of the same slices, each followed by its checksum:
 * `ahead`, one rank after another, as each has a process of its own; `together`, all ranks at once in this process. All take turns.
 */
import { mapParallel } from "../src/flow/index.js";
import { crc32 } from "../src/format/index.js";
import { createNamespace, type ObjectStore, openNamespace, openStore } from "../src/index.js";
import { inBenchPlace } from "./parts/bench-place.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { makePayloads } from "./parts/payload.js";
import { Report } from "./parts/report.js";
import { median, quantile } from "./parts/statistics.js";

export const summary =
  "slices of ranks against bare range reads and whole batches [--ranks 8,32,128] [--slices 100e3,1e6] [--megabytes 256] [--steps 64] [--store file|s3] [--folder DIR]";

const stepsMin = 4;
/** Whole batches read for one row of `dense`: its amplification does not need more. */
const denseReadsMax = 24;
/** Rounds of processor time, and the reads in flight of the bare reader. */
const cpuRounds = 5;
const bareReadsMax = 16;

interface Place {
  readonly key: string;
  readonly offset: number;
  readonly length: number;
  readonly crc: number;
}

interface Log {
  readonly uri: string;
  readonly ranks: number;
  readonly sliceBytes: number;
  readonly steps: number;
  /** Of each step, of each rank. */
  readonly places: readonly (readonly Place[])[];
}

interface Reading {
  bytesWanted: number;
  bytesRead: number;
  /** While shares were read. */
  requests: number;
  /** Before the first share: finding the head, once a run and rank. */
  openRequests: number;
  slices: number;
  readonly ms: number[];
  readonly bareMs: number[];
  /** The bare read with the checksum that a reader must compute. */
  readonly checkedMs: number[];
}

async function write(
  uri: string,
  ranks: number,
  sliceBytes: number,
  limits: { readonly bytesMax: number; readonly stepsMax: number },
): Promise<Log> {
  const { bytesMax, stepsMax } = limits;
  const steps = Math.min(stepsMax, Math.max(stepsMin, Math.floor(bytesMax / (ranks * sliceBytes))));
  // How durable the objects are makes no difference to reading them.
  const options = { storeSettings: { durability: "process-crash" } } as const;
  const namespace = await createNamespace(uri, { grid: { rows: ranks, chunks: 1 } }, options);
  const payloads = makePayloads(8, sliceBytes, 1);
  const crcs = payloads.map((payload) => crc32(payload));
  const producer = await namespace.producer({ id: "producer" });
  const of = (step: number, rank: number): number => (step * 7 + rank) % payloads.length;
  for (let step = 0; step < steps; step++)
    await producer.append(Array.from({ length: ranks }, (_, rank) => payloads[of(step, rank)] as Uint8Array));
  await producer.close();
  await namespace.endLog();
  const places: Place[][] = [];
  for (let step = 0; step < steps; step++) {
    const { keys, slices } = await namespace.inspect(step);
    places.push(
      Array.from({ length: ranks }, (_, rank) => ({
        key: keys[0] as string,
        offset: slices[rank]?.offset as number,
        length: sliceBytes,
        crc: crcs[of(step, rank)] as number,
      })),
    );
  }
  return { uri, ranks, sliceBytes, steps, places };
}

async function timed<T>(into: number[], call: () => Promise<T>): Promise<T> {
  const begun = performance.now();
  const result = await call();
  into.push(performance.now() - begun);
  return result;
}

function check(bytes: Uint8Array | undefined, place: Place): void {
  if (bytes?.length !== place.length || crc32(bytes) !== place.crc)
    throw new Error(`${place.key} at ${place.offset} did not give the bytes that were written there.`);
}

async function readBareOnce(bare: ObjectStore, place: Place, { bareMs, checkedMs }: Reading): Promise<void> {
  await timed(checkedMs, async () =>
    check(await timed(bareMs, () => bare.getRange(place.key, place.offset, place.length)), place),
  );
}

const newReading = (): Reading => ({
  bytesWanted: 0,
  bytesRead: 0,
  requests: 0,
  openRequests: 0,
  slices: 0,
  ms: [],
  bareMs: [],
  checkedMs: [],
});

/** One rank's whole run through the log with the real consumer; a bare read of the same slice before or after each share. */
async function readTargeted(log: Log, rank: number, reading: Reading): Promise<void> {
  const bare = await openStore(log.uri);
  const namespace = await openNamespace(log.uri);
  const consumer = await namespace.consumer({
    mesh: { dp: log.ranks },
    rank,
    environment: {},
    prefetchIterationsMax: 1,
  });
  // Without reading ahead the next share is begun when the one before is taken: so time both in runs, and let the runs take turns.
  const readBare = async (): Promise<void> => {
    for (const step of log.places) await readBareOnce(bare, step[rank] as Place, reading);
  };
  const opened = namespace.metrics.value("batchweave_store_requests_total");
  if (rank % 2 === 0) await readBare();
  for (const step of log.places) {
    const { value: share } = await timed(reading.ms, () => consumer.next());
    check(share?.slices[0]?.bytes, step[rank] as Place);
  }
  await consumer.return();
  if (rank % 2 === 1) await readBare();
  reading.openRequests += opened;
  reading.requests += namespace.metrics.value("batchweave_store_requests_total") - opened;
  reading.bytesRead += namespace.metrics.value("batchweave_store_received_bytes_total");
  reading.slices += log.steps;
  reading.bytesWanted += log.steps * log.sliceBytes;
}

/** The whole batch, then filter: as few ranks and steps as the limit allows, since every read is alike. */
async function readDense(log: Log, reading: Reading): Promise<void> {
  const bare = await openStore(log.uri);
  const stepsEach = Math.min(log.steps, denseReadsMax);
  const ranks = Math.max(1, Math.floor(denseReadsMax / stepsEach));
  for (let rank = 0; rank < ranks; rank++) {
    const namespace = await openNamespace(log.uri);
    for (const step of log.places.slice(0, stepsEach)) {
      const place = step[rank] as Place;
      const whole = await timed(reading.ms, async () => {
        const bytes = (await bare.get(place.key)) as Uint8Array;
        check(bytes.subarray(place.offset, place.offset + place.length), place);
        return bytes;
      });
      await readBareOnce(bare, place, reading);
      reading.bytesRead += whole.length;
      reading.requests++;
      reading.slices++;
      reading.bytesWanted += place.length;
    }
    reading.requests += namespace.metrics.value("batchweave_store_requests_total");
    reading.bytesRead += namespace.metrics.value("batchweave_store_received_bytes_total");
  }
}

interface Spent {
  readonly cpuSecondsPerGb: number;
  readonly megabytesPerSecond: number;
}

async function spentBy(bytes: number, call: () => Promise<unknown>): Promise<Spent> {
  const cpu = process.cpuUsage();
  const begun = performance.now();
  await call();
  const { user, system } = process.cpuUsage(cpu);
  return {
    cpuSecondsPerGb: (user + system) / bytes / 1e-3,
    megabytesPerSecond: bytes / (performance.now() - begun) / 1e3,
  };
}

/** All ranks' shares, so many ranks at once. */
async function readAhead(log: Log, ranksAtOnce: number): Promise<void> {
  const ranks = Array.from({ length: log.ranks }, (_, rank) => rank);
  await mapParallel(ranks, ranksAtOnce, async (rank) => {
    const namespace = await openNamespace(log.uri);
    let step = 0;
    for await (const share of await namespace.consumer({ mesh: { dp: log.ranks }, rank, environment: {} }))
      if (share.slices[0]?.bytes.length !== log.places[step++]?.[rank]?.length) throw new Error("a share is missing");
  });
}

async function readBareChecked(log: Log): Promise<void> {
  const bare = await openStore(log.uri);
  await mapParallel(log.places.flat(), bareReadsMax, async (place) =>
    check(await bare.getRange(place.key, place.offset, place.length), place),
  );
}

/** The best of each: what other processes take away shows as processor time too, and the first rounds compile. */
async function tellCpu(report: Report, log: Log): Promise<void> {
  const bytes = log.steps * log.ranks * log.sliceBytes;
  const spent: Record<"ahead" | "together" | "bare", Spent[]> = { ahead: [], together: [], bare: [] };
  for (let round = 0; round < cpuRounds; round++) {
    spent.ahead.push(await spentBy(bytes, () => readAhead(log, 1)));
    spent.together.push(await spentBy(bytes, () => readAhead(log, log.ranks)));
    spent.bare.push(await spentBy(bytes, () => readBareChecked(log)));
  }
  const least = (of: readonly Spent[]): number => Math.min(...of.map(({ cpuSecondsPerGb }) => cpuSecondsPerGb));
  for (const mode of ["ahead", "together"] as const)
    report.row({
      mode,
      ranks: log.ranks,
      sliceBytes: log.sliceBytes,
      cpuSecondsPerGb: least(spent[mode]),
      bareCpuSecondsPerGb: least(spent.bare),
      cpuRatio: least(spent[mode]) / least(spent.bare),
      megabytesPerSecond: Math.max(...spent[mode].map(({ megabytesPerSecond }) => megabytesPerSecond)),
    });
}

function tell(report: Report, mode: "targeted" | "dense", log: Log, reading: Reading): void {
  report.row(
    {
      mode,
      ranks: log.ranks,
      sliceBytes: log.sliceBytes,
      amplification: reading.bytesRead / reading.bytesWanted,
      requestsPerSlice: reading.requests / reading.slices,
      p50Ratio: median(reading.ms) / median(reading.bareMs),
      p50CheckedRatio: median(reading.ms) / median(reading.checkedMs),
      p95Ratio: quantile(reading.ms, 0.95) / quantile(reading.bareMs, 0.95),
    },
    {
      openRequests: reading.openRequests / log.ranks,
      p50Ms: median(reading.ms),
      bareP50Ms: median(reading.bareMs),
    },
  );
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["ranks", "slices", "megabytes", "steps", "folder", "store"]);
  const report = new Report("read", options.json);
  const limits = { bytesMax: number(options.megabytes, 256) * 1e6, stepsMax: number(options.steps, 64) };
  for (const sliceBytes of numbers(options.slices, [100_000, 1_000_000]))
    for (const ranks of numbers(options.ranks, [8, 32, 128]))
      await inBenchPlace(options.store, options.folder, async (place) => {
        const log = await write(place.uri("log"), ranks, sliceBytes, limits);
        const targeted = newReading();
        for (let rank = 0; rank < ranks; rank++) await readTargeted(log, rank, targeted);
        tell(report, "targeted", log, targeted);
        const dense = newReading();
        await readDense(log, dense);
        tell(report, "dense", log, dense);
        await tellCpu(report, log);
      });
  report.end();
}
