/** One producer process of the latency benchmark: appends at a steady rate and awaits every ticket. */

import { answer, workerArgument } from "../../harness/worker-process.js";
import { openNamespace, type Producer } from "../../src/index.js";

/** What a worker is told at its start. `offset`: by which share of its period it is later than the first. */
export interface LatencyWorkerSettings {
  readonly uri: string;
  readonly id: string;
  readonly rate: number;
  readonly bytes: number;
  readonly offset: number;
}

export type LatencyQuestion = { readonly kind: "open" } | { readonly kind: "produce"; readonly seconds: number };

/** Times by the machine's clock, which all processes share, in ms. */
export interface LatencyAnswer {
  readonly id: string;
  readonly batches: readonly { readonly seq: number; readonly appendedMs: number; readonly committedMs: number }[];
}

const settings = workerArgument<LatencyWorkerSettings>();
const now = (): number => performance.timeOrigin + performance.now();
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, Math.max(0, ms)));
let producer: Producer | undefined;

answer<LatencyQuestion>(async (question): Promise<LatencyAnswer> => {
  if (question.kind === "open") {
    producer = await (await openNamespace(settings.uri)).producer({ id: settings.id });
    return { id: settings.id, batches: [] };
  }
  const open = producer as Producer;
  const periodMs = 1_000 / settings.rate;
  const begun = now() + settings.offset * periodMs;
  const count = Math.round(question.seconds * settings.rate);
  const batches = await Promise.all(
    Array.from({ length: count }, async (_, i) => {
      await sleep(begun + i * periodMs - now());
      const appendedMs = now();
      const { seq, committed } = await open.append([new Uint8Array(settings.bytes)], { resumePoint: i });
      await committed;
      return { seq, appendedMs, committedMs: now() };
    }),
  );
  return { id: settings.id, batches };
});
