/**
 * What a long history costs: the size of the manifest, the time and bytes of a commit, the requests of opening a namespace and of
 * reading a random old step, at 1e3 to 1e7 steps with 1,000 active producers.
 *
 * Assumed: every batch was a commit of its own, so there are as many versions as steps; of these the last 100,000 are still there
 * and a boundary marker (the 1,000th) announces that the older ones are gone. Histories are staged with the real drafts and index
 * objects. Commits are real ones on a store in memory, so that their time is that of staging, encoding and checking alone; the
 * lengths take turns, and each ratio is that of the medians.
 */
import { join } from "node:path";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { SliceReader } from "../src/consumer/index.js";
import {
  asStep,
  asVersion,
  boundaryKey,
  encodeBoundary,
  encodeManifest,
  encodeNamespace,
  indexFanout,
  manifestKey,
  type NamespaceSpec,
  namespaceKey,
} from "../src/format/index.js";
import { type ObjectStore, openNamespace, systemEnv } from "../src/index.js";
import { Log } from "../src/log/index.js";
import { countCalls, type StoreTally, taken } from "./parts/counted-store.js";
import { HistoryBuilder, probeSteps } from "./parts/history-builder.js";
import { HistoryStore, Pack } from "./parts/history-store.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { median } from "./parts/statistics.js";

export const summary =
  "manifest, commit, open and old reads in long histories [--steps 1e3,1e4,1e5,1e6,1e7] [--producers 1000] [--commits 256] [--probes 32] [--folder DIR]";

const versionsKept = 100_000;
const markers = 1_000;
const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1c3e52-9a0b-4d8e-8c57-2b7d0e4a91f3",
  grid: { rows: 8, chunks: 2 },
  order: { kind: "commit" },
  created: 1_760_000_000_000,
  rest: {},
};

/** One length of the history, ready to be measured. */
interface Stage {
  readonly steps: number;
  readonly store: HistoryStore;
  readonly log: Log;
  readonly tally: StoreTally;
  readonly commitMs: number[];
  readonly sentBytes: number[];
  manifestBytes: number;
}

function openLog(store: ObjectStore): Log {
  const openOrigin = (): Promise<never> => Promise.reject(new Error("there are no forks here"));
  return new Log({ store, env: systemEnv, spec, openOrigin });
}

async function makeStage(
  builder: HistoryBuilder,
  pack: Pack,
  steps: number,
  probes: readonly number[],
): Promise<Stage> {
  const head = builder.versionOf(steps - 1);
  const upTo = Math.max(0, head - versionsKept);
  const store = new HistoryStore(pack, upTo + 1, head);
  await store.put(namespaceKey, encodeNamespace(spec));
  if (upTo > 0) {
    const marker = { n: markers, upTo: asVersion(upTo) };
    await store.put(boundaryKey(markers), encodeBoundary(spec.uuid, marker));
  }
  const bytes = encodeManifest(builder.at(steps, upTo > 0 ? markers : 0));
  await store.put(manifestKey(asVersion(head)), bytes);
  for (const step of probes) {
    const { key, body } = builder.stored.get(step) as { key: string; body: readonly Uint8Array[] };
    await store.put(key, body);
  }
  const counted = countCalls(store);
  return {
    steps,
    store,
    log: openLog(counted.store),
    tally: counted.tally,
    commitMs: [],
    sentBytes: [],
    manifestBytes: bytes.length,
  };
}

/** One real commit of one batch; what it replaced is dropped, to keep memory flat. */
async function commitOnce(stage: Stage, builder: HistoryBuilder): Promise<void> {
  const { log } = stage;
  const before = await log.head.newest();
  const batch = builder.nextBatch(before);
  taken(stage.tally);
  const begun = performance.now();
  const attempt = await log.attemptBatches(batch, [batch]);
  const elapsedMs = performance.now() - begun;
  if (attempt.outcome !== "committed") throw new Error(`A commit without competitors ended as ${attempt.outcome}.`);
  stage.commitMs.push(elapsedMs);
  stage.sentBytes.push(taken(stage.tally).bytesSent);
  stage.manifestBytes = Math.max(stage.manifestBytes, encodeManifest(attempt.manifest).length);
}

/** Requests of a fresh handle; the most that any of several random old steps needs, its footer and slice included. */
async function countRequests(
  stage: Stage,
  builder: HistoryBuilder,
  probes: readonly number[],
): Promise<{ openRequests: number; oldStepRequests: number }> {
  let oldStepRequests = 0;
  const opened = countCalls(stage.store);
  await openNamespace("memory:history", { store: opened.store });
  const openRequests = taken(opened.tally).requests;
  for (const step of probes) {
    // A rank's own reader, on a handle of its own: nothing is cached.
    const { store, tally } = countCalls(stage.store);
    const log = openLog(store);
    const manifest = await log.head.load();
    taken(tally);
    const reader = new SliceReader(log, { readsInFlightMax: 1, footerBytesMax: 0 });
    const cell = step % (spec.grid.rows * spec.grid.chunks);
    const place = { step: asStep(step), row: Math.floor(cell / spec.grid.chunks), chunk: cell % spec.grid.chunks };
    const call = { priority: 0 };
    const [slice] = await reader.fetch(await reader.prepare(manifest, [place], call), call);
    oldStepRequests = Math.max(oldStepRequests, taken(tally).requests);
    if (!slice || !Buffer.from(slice.bytes).equals(builder.sliceOf(step, cell)))
      throw new Error(`Step ${step} read wrong bytes.`);
  }
  return { openRequests, oldStepRequests };
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps", "producers", "commits", "probes", "folder"]);
  const lengths = numbers(options.steps, [1e3, 1e4, 1e5, 1e6, 1e7]).sort((a, b) => a - b);
  const producers = number(options.producers, 1_000);
  const report = new Report("history", options.json);
  await inScratchFolder(options.folder, async (folder) => {
    const pack = new Pack(join(folder, "index"));
    // Only steps that are sealed are old; the tail is in the manifest.
    const probes = new Map(
      lengths.map((steps) => [steps, probeSteps(steps - (steps % indexFanout), number(options.probes, 32), 1)]),
    );
    const builder = new HistoryBuilder(spec, producers, new Set([...probes.values()].flat()), pack);
    const stages: Stage[] = [];
    for (const steps of lengths)
      stages.push(await makeStage(builder, pack, steps, probes.get(steps) as readonly number[]));
    const requests: { openRequests: number; oldStepRequests: number }[] = [];
    for (const stage of stages)
      requests.push(await countRequests(stage, builder, probes.get(stage.steps) as readonly number[]));
    for (const stage of stages) await stage.log.head.load();
    for (let i = 0; i < number(options.commits, 256); i++) for (const stage of stages) await commitOnce(stage, builder);
    const shortest = stages[0] as Stage;
    stages.forEach((stage, i) => {
      const bytes = stage.sentBytes.reduce((sum, sent) => sum + sent, 0) / stage.sentBytes.length;
      report.row(
        {
          steps: stage.steps,
          producers,
          manifestBytes: stage.manifestBytes,
          commitRatio: median(stage.commitMs) / median(shortest.commitMs),
          ...(requests[i] as { openRequests: number; oldStepRequests: number }),
        },
        { commitMs: median(stage.commitMs), bytesPerCommit: Math.round(bytes) },
      );
    });
    pack.close();
  });
  report.end();
}
