/**
 * Property: the answers to hazards 23, 26, 27, 28, 41, 48, 49 and 55 are what holds, and not luck of the order: each test fails when its guard is taken
 * out. Method: step in at the very call between which the hazard strikes, so that there is one order and it is the bad one.
 */
import { describe, expect, test } from "vitest";
import { type Opening, openProducer } from "../../src/cadence/index.js";
import { batchKey, type Descriptor, makeCursor, manifestPrefix, parseBatchKey } from "../../src/format/index.js";
import { createNamespace, MemoryStore, type Namespace, openNamespace } from "../../src/index.js";
import { liveCheckpoints, reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import { type Holder, type Log, lifeStore } from "../../src/log/index.js";
import { Upload } from "../../src/producer/upload.js";
import { AutoEnv } from "./auto-env.js";
import { HookedStore } from "./hooked-store.js";
import { cursorAt, readAll, rows, SmallWorld, Writer } from "./small-world.js";

const uri = "memory:a";
const now = { graceMs: 0, keepVersions: 2 };
const grid = { rows: 1, chunks: 1 } as const;

async function begun(): Promise<{ world: SmallWorld; log: Log }> {
  const world = new SmallWorld();
  const log = await world.create(uri);
  await new Writer(log, "first").write(6);
  return { world, log };
}

/** A view of the log in which `strike` happens right before the first manifest is created. */
function struckView(world: SmallWorld, log: Log, strike: () => Promise<void>): Log {
  let isStruck = false;
  const create = async <T>(key: string, inner: () => Promise<T>): Promise<T> => {
    if (!key.startsWith(manifestPrefix) || isStruck) return await inner();
    isStruck = true;
    await strike();
    return await inner();
  };
  return world.open(uri, log.spec, new HookedStore(world.store(uri), { create }));
}

async function written(batches: number): Promise<{ ns: Namespace; store: MemoryStore; env: AutoEnv }> {
  const env = new AutoEnv();
  const store = new MemoryStore();
  const ns = await createNamespace("memory:read", { grid }, { store, env });
  await using producer = await ns.producer({ id: "p", cadence: { kind: "interval", intervalMs: 1 } });
  for (let i = 0; i < batches; i++) await producer.append([Buffer.from(`step ${i}`)]);
  await producer.flush();
  return { ns, store, env };
}

test("hazard 23: a reader whose next version is gone goes to the head, and does not take itself for being there", async () => {
  const { world, log } = await begun();
  const slow = world.open(uri, log.spec);
  const before = await slow.head.newest();
  await new Writer(log, "other").write(12);
  const report = await reclaim(log, now);
  expect(report.boundary.after).toBeGreaterThan(before.version);
  expect((await slow.head.advance()).version).toBe((await log.head.jump()).version);
});

describe("hazard 26: a slow reader against the reclaimer", () => {
  test.each([
    ["knows of the trim", true],
    ["knows nothing of it and finds its object gone", false],
  ])("one that %s is told RECLAIMED, with its row and the oldest one left", async (_, knows) => {
    const { ns, store, env } = await written(20);
    const reader = knows ? ns : await openNamespace("memory:read", { store, env });
    const slow = await reader.consumer({ from: "earliest", prefetchIterationsMax: 1, environment: {} });
    const other = knows ? ns : await openNamespace("memory:read", { store, env });
    await other.checkpoint("c", makeCursor(ns.uuid, 15, 15));
    await other.reclaim({ graceMs: 0, keepVersions: 1 });
    const seen: string[] = [];
    const read = async (): Promise<void> => {
      for await (const share of slow) seen.push(Buffer.from(share.slices[0]?.bytes ?? []).toString());
    };
    await expect(read()).rejects.toMatchObject({
      code: "RECLAIMED",
      details: { row: seen.length, oldestRow: 15 },
    });
    expect(seen).toEqual(seen.map((_each, i) => `step ${i}`));
    expect(seen.length).toBeLessThan(15);
    await slow.return();
  });
});

describe("hazard 27: a new checkpoint against a concurrent trim", () => {
  test("the checkpoint comes first: the trim is worked out again from the state that has it", async () => {
    const { world, log } = await begun();
    await registerCheckpoint(log, { id: "late", cursor: cursorAt(log, 5) });
    const reclaimer = struckView(world, log, async () => {
      await registerCheckpoint(log, { id: "early", cursor: cursorAt(log, 2), group: "slow" });
    });
    const report = await reclaim(reclaimer, now);
    expect(report.trim.after).toBe(2);
    expect([...(await readAll(world.open(uri, log.spec))).keys()]).toEqual([2, 3, 4, 5]);
  });

  test("the trim comes first: the checkpoint is refused, and is not live", async () => {
    const { world, log } = await begun();
    await registerCheckpoint(log, { id: "late", cursor: cursorAt(log, 5) });
    const rank = struckView(world, log, async () => void (await reclaim(world.open(uri, log.spec), now)));
    const registered = registerCheckpoint(rank, { id: "early", cursor: cursorAt(log, 2), group: "slow" });
    await expect(registered).rejects.toMatchObject({ code: "RECLAIMED", details: { trim: 5 } });
    expect(liveCheckpoints(await log.head.jump(), rows).map(({ id }) => id)).toEqual(["late"]);
  });
});

test("hazard 28: a restored checkpoint older than the trim is refused when the reader opens, naming the oldest row left", async () => {
  const { ns } = await written(20);
  await ns.checkpoint("c", makeCursor(ns.uuid, 12, 12));
  await ns.reclaim({ graceMs: 0, keepVersions: 1 });
  for (const from of [makeCursor(ns.uuid, 3, 3), makeCursor(ns.uuid, 11, 11), { step: 3 }, { row: 11 }])
    await expect(ns.consumer({ from, environment: {} })).rejects.toMatchObject({
      code: "RECLAIMED",
      message: expect.stringContaining("oldest row left is 12"),
    });
  await (await ns.consumer({ from: { row: 12 }, environment: {} })).return();
});

test("hazard 41: liveness is that of the version with the cutoff: what was committed since the reclaimer looked stays", async () => {
  const { world, log } = await begun();
  const slow = new Writer(world.open(uri, log.spec), "slow");
  const upload = await slow.upload();
  await new Writer(log, "other").write(8);
  const reclaimer = struckView(world, log, () => slow.commit([upload]));
  const report = await reclaim(reclaimer, now);
  // Old enough to be taken for an orphan by whoever does not see that it is in.
  expect(report.cutoff.after).toBeGreaterThan(upload.base);
  const texts = [...(await readAll(world.open(uri, log.spec))).values()];
  expect(texts.filter((text) => text.includes(" slow 0 "))).toHaveLength(1);
});

test("hazard 48: whose opening it was is told by the incarnation: the loser takes the next epoch, and a borrowed epoch is FENCED", async () => {
  const { world, log } = await begun();
  let winner: Opening | undefined;
  const late = struckView(world, log, async () => {
    winner = await openProducer(log, "twin");
  });
  const loser = await openProducer(late, "twin");
  expect([winner?.holder.epoch, loser.holder.epoch]).toEqual([1, 2]);
  const borrowed: Holder = { ...(winner?.holder as Holder), epoch: loser.holder.epoch };
  const zombie = new Writer(log, "twin");
  zombie.holder = borrowed;
  const batch = await zombie.upload({ seq: 0 });
  await expect(log.attemptBatches(borrowed, [batch], { fresh: true })).rejects.toMatchObject({ code: "FENCED" });
});

test("hazard 49: no two uploads have the same name, be they of one batch, or of two holders with the same epoch and seq", async () => {
  const { log } = await begun();
  const names: string[] = [];
  for (const incarnation of ["aaaaaaaaaaaa", "bbbbbbbbbbbb"]) {
    const content = { metadata: {}, encoding: "none" } as const;
    const upload = new Upload(log, { producer: "p", epoch: 1, incarnation }, 0, content, 1_000);
    upload.hold([Buffer.from(incarnation), Buffer.from("1")]);
    // The same base again and again: nothing else tells the attempts apart.
    for (let attempt = 0; attempt < 3; attempt++)
      names.push(batchKey(await upload.send(new AbortController().signal), 0));
  }
  expect(new Set(names).size).toBe(6);
});

describe("hazard 55: an upload slower than the reclaim period", () => {
  test("what expired is uploaded again on the newest version, however many have passed since the last base", async () => {
    const env = new AutoEnv();
    const inner = new MemoryStore();
    const store = new HookedStore(inner);
    const ns = await createNamespace("memory:55", { grid }, { store, env });
    const other = await ns.producer({ id: "other", cadence: { kind: "interval", intervalMs: 1 } });
    const commitOthers = async (versions: number): Promise<void> => {
      for (let i = 0; i < versions; i++) {
        await other.append([Buffer.from("x")]);
        await other.flush();
      }
    };
    const put = store.put.bind(store);
    let uploads = 0;
    let newest = 0;
    store.put = async (key, body, options) => {
      if (key.includes("/batch/") && key.includes("/slow-")) {
        if (uploads++ === 0) {
          await commitOthers(40);
          await ns.reclaim({ graceMs: 0, keepVersions: 20 });
        } else newest = (await ns.info()).version;
      }
      await put(key, body, options);
    };
    // Versions come fast, so bases are round numbers far below the newest.
    await commitOthers(40);
    const producer = await ns.producer({ id: "slow", cadence: { kind: "interval", intervalMs: 1 } });
    await (await producer.append([Buffer.from("x")])).committed;
    await producer.close();
    await other.close();
    const names = (await lifeStore(inner, { format: 2, uuid: ns.uuid }).list("batch/")).objects.map(
      ({ key }) => parseBatchKey(key)?.name as Descriptor,
    );
    const again = names.find((name) => name.producer === "slow" && name.attempt === 1);
    expect(again?.base).toBe(newest);
  });

  test("a base does not get older than a minute while versions are few: uploads of some minutes stay within the grace", async () => {
    const env = new AutoEnv();
    const store = new MemoryStore();
    const ns = await createNamespace("memory:55b", { grid }, { store, env });
    await using producer = await ns.producer({ id: "p", cadence: { kind: "interval", intervalMs: 1 } });
    const bases: number[] = [];
    for (let i = 0; i < 12; i++) {
      await (await producer.append([Buffer.from("x")])).committed;
      env.nowMs += 61_000;
      const { objects } = await lifeStore(store, { format: 2, uuid: ns.uuid }).list("batch/");
      bases.push(Math.max(...objects.map(({ key }) => parseBatchKey(key)?.name.base ?? 0)));
    }
    expect(new Set(bases).size).toBe(12);
    expect((await ns.info()).version - (bases.at(-1) as number)).toBeLessThanOrEqual(1);
  });
});
