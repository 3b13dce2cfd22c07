/** A process of the reclaim-cost benchmark: it writes, reads, or keeps a namespace as rank 0 of a job does, with or without reclaiming. */
import { existsSync, readdirSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { answer, workerArgument } from "../../harness/worker-process.js";
import {
  makeCursor,
  type Namespace,
  openNamespace,
  openStore,
  type Producer,
  type ReclaimReport,
} from "../../src/index.js";
import { cut, makePayloads } from "./payload.js";

/** What a process is told at its start. */
export interface ReclaimCostSettings {
  readonly payloadBytes: number;
  readonly slices: number;
  readonly inFlight: number;
}

/** What a process is asked to do. */
export type ReclaimCostQuestion =
  | {
      readonly kind: "write" | "bare-write";
      readonly uri: string;
      readonly batches: number;
      /** Appended at this pace; as fast as they are taken unless told. */
      readonly perSecond?: number | undefined;
    }
  /** The last `batches` of the log, again and again until the time is over. */
  | { readonly kind: "read" | "bare-read"; readonly uri: string; readonly batches: number; readonly seconds: number }
  /** Until `rest`: a checkpoint now and then, `keptBatches` behind the end at last; and perhaps somebody deletes. Answered when that has begun. */
  | {
      readonly kind: "keep";
      readonly uri: string;
      readonly intervalMs: number;
      readonly deleter: Deleter;
      readonly keptBatches: number;
    }
  | { readonly kind: "rest" };

/** Who deletes: nobody, a process that knows no better than to unlink every batch file it saw half an interval ago, or the reclaimer. */
export type Deleter = "none" | "unlink" | "reclaim";

/** What was done, in which time; and what was deleted meanwhile. */
export interface ReclaimCostAnswer {
  readonly batches: number;
  readonly seconds: number;
  readonly deleted: number;
  readonly reclaims: number;
  /** Processor time of this process, its kernel calls included. */
  readonly cpuSeconds: number;
  /** Milliseconds from append to acknowledgement, half of the batches below it. */
  readonly ackMs: number;
}

const settings = workerArgument<ReclaimCostSettings>();
const payloads = makePayloads(32, settings.payloadBytes, 1);
const batches = payloads.map((payload) => cut(payload, settings.slices));
const producers = new Map<string, Promise<Producer>>();
interface Kept {
  deleted: number;
  reclaims: number;
}
let keeping: { stop: AbortController; done: Promise<Kept>; cpu: NodeJS.CpuUsage } | undefined;

/** Returns the median time from append to acknowledgement. */
async function write(uri: string, count: number, perSecond: number | undefined): Promise<number> {
  const opening =
    producers.get(uri) ??
    openNamespace(uri).then((ns) => ns.producer({ id: "producer", uploadsInFlightMax: settings.inFlight }));
  producers.set(uri, opening);
  const producer = await opening;
  const took: number[] = [];
  const pace = pacer(perSecond);
  for (let i = 0; i < count; i++) {
    await pace(i);
    const begun = performance.now();
    const batch = batches[i % batches.length] as Uint8Array[];
    const ticket = await producer.append(batch, { resumePoint: { batch: producer.nextSeq } });
    void ticket.committed.then(() => took.push(performance.now() - begun));
  }
  await producer.flush();
  return took.sort((a, b) => a - b)[took.length >> 1] ?? 0;
}

/** Waits until piece `i` is due. */
function pacer(perSecond: number | undefined): (i: number) => Promise<void> {
  const begun = performance.now();
  return async (i) => {
    if (perSecond === undefined) return;
    const waitMs = begun + (1e3 * i) / perSecond - performance.now();
    if (waitMs > 1) await new Promise((resolve) => setTimeout(resolve, waitMs));
  };
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
  { uri, intervalMs, deleter, keptBatches }: ReclaimCostQuestion & { kind: "keep" },
  signal: AbortSignal,
  begun: () => void,
): Promise<Kept> {
  const ns = await openNamespace(uri);
  const kept: Kept = { deleted: 0, reclaims: 0 };
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
  if (deleter === "none") begun();
  else await (deleter === "unlink" ? unlinkAll : reclaimAll)(ns, intervalMs, kept, signal, begun);
  await checkpoints;
  return kept;
}

/** Deletes until told to stop; says when the clock may start. */
type DeleteAll = (
  ns: Namespace,
  intervalMs: number,
  kept: Kept,
  signal: AbortSignal,
  begun: () => void,
) => Promise<void>;

const reclaimAll: DeleteAll = async (ns, intervalMs, kept, signal, begun) => {
  let isFirst = true;
  const onRun = (report: ReclaimReport): void => {
    // The first run of a process lists everything, one that stays does so once in 64 runs; it is over before the clock starts.
    if (isFirst) begun();
    else {
      kept.reclaims++;
      kept.deleted += report.batches.objects;
    }
    isFirst = false;
  };
  const onFailure = (error: unknown): never => {
    throw error;
  };
  // The default grace: with one so short that it runs out while batches wait for their commit, producers upload everything twice.
  await ns.watchReclaim({ intervalMs }, { signal, onRun, onFailure }).catch((error) => {
    if (!signal.aborted) throw error;
  });
};

/** The control: the same files go, and nothing else is done. Destroys the log; nobody reads it. */
const unlinkAll: DeleteAll = async (ns, intervalMs, kept, signal, begun) => {
  const folder = fileURLToPath(`${ns.uri}/batch`);
  begun();
  while (!signal.aborted) {
    const entries = existsSync(folder) ? readdirSync(folder, { recursive: true, withFileTypes: true }) : [];
    const old = entries.filter((entry) => entry.name.endsWith(".tgb"));
    // Half an interval: so old is, on average, what the last checkpoint has let go of.
    await pause(intervalMs / 2, signal);
    for (const { parentPath, name } of old) unlinkSync(join(parentPath, name));
    kept.deleted += old.length;
    kept.reclaims++;
    await pause(intervalMs / 2, signal);
  }
};

const pause = (ms: number, signal: AbortSignal): Promise<void> =>
  new Promise((resolve) => {
    const end = (): void => {
      clearTimeout(timer);
      signal.removeEventListener("abort", end);
      resolve();
    };
    const timer = setTimeout(end, ms);
    signal.addEventListener("abort", end);
  });

async function act(question: ReclaimCostQuestion): Promise<Partial<ReclaimCostAnswer>> {
  switch (question.kind) {
    case "write":
      return {
        batches: question.batches,
        ackMs: await write(question.uri, question.batches, question.perSecond),
      };
    case "bare-write": {
      const store = await openStore(question.uri);
      const pace = pacer(question.perSecond);
      await inLanes(question.batches, async (i) => {
        await pace(i);
        await store.put(bareKey(i), payloads[i % payloads.length] as Uint8Array);
      });
      return { batches: question.batches };
    }
    case "read":
      return { batches: await read(question.uri, question.batches, question.seconds) };
    case "bare-read":
      return { batches: await readBare(question.uri, question.batches, question.seconds) };
    case "keep": {
      const stop = new AbortController();
      let done: Promise<Kept> | undefined;
      await new Promise<void>((resolve, reject) => {
        done = keep(question, stop.signal, resolve);
        done.catch(reject);
      });
      keeping = { stop, done: done as unknown as Promise<Kept>, cpu: process.cpuUsage() };
      return {};
    }
    case "rest": {
      if (!keeping) return {};
      const { user, system } = process.cpuUsage(keeping.cpu);
      keeping.stop.abort();
      return { ...(await keeping.done), cpuSeconds: (user + system) / 1e6 };
    }
  }
}

answer<ReclaimCostQuestion>(async (question): Promise<ReclaimCostAnswer> => {
  const begun = performance.now();
  const done = await act(question);
  return {
    batches: 0,
    deleted: 0,
    reclaims: 0,
    cpuSeconds: 0,
    ackMs: 0,
    ...done,
    seconds: (performance.now() - begun) / 1e3,
  };
});
