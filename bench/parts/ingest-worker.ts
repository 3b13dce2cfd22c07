/** One producer process of the ingest benchmark: writes batches into the log, or the same bytes with the bare store. */

import { answer, workerArgument } from "../../harness/worker-process.js";
import { openNamespace, openStore, type Producer } from "../../src/index.js";
import { cut, makePayloads } from "./payload.js";

/** What a worker is told at its start. */
export interface IngestWorkerSettings {
  readonly number: number;
  readonly logUri: string;
  readonly bareUri: string;
  readonly payloadBytes: number;
  readonly slices: number;
  readonly uploadsInFlight: number;
}

/** One round. `open`: get ready for the log. */
export type IngestQuestion =
  | { readonly kind: "open" }
  | { readonly kind: "log" | "bare"; readonly batches: number; readonly round: number; readonly isSmall?: boolean };

/** What went through the store in a round. */
export interface IngestAnswer {
  readonly bytesSent: number;
  readonly requests: number;
  /** Those of them that clouds charge as writes (put, create, list), and as reads. Deletes cost nothing. */
  readonly writes: number;
  readonly reads: number;
  /** Of this process, for all of the round. */
  readonly cpuSeconds: number;
}

/** Payloads kept per process: many enough that the CPU's caches do not hold them all between two uploads. */
const pooledBytes = 32 * 1024 * 1024;

/**
 * What a producer may hold until it is committed: its default, and some batches however large they are. A commit that goes through the same disk
 * takes a fifth of a second; at 1 GB/s the default is full by then.
 */
const bufferedBytesMin = 256 * 1024 * 1024;
const bufferedBatches = 64;

/** Bytes of a small payload. */
const smallBytes = 20_000;

const settings = workerArgument<IngestWorkerSettings>();
const { payloadBytes, number } = settings;

interface Pool {
  readonly payloads: readonly Uint8Array[];
  readonly batches: readonly Uint8Array[][];
}

function makePool(bytes: number): Pool {
  const payloads = makePayloads(Math.max(2, Math.min(64, Math.ceil(pooledBytes / bytes))), bytes, number + 1);
  return { payloads, batches: payloads.map((payload) => cut(payload, settings.slices)) };
}

const pool = makePool(payloadBytes);
const smallPool = makePool(smallBytes);
const bare = await openStore(settings.bareUri);
const namespace = await openNamespace(settings.logUri);
let producer: Producer | undefined;

type Tally = Omit<IngestAnswer, "cpuSeconds">;

/** The same number of uploads in flight, the same spread over folders as batch objects have, no checksums and no log. */
async function writeBare(count: number, name: string, { payloads }: Pool): Promise<Tally> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) {
      const i = next++;
      const folder = (i % 256).toString(16).padStart(2, "0");
      await bare.put(`batch/${folder}/0/p${number}-${name}-${i}.tgb`, payloads[i % payloads.length] as Uint8Array);
    }
  };
  await Promise.all(Array.from({ length: settings.uploadsInFlight }, lane));
  return { bytesSent: count * payloadBytes, requests: count, writes: count, reads: 0 };
}

/** Until every batch is in the log. */
async function writeLog(count: number, { batches }: Pool): Promise<Tally> {
  const requests = (...ops: readonly string[]): number =>
    ops.reduce((sum, op) => sum + namespace.metrics.value("batchweave_store_requests_total", { op }), 0);
  const tally = (): Tally => ({
    bytesSent: namespace.metrics.value("batchweave_store_sent_bytes_total"),
    requests: namespace.metrics.value("batchweave_store_requests_total"),
    writes: requests("put", "create", "list"),
    reads: requests("get", "getRange"),
  });
  const before = tally();
  const open = producer as Producer;
  for (let i = 0; i < count; i++)
    await open.append(batches[i % batches.length] as Uint8Array[], { resumePoint: { batch: open.nextSeq } });
  await open.flush();
  const after = tally();
  return {
    bytesSent: after.bytesSent - before.bytesSent,
    requests: after.requests - before.requests,
    writes: after.writes - before.writes,
    reads: after.reads - before.reads,
  };
}

answer<IngestQuestion>(async (question): Promise<IngestAnswer> => {
  if (question.kind === "open") {
    producer = await namespace.producer({
      id: `producer-${number}`,
      uploadsInFlightMax: settings.uploadsInFlight,
      bufferedBytesMax: Math.max(bufferedBytesMin, bufferedBatches * payloadBytes),
    });
    return { bytesSent: 0, requests: 0, writes: 0, reads: 0, cpuSeconds: 0 };
  }
  const { batches: count, round, isSmall = false } = question;
  const from = isSmall ? smallPool : pool;
  const begun = process.cpuUsage();
  const tally =
    question.kind === "bare"
      ? await writeBare(count, isSmall ? "small" : String(round), from)
      : await writeLog(count, from);
  const { user, system } = process.cpuUsage(begun);
  return { ...tally, cpuSeconds: (user + system) / 1e6 };
});
