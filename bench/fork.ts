/**
 * What a fork costs, whatever the length of the history: requests to the store, parent and fork together. The history is staged, not
 * waited for: any number of steps on one batch, on a memory store.
 */

import { openProducer } from "../src/cadence/index.js";
import { systemEnv } from "../src/env/index.js";
import { asSeq, batchKey, type Descriptor, decodeNamespace, encodeExtent, namespaceKey } from "../src/format/index.js";
import { createNamespace, deleteNamespace, openNamespace, openStore, parseSkip } from "../src/index.js";
import { Log } from "../src/log/index.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";

export const summary = "requests of a fork of a long history [--steps 1e4,1e5,1e6] [--skips 2]";

const grid = { rows: 8, chunks: 1 };
const stepsPerCommit = 4_096;

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["steps", "skips"]);
  const report = new Report("fork", options.json);
  for (const steps of numbers(options.steps, [1e4, 1e5, 1e6])) await measure(steps, number(options.skips, 2), report);
  report.end();
}

async function measure(steps: number, skips: number, report: Report): Promise<void> {
  const [uri, forkUri] = [`memory:bench-parent-${steps}`, `memory:bench-fork-${steps}`];
  await createNamespace(uri, { grid });
  await stageHistory(uri, steps);
  const parent = await openNamespace(uri);
  const count = (): number => parent.metrics.value("batchweave_store_requests_total");
  const skip = Array.from({ length: skips }, (_, i) => `${100 * i + 50}-${100 * i + 60}`).join(",");
  const [before, begun] = [count(), performance.now()];
  const fork = await parent.fork(forkUri, { at: steps - 10, skip: parseSkip(skip) });
  const requests = count() - before;
  const ms = performance.now() - begun;
  const expected = steps - 10 - 11 * skips;
  const { end } = (await fork.info()).steps;
  if (end !== expected) throw new Error(`The fork has ${end} steps, expected ${expected}.`);
  await fork.readSlice({ step: expected - 1, row: 0, chunk: 0 });
  report.row({ steps, requests }, { skips, ms });
  await deleteNamespace(forkUri);
  await deleteNamespace(uri);
}

/** Commits `steps` steps that all show the same batch. */
async function stageHistory(uri: string, steps: number): Promise<void> {
  const store = await openStore(uri);
  const spec = decodeNamespace((await store.get(namespaceKey)) as Uint8Array, uri);
  const log = new Log({ store, env: systemEnv, spec, openOrigin: () => Promise.reject(new Error("no ancestors")) });
  const { holder } = await openProducer(log, "writer");
  const { version: base } = await log.head.newest();
  const name = { ...holder, seq: asSeq(0), attempt: 0, base } as Omit<Descriptor, "extents">;
  const bytes = Buffer.from("slice");
  const slices = Array.from({ length: grid.rows }, () => ({ bytes, rawLength: bytes.length, encoding: 0 }));
  const { body, entry } = encodeExtent(spec.uuid, name, { extent: 0, firstCell: 0 }, slices, { resumePoint: 0 });
  await store.put(batchKey(name, 0), body);
  const descriptor: Descriptor = { ...name, extents: [entry] };
  for (let done = 0; done < steps; done += stepsPerCommit) {
    await log.commit({
      by: "stage history",
      kind: "own",
      stage: (draft) => {
        for (let i = 0; i < Math.min(stepsPerCommit, steps - done); i++) draft.push(descriptor);
        return { done: false, result: undefined };
      },
    });
  }
}
