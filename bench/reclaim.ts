/**
 * What reclaim costs a long history, in requests and seconds per thousand objects deleted, and what it costs to look when nothing is dead: in
 * full, and again by the same process. The history is staged, a hundred batches a commit, on a memory store; every batch has its object.
 */

import { openProducer } from "../src/cadence/index.js";
import { systemEnv } from "../src/env/index.js";
import {
  asSeq,
  batchKey,
  type Descriptor,
  encodeExtent,
  encodeNamespace,
  makeCursor,
  type NamespaceSpec,
  namespaceKey,
  type ProducerState,
} from "../src/format/index.js";
import { ReclaimLoop, type ReclaimReport, reclaim, registerCheckpoint } from "../src/lifecycle/index.js";
import { type Holder, Log } from "../src/log/index.js";
import { countCalls, taken } from "./parts/counted-store.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { SortedStore } from "./parts/sorted-store.js";

export const summary = "requests and seconds of reclaiming a long history [--steps 1e5,1e6] [--live 1000]";

const rows = 2;
const stepsPerCommit = 100;
const settings = { graceMs: 0, keepVersions: 4 };

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps", "live"]);
  const report = new Report("reclaim", options.json);
  for (const steps of numbers(options.steps, [1e5, 1e6])) await measure(steps, number(options.live, 1_000), report);
  report.end();
}

async function measure(steps: number, live: number, report: Report): Promise<void> {
  const bare = new SortedStore();
  const { store, tally } = countCalls(bare);
  const spec: NamespaceSpec = {
    format: 1,
    uuid: systemEnv.uuid(),
    grid: { rows, chunks: 1 },
    order: { kind: "commit" },
    created: 0,
    rest: {},
  };
  await store.create(namespaceKey, encodeNamespace(spec));
  const openOrigin = (): Promise<never> => Promise.reject(new Error("no ancestors"));
  const open = (): Log => new Log({ store, env: systemEnv, spec, openOrigin });
  const log = open();
  const { holder } = await openProducer(log, "writer");
  await append(log, bare, holder, steps);
  const row = (name: string, done: ReclaimReport, begun: number): void => {
    const seconds = (performance.now() - begun) / 1e3;
    const { requests } = taken(tally);
    const deleted = done.batches.objects + done.index.objects + done.manifests.objects + done.intents.objects;
    const isTrimmed = name === "all trimmed";
    const rates = { requestsPer1000: (1e3 * requests) / deleted, secondsPer1000: (1e3 * seconds) / deleted };
    report.row({ case: name, steps, deleted, requests, ...(isTrimmed ? rates : {}) }, { seconds });
  };
  const loop = new ReclaimLoop(open(), settings);
  taken(tally);
  let begun = performance.now();
  row("all live, full", await loop.once(), begun);
  await append(log, bare, holder, stepsPerCommit * 10, steps);
  taken(tally);
  begun = performance.now();
  row("all live, again", await loop.once(), begun);
  const cursor = makeCursor(spec.uuid, (steps - live) * rows, 1);
  await registerCheckpoint(log, { id: "last", cursor });
  taken(tally);
  begun = performance.now();
  row("all trimmed", await reclaim(open(), settings), begun);
}

/** Commits batches that all share one body, each under a key of its own. */
async function append(log: Log, store: SortedStore, holder: Holder, count: number, from = 0): Promise<void> {
  const name = { ...holder, seq: asSeq(0), attempt: 0, base: 0 } as unknown as Descriptor;
  const bytes = Buffer.from("slice");
  const slices = Array.from({ length: rows }, () => ({ bytes, rawLength: bytes.length, encoding: 0 }));
  const { body, entry } = encodeExtent(log.spec.uuid, name, { extent: 0, firstCell: 0 }, slices, { resumePoint: 0 });
  const object = Buffer.concat(body);
  for (let done = from; done < from + count; done += stepsPerCommit) {
    await log.commit({
      by: "stage history",
      kind: "own",
      stage: (draft) => {
        for (let i = 0; i < stepsPerCommit; i++) {
          const descriptor = { ...name, seq: asSeq(done + i), base: draft.base.version, extents: [entry] };
          draft.push(descriptor);
          store.share(batchKey(descriptor, 0), object);
        }
        const state = draft.producers.get("writer") as ProducerState;
        draft.producers.set("writer", { ...state, seq: asSeq(done + stepsPerCommit), at: draft.version });
        return { done: false, result: undefined };
      },
    });
  }
}
