/**
 * Properties of the step index: whatever is pushed, in whatever sizes of commits and with whatever trims between them, every step of
 * [trim, end) is found and is the batch that was pushed there; no index object is ever written twice; the manifest holds a bounded
 * number of references; a step costs at most one object per level. Method: random sequences of commits on a store that counts.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  type Descriptor,
  decodeManifest,
  encodeManifest,
  genesisManifest,
  indexFanout,
  type Manifest,
  manifestKey,
  type NamespaceSpec,
  nodeRefKey,
} from "../../src/format/index.js";
import { Draft, StepIndex } from "../../src/log/index.js";
import { MemoryStore } from "../../src/store/index.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 2, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};

/** The batch that the test expects at a step. */
function batchAt(step: number): Descriptor {
  return {
    producer: "p",
    epoch: asEpoch(1),
    seq: asSeq(step),
    incarnation: "0123456789ab",
    attempt: 0,
    base: asVersion(0),
    extents: [{ cells: 2, size: 300, table: 100, check: step }],
  };
}

/** A log without the commit: drafts are stored as they come. */
class Chain {
  readonly store: MemoryStore = new MemoryStore();
  readonly spec: NamespaceSpec;
  readonly index: StepIndex;
  manifest: Manifest;
  gets = 0;

  constructor(of: NamespaceSpec = spec) {
    this.spec = of;
    this.manifest = genesisManifest(of);
    const counting = Object.assign(Object.create(this.store) as MemoryStore, {
      get: (key: string) => {
        this.gets++;
        return this.store.get(key);
      },
    });
    this.index = new StepIndex(counting, of, async () => this.store);
  }

  async commit(pushes: number, trim: number): Promise<void> {
    const draft = new Draft(this.manifest, {
      id: (this.manifest.version + 1).toString(32).padStart(12, "0"),
      by: "test",
      time: 0,
      boundaryHint: 0,
    });
    for (let i = 0; i < pushes; i++) draft.push(batchAt(draft.end));
    draft.trim = asStep(Math.max(draft.trim, Math.min(trim, draft.end)));
    const next = draft.finish();
    for (const { key, bytes } of draft.sealed) expect(await this.store.create(key, bytes)).toBe("created");
    // What a reader gets has gone through bytes.
    const key = manifestKey(next.version);
    this.manifest = decodeManifest(encodeManifest(next), key, this.spec.uuid, next.version);
  }

  async seqAt(step: number): Promise<number> {
    return (await this.index.locate(this.manifest, asStep(step))).descriptor.seq;
  }

  references(): number {
    return this.manifest.index.reduce((sum, level) => sum + level.refs.length, 0);
  }
}

function checkShape({ manifest: { tail, index, steps } }: Chain): void {
  expect(tail.start % indexFanout).toBe(0);
  expect(tail.batches.length).toBeLessThan(indexFanout);
  expect(tail.start + tail.batches.length).toBe(steps.end);
  index.forEach((level, i) => {
    expect(level.refs.length).toBeLessThan(indexFanout);
    const covered = Math.floor(tail.start / indexFanout ** (i + 1));
    expect(level.start + level.refs.length).toBe(covered);
  });
}

/** `[batches pushed, how much of the rest is trimmed]` of one commit. */
const commits = fc.array(
  fc.tuple(
    fc.oneof(fc.nat({ max: 3 }), fc.nat({ max: 200 }), fc.integer({ min: 1000, max: 9000 })),
    fc.oneof(fc.constant(0), fc.constant(0), fc.double({ min: 0, max: 1, noNaN: true })),
  ),
  { minLength: 1, maxLength: 12 },
);

describe("the step index", () => {
  test("finds every promised step, after any commits and trims", async () => {
    await fc.assert(
      fc.asyncProperty(
        commits,
        fc.array(fc.double({ min: 0, max: 1, noNaN: true, maxExcluded: true })),
        async (list, picks) => {
          const chain = new Chain();
          for (const [pushes, trimmed] of list) {
            const { trim, end } = chain.manifest.steps;
            await chain.commit(pushes, trim + Math.floor(trimmed * (end + pushes - trim)));
            checkShape(chain);
          }
          const { trim, end } = chain.manifest.steps;
          const edges = [trim, trim + 1, trim + 63, trim + 64, trim + 4095, trim + 4096, end - 65, end - 64, end - 1];
          for (const step of [...edges, ...picks.map((p) => trim + Math.floor(p * (end - trim)))]) {
            if (step >= trim && step < end) expect(await chain.seqAt(step)).toBe(step);
          }
          if (trim > 0) await expect(chain.seqAt(trim - 1)).rejects.toMatchObject({ code: "RECLAIMED" });
          await expect(chain.seqAt(end)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
        },
      ),
      { numRuns: 40 },
    );
  });

  test("finds each of ten thousand steps that came in commits of every size", async () => {
    const chain = new Chain();
    for (let size = 1; chain.manifest.steps.end < 10_000; size++) await chain.commit(size, 0);
    for (let step = 0; step < chain.manifest.steps.end; step++) expect(await chain.seqAt(step)).toBe(step);
  });

  test("keeps the manifest small and the way to a step short, at 300,000 steps", async () => {
    const chain = new Chain();
    while (chain.manifest.steps.end < 300_000) await chain.commit(4099, 0);
    expect(chain.references()).toBeLessThan(3 * indexFanout);
    expect(encodeManifest(chain.manifest).length).toBeLessThan(20_000);
    const before = chain.gets;
    expect(await chain.seqAt(123_456)).toBe(123_456);
    expect(chain.gets - before).toBeLessThanOrEqual(3);
  });

  test("the objects that [trim, end) needs are all there when older ones are deleted", async () => {
    const chain = new Chain();
    for (let i = 0; i < 40; i++) await chain.commit(300, 200 * i);
    const needed = new Set<string>();
    const seen = {
      get: (key: string) => {
        needed.add(key);
        return chain.store.get(key);
      },
    };
    const index = new StepIndex(
      Object.assign(Object.create(chain.store) as MemoryStore, seen),
      spec,
      async () => chain.store,
    );
    const { trim, end } = chain.manifest.steps;
    for (let step = trim as number; step < end; step++) await index.locate(chain.manifest, asStep(step));
    const listed = chain.manifest.index.flatMap((level) => level.refs.map(nodeRefKey));
    expect(listed.filter((key) => !needed.has(key))).toEqual([]);
    const all = (await chain.store.list("index/")).objects.map((o) => o.key);
    await chain.store.delete(all.filter((key) => !needed.has(key)));
    expect(needed.size).toBeLessThan(all.length);
    for (let step = trim as number; step < end; step++) expect(await chain.seqAt(step)).toBe(step);
  });

  test("an object that belongs elsewhere in the tree is corrupt, not another step's batch", async () => {
    const chain = new Chain();
    await chain.commit(200, 0);
    const [level] = chain.manifest.index;
    const refs = [...(level?.refs ?? [])].reverse();
    chain.manifest = { ...chain.manifest, index: [{ start: 0, refs }] };
    await expect(chain.seqAt(5)).rejects.toMatchObject({ code: "CORRUPT" });
  });

  test("a fork that begins in the middle finds its own steps and those of its tail", async () => {
    for (const segments of [1, 63, 64, 100, 5000]) {
      const start = asStep(segments * indexFanout);
      const batches = Array.from({ length: 10 }, (_, i) => batchAt(start + i));
      const chain = new Chain({ ...spec, fork: { origins: [], tail: { start, batches } } });
      for (const pushes of [1, 54, 5000, 200]) await chain.commit(pushes, 0);
      for (let step = start as number; step < chain.manifest.steps.end; step += 7)
        expect(await chain.seqAt(step)).toBe(step);
    }
  });
});
