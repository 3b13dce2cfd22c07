/** A process of the reclaim-cost benchmark: it writes, reads, or keeps a namespace as rank 0 of a job does, with or without reclaiming. */
import { makeCursor, openNamespace, openStore, type Producer, type ReclaimReport } from "../../src/index.js";
import { cut, makePayloads } from "./payload.js";
import { answer, workerArgument } from "./worker-process.js";

/** What a process is told at its start. */
export interface ReclaimCostSettings {
  readonly payloadBytes: number;
  readonly slices: number;
  readonly inFlight: number;
}

/** What a process is asked to do. */
export type ReclaimCostQuestion =
  | { readonly kind: "write" | "bare-write"; readonly uri: string; readonly batches: number }
  /** The last `batches` of the log, again and again until the time is over. */
  | { readonly kind: "read" | "bare-read"; readonly uri: string; readonly batches: number; readonly seconds: number }
  /** Until `rest`: a checkpoint now and then, `keptBatches` behind the end at last; and perhaps reclaims. */
  | {
      readonly kind: "keep";
      readonly uri: string;
      readonly intervalMs: number;
      readonly reclaim: boolean;
      readonly keptBatches: number;
    }
  | { readonly kind: "rest" };

/** What was done, in which time; and what was deleted meanwhile. */
export interface ReclaimCostAnswer {
  readonly batches: number;
  readonly seconds: number;
  readonly deleted: number;
  readonly reclaims: number;
}

const settings = workerArgument<ReclaimCostSettings>();
const payloads = makePayloads(32, settings.payloadBytes, 1);
const batches = payloads.map((payload) => cut(payload, settings.slices));
const producers = new Map<string, Promise<Producer>>();
let keeping: { stop: AbortController; done: Promise<{ deleted: number; reclaims: number }> } | undefined;

async function write(uri: string, count: number): Promise<void> {
  const opening =
    producers.get(uri) ??
    openNamespace(uri).then((ns) => ns.producer({ id: "producer", uploadsInFlightMax: settings.inFlight }));
  producers.set(uri, opening);
  const producer = await opening;
  for (let i = 0; i < count; i++)
    await producer.append(batches[i % batches.length] as Uint8Array[], { resumePoint: { batch: producer.nextSeq } });
  await producer.flush();
}

async function read(uri: string, count: number, seconds: number): Promise<number> {
  const ns = await openNamespace(uri);
  const { end } = (await ns.info()).steps;
  const from = makeCursor(ns.uuid, (end - count) * ns.grid.rows, 0);
  const rank = { mesh: { dp: 1 }, rank: 0, policy: "global-batch", environment: {} } as const;
  const until = performance.now() + 1e3 * seconds;
  for (let done = 0; ; ) {
    await using consumer = await ns.consumer({ ...rank, from });
    for (let i = 0; i < count; i++, done++) {
      if (performance.now() >= until) return done;
      await consumer.next();
    }
  }
}

async function readBare(uri: string, count: number, seconds: number): Promise<number> {
  const store = await openStore(uri);
  const until = performance.now() + 1e3 * seconds;
  let done = 0;
  const lane = async (): Promise<void> => {
    for (; performance.now() < until; ) await store.getRange(bareKey(done++ % count), 0, settings.payloadBytes);
  };
  await Promise.all(Array.from({ length: settings.inFlight }, lane));
  return done;
}

async function inLanes(count: number, work: (i: number) => Promise<unknown>): Promise<void> {
  let next = 0;
  const lane = async (): Promise<void> => {
    while (next < count) await work(next++);
  };
  await Promise.all(Array.from({ length: settings.inFlight }, lane));
}

const bareKey = (i: number): string => `batch/${(i % 256).toString(16).padStart(2, "0")}/0/${i}.tgb`;

async function keep(
  { uri, intervalMs, reclaim, keptBatches }: ReclaimCostQuestion & { kind: "keep" },
  signal: AbortSignal,
): Promise<{ deleted: number; reclaims: number }> {
  const ns = await openNamespace(uri);
  let [deleted, reclaims] = [0, 0];
  const register = async (step: number): Promise<void> => {
    const cursor = makeCursor(ns.uuid, step * ns.grid.rows, step);
    await ns.checkpoint(`step-${step}`, cursor, { keepLast: 1 });
  };
  const checkpoints = (async () => {
    while (!signal.aborted) {
      const { trim, end } = (await ns.info()).steps;
      const last = Math.max(trim, end - keptBatches);
      // In a few steps, so that every reclaim finds something to delete.
      await register(keptBatches === 0 ? last : Math.min(last, trim + Math.ceil(keptBatches / 3)));
      await pause(intervalMs, signal);
    }
  })();
  if (reclaim) {
    const onRun = (report: ReclaimReport): void => {
      reclaims++;
      deleted += report.batches.objects;
    };
    const onFailure = (error: unknown): never => {
      throw error;
    };
    const stopped = ns.watchReclaim(
      { intervalMs, graceMs: 2 * intervalMs, keepVersions: 4 },
      { signal, onRun, onFailure },
    );
    await stopped.catch((error) => {
      if (!signal.aborted) throw error;
    });
  }
  await checkpoints;
  return { deleted, reclaims };
}

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });

async function act(question: ReclaimCostQuestion): Promise<Partial<ReclaimCostAnswer>> {
  switch (question.kind) {
    case "write":
      await write(question.uri, question.batches);
      return { batches: question.batches };
    case "bare-write": {
      const store = await openStore(question.uri);
      await inLanes(question.batches, (i) => store.put(bareKey(i), payloads[i % payloads.length] as Uint8Array));
      return { batches: question.batches };
    }
    case "read":
      return { batches: await read(question.uri, question.batches, question.seconds) };
    case "bare-read":
      return { batches: await readBare(question.uri, question.batches, question.seconds) };
    case "keep": {
      const stop = new AbortController();
      keeping = { stop, done: keep(question, stop.signal) };
      return {};
    }
    case "rest":
      keeping?.stop.abort();
      return (await keeping?.done) ?? {};
  }
}

answer<ReclaimCostQuestion>(async (question): Promise<ReclaimCostAnswer> => {
  const begun = performance.now();
  const done = await act(question);
  return { batches: 0, deleted: 0, reclaims: 0, ...done, seconds: (performance.now() - begun) / 1e3 };
});
