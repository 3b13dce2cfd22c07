/**
 * What durable producer state costs a commit (the paper's Figure 8): batches are committed one by one, with producer state, as always, and by a
 * control whose commits append the same kind of descriptor but carry constant dummy metadata instead. The real file store, one and the same
 * log: two folders on one disk may differ by more than what is measured. A round is real, control, control, real (or the other way
 * round), and gives one ratio: whatever drifts hits both. The median of the ratios is told with the bounds between which the true one
 * lies in 95 of 100 cases. The batches' uploads are not part of the time. In a folder in memory (`--folder /dev/shm`) the share is largest.
 */
import { join } from "node:path";
import { pathToFileURL } from "node:url";

import { inScratchFolder } from "../harness/scratch-folder.js";

import { type Opening, openProducer } from "../src/cadence/index.js";

import { systemEnv } from "../src/env/index.js";
import {
  asSeq,
  batchKey,
  type Descriptor,
  decodeNamespace,
  encodeExtent,
  encodeManifest,
  encodeProducerState,
  type Manifest,
  namespaceKey,
} from "../src/format/index.js";
import { createNamespace } from "../src/index.js";
import { Log } from "../src/log/index.js";
import { openFileStore } from "../src/store/index.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { median, quantile } from "./parts/statistics.js";

export const summary =
  "what durable producer state adds to a commit, in bytes and time [--payloads] [--slices 8,32,128] [--rounds 300]";

/** Other producers in the map, so that the manifest is not empty. */
const otherProducers = 32;

interface Side {
  readonly log: Log;
  readonly holder: Opening["holder"];
  seq: number;
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["payloads", "slices", "rounds", "folder"]);
  const report = new Report("exactly-once", options.json);
  for (const payloadBytes of numbers(options.payloads, [100e3, 1e6, 10e6])) {
    for (const slices of numbers(options.slices, [8, 32, 128])) {
      await inScratchFolder(options.folder, (folder) =>
        measure(folder, payloadBytes, slices, number(options.rounds, 300), report),
      );
    }
  }
  report.end();
}

async function openSides(folder: string, slices: number): Promise<{ real: Side; control: Side }> {
  await createNamespace(pathToFileURL(folder).href, { grid: { rows: slices, chunks: 1 } });
  const store = await openFileStore(folder, systemEnv, {});
  const spec = decodeNamespace((await store.get(namespaceKey)) as Uint8Array, namespaceKey);
  const log = new Log({ store, env: systemEnv, spec, openOrigin: () => Promise.reject(new Error("no forks here")) });
  for (let i = 0; i < otherProducers; i++) await openProducer(log, `other-${i}`);
  const real = (await openProducer(log, "producer")).holder;
  // Nobody of this name has state: nothing but its descriptors gets into the log.
  return { real: { log, holder: real, seq: 0 }, control: { log, holder: { ...real, producer: "nobody" }, seq: 0 } };
}

async function measure(
  folder: string,
  payloadBytes: number,
  slices: number,
  rounds: number,
  report: Report,
): Promise<void> {
  const { real, control } = await openSides(join(folder, "run"), slices);
  const payload = Buffer.alloc(Math.floor(payloadBytes / slices), 7);
  const realMs: number[] = [];
  const controlMs: number[] = [];
  const ratios: number[] = [];
  let last: Manifest | undefined;
  for (let round = 0; round < rounds; round++) {
    const order = round % 2 === 0 ? [real, control, control, real] : [control, real, real, control];
    const uploaded: [Side, Descriptor][] = [];
    for (const side of order) uploaded.push([side, await upload(side, payload, slices)]);
    const spent = new Map<Side, number>([
      [real, 0],
      [control, 0],
    ]);
    for (const [side, descriptor] of uploaded) {
      const begun = systemEnv.monotonic();
      const manifest = side === real ? await commitReal(side, descriptor) : await commitControl(side, descriptor);
      spent.set(side, (spent.get(side) as number) + systemEnv.monotonic() - begun);
      if (side === real) last = manifest;
    }
    realMs.push((spent.get(real) as number) / 2);
    controlMs.push((spent.get(control) as number) / 2);
    ratios.push((spent.get(real) as number) / (spent.get(control) as number));
  }
  const state = last?.producers.get("producer");
  const stateBytes = state ? JSON.stringify(["producer", encodeProducerState(state)]).length : 0;
  const [low, high] = medianBounds(ratios);
  report.row({
    payloadBytes,
    slices,
    stateBytes,
    manifestBytes: last ? encodeManifest(last).length : 0,
    commitMs: median(realMs),
    controlMs: median(controlMs),
    overhead: median(ratios) - 1,
    low: low - 1,
    high: high - 1,
  });
}

/** Between which values the median lies in 95 of 100 cases, from the ranks that a fair coin would give. */
function medianBounds(values: readonly number[]): [number, number] {
  const share = 0.98 / Math.sqrt(values.length);
  return [quantile(values, Math.max(0, 0.5 - share)), quantile(values, Math.min(1, 0.5 + share))];
}

async function upload(side: Side, payload: Uint8Array, slices: number): Promise<Descriptor> {
  const { log, holder } = side;
  const { producer, epoch, incarnation } = holder;
  const name = {
    producer,
    epoch: epoch as Descriptor["epoch"],
    incarnation,
    seq: asSeq(side.seq++),
    attempt: 0,
    base: (log.head.known as Manifest).version,
  };
  const stored = Array.from({ length: slices }, () => ({ bytes: payload, rawLength: payload.length, encoding: 0 }));
  const extent = encodeExtent(log.spec.uuid, name, { extent: 0, firstCell: 0 }, stored, {
    resumePoint: { next: side.seq },
  });
  await log.store.put(batchKey(name, 0), extent.body);
  return { ...name, extents: [extent.entry] };
}

async function commitReal({ log, holder }: Side, descriptor: Descriptor): Promise<Manifest> {
  const attempt = await log.attemptBatches(holder, [descriptor]);
  if (attempt.outcome !== "committed") throw new Error(`a commit without competition ended ${attempt.outcome}`);
  return attempt.manifest;
}

/** The same commit, but nobody's state moves: constant metadata stands in its place. */
async function commitControl({ log }: Side, descriptor: Descriptor): Promise<Manifest> {
  const { manifest } = await log.commit({
    by: "control",
    kind: "own",
    stage: (draft) => {
      draft.push(descriptor);
      draft.rest["dummy"] = "constant metadata";
      return { done: false, result: undefined };
    },
  });
  return manifest;
}
