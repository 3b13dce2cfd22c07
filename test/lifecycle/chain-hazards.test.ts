/**
 * Property: whatever a reclaimer, a zombie or a lost answer does to the chain, a batch is in the log once and only verified state concludes
 * anything. Method: step in at the exact call where the hazard strikes, with a real reclaim in between.
 */

import { describe, expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import {
  asEpoch,
  asVersion,
  batchKey,
  type Descriptor,
  encodeManifest,
  type Manifest,
  manifestKey,
  manifestPrefix,
} from "../../src/format/index.js";
import { createNamespace, MemoryStore } from "../../src/index.js";
import { reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import { Draft, type Holder, type Log, listIntents, publishIntents } from "../../src/log/index.js";
import { HookedStore } from "./hooked-store.js";
import { cursorAt, keysOf, readAll, SmallWorld, Writer } from "./small-world.js";

const uri = "memory:a";
const now = { graceMs: 0, keepVersions: 2 };

/** Others commit, and a reclaim deletes every version they passed. */
async function moveOn(log: Log, count = 12): Promise<void> {
  await new Writer(log, "other").write(count);
  await reclaim(log, now);
}

/** How often a batch of `producer` with this seq is in the log. */
async function occurrences(log: Log, producer: string, seq: number): Promise<number> {
  const texts = [...(await readAll(log)).values()];
  return texts.filter((text) => text.includes(` ${producer} ${seq} 0`)).length;
}

async function begun(): Promise<{ world: SmallWorld; log: Log }> {
  const world = new SmallWorld();
  const log = await world.create(uri);
  await new Writer(log, "first").write(3);
  return { world, log };
}

describe("hazard 16: the boundary passes a commit before its check", () => {
  test("a legitimate commit is unknown, not lost, and is not published twice", async () => {
    const { world, log } = await begun();
    let struck = 0;
    const hooked = new HookedStore(world.store(uri), {
      create: async (key, inner) => {
        const outcome = await inner();
        if (key.startsWith(manifestPrefix) && outcome === "created" && struck++ === 1) await moveOn(log);
        return outcome;
      },
    });
    const writer = new Writer(world.open(uri, log.spec, hooked), "late");
    await writer.open();
    const batch = await writer.upload();
    const first = await writer.log.attemptBatches(writer.holder as Holder, [batch], { fresh: true });
    expect(struck).toBeGreaterThan(1);
    expect(first.outcome).toBe("unsettled");
    const second = await writer.log.attemptBatches(writer.holder as Holder, [batch], { fresh: true });
    expect(second.result?.verdicts).toEqual(["in"]);
    expect(await occurrences(world.open(uri, log.spec), "late", 0)).toBe(1);
  });

  test("a loser that reads a zombie winner with its batch in it acknowledges nothing", async () => {
    const { world, log } = await begun();
    const writer = new Writer(world.open(uri, log.spec), "loser");
    await writer.open();
    const batch = await writer.upload();
    const base = await writer.log.head.newest();
    // A very stale process will create the name again, with the loser's batch carried.
    const draft = new Draft(base, { id: "vvvvvvvvvvvv", by: "zombie", time: 0, boundaryHint: 0 });
    draft.push(batch);
    const state = draft.producers.get("loser");
    draft.producers.set("loser", { ...(state as NonNullable<typeof state>), seq: 1 as never, at: draft.version });
    const zombie = encodeManifest(draft.finish());
    await moveOn(log);
    expect(await world.store(uri).create(manifestKey(asVersion(base.version + 1)), zombie)).toBe("created");
    const attempt = await writer.log.attemptBatches(writer.holder as Holder, [batch]);
    expect(attempt.outcome).not.toBe("committed");
    expect(attempt.manifest.version).toBeGreaterThan(base.version + 5);
    expect(attempt.manifest.producers.get("loser")?.seq).toBe(0);
    expect(await occurrences(world.open(uri, log.spec), "loser", 0)).toBe(0);
  });
});

describe("hazard 17: a re-PUT of the same bytes resurrects a deleted version", () => {
  test("its creation proves nothing; producer state tells that the first one landed", async () => {
    const { world, log } = await begun();
    let armed = false;
    const hooked = new HookedStore(world.store(uri), {
      create: async (key, inner) => {
        const outcome = await inner();
        if (!armed || !key.startsWith(manifestPrefix)) return outcome;
        armed = false;
        // It landed, the answer is lost, and before the re-PUT the name is gone again.
        await moveOn(log);
        expect(await world.store(uri).get(key)).toBeUndefined();
        return "unknown";
      },
    });
    const writer = new Writer(world.open(uri, log.spec, hooked), "p");
    await writer.open();
    const batch = await writer.upload();
    armed = true;
    const attempt = await writer.log.attemptBatches(writer.holder as Holder, [batch], { fresh: true });
    expect(attempt.outcome).toBe("unsettled");
    await writer.commit([batch]);
    expect(await occurrences(world.open(uri, log.spec), "p", 0)).toBe(1);
  });
});

describe("hazard 24: probing forward into a hole", () => {
  test("a follower that finds a zombie at the next name loads the head instead", async () => {
    const { world, log } = await begun();
    const follower = world.open(uri, log.spec);
    const known = await follower.head.newest();
    const next = asVersion(known.version + 1);
    await new Writer(log, "other").write(1);
    const stale = (await log.head.read(next)) as Manifest;
    await moveOn(log);
    await world.store(uri).create(manifestKey(next), encodeManifest({ ...stale, closed: true }));
    const seen = await follower.head.advance();
    expect(seen.version).toBeGreaterThan(next + 5);
    expect(seen.closed).toBe(false);
  });
});

describe("hazard 25 and 33: listed, then deleted before the GET", () => {
  test("the head is found all the same, from any stale listing or hint", async () => {
    const { world, log } = await begun();
    let strikes = 0;
    const hooked = new HookedStore(world.store(uri), {
      afterList: async (prefix) => {
        if (prefix === manifestPrefix && strikes++ < 3) await moveOn(log);
      },
    });
    const head = await world.open(uri, log.spec, hooked).head.load();
    expect(strikes).toBeGreaterThan(1);
    expect(head.version).toBeGreaterThan(40);
    expect(await world.store(uri).get(manifestKey(head.version))).toBeDefined();
  });
});

describe("hazard 31: a corrupt manifest", () => {
  test("stops readers and the reclaimer; nothing is skipped, nothing deleted", async () => {
    const { world, log } = await begun();
    const { version } = await log.head.jump();
    const store = world.store(uri);
    const bytes = (await store.get(manifestKey(version))) as Uint8Array;
    bytes[40] = (bytes[40] as number) ^ 1;
    await store.put(manifestKey(version), bytes);
    const before = await keysOf(store);
    await expect(world.open(uri, log.spec).head.load()).rejects.toMatchObject({ code: "CORRUPT" });
    await expect(reclaim(world.open(uri, log.spec), now)).rejects.toMatchObject({ code: "CORRUPT" });
    expect(await keysOf(store)).toEqual(before);
  });
});

describe("hazard 45: clean-up after a commit that only seemed to fail", () => {
  test("producers that lose, conflict and are fenced delete no data, index or manifest object", async () => {
    const store = new HookedStore(new MemoryStore(), {
      create: async (key, inner) => {
        const outcome = await inner();
        const isLost = key.startsWith(manifestPrefix) && Number(key.slice(-7, -5)) % 3 === 0;
        return isLost && outcome === "created" ? "unknown" : outcome;
      },
    });
    const ns = await createNamespace("memory:45", { grid: { rows: 1, chunks: 1 } }, { store });
    const slice = [Buffer.from("x")];
    const producers = await Promise.all(["a", "b", "c"].map((id) => ns.producer({ id })));
    await Promise.all(
      producers.map(async (p) => {
        for (let i = 0; i < 10; i++) await p.append(slice, { resumePoint: i });
        await p.flush();
      }),
    );
    const newer = await ns.producer({ id: "a" });
    const late = producers[0]?.append(slice).then(() => producers[0]?.flush());
    await expect(late).rejects.toMatchObject({ code: "FENCED" });
    for (const producer of [newer, ...producers.slice(1)]) await producer.close();
    expect(store.deleted.filter((key) => !key.startsWith("intent/"))).toEqual([]);
    expect((await ns.verify({ level: "bytes" })).problems).toEqual([]);
  });
});

describe("hazard 47 and 54: intents of zombies, and poisoned ones", () => {
  test("a fenced holder's intent is never carried past its successor; a poisoned one is skipped", async () => {
    const { world, log } = await begun();
    const { uuid } = log.spec;
    const zombie = new Writer(world.open(uri, log.spec), "twice");
    await zombie.open();
    const old = await zombie.upload();
    const successor = new Writer(world.open(uri, log.spec), "twice");
    await successor.open();
    const good = new Writer(world.open(uri, log.spec), "good");
    await good.open();
    const fine = await good.upload();
    const poisoned = new Writer(world.open(uri, log.spec), "poisoned");
    await poisoned.open();
    const bad: Descriptor = { ...(await poisoned.upload()), extents: [{ cells: 9, size: 1, table: 1, check: 1 }] };
    for (const batch of [old, fine, bad]) await publishIntents(log.store, uuid, [batch]);
    const helper = new Writer(world.open(uri, log.spec), "helper");
    await helper.open();
    const own = await helper.upload();
    const intents = await listIntents(log.store, uuid);
    const { result } = await helper.log.attemptBatches(helper.holder as Holder, [own], { fresh: true, intents });
    expect(result).toMatchObject({ verdicts: ["staged"], carried: 1 });
    const fresh = world.open(uri, log.spec);
    expect(await occurrences(fresh, "good", 0)).toBe(1);
    expect(await occurrences(fresh, "twice", 0)).toBe(0);
    await reclaim(log, { graceMs: 1e9, keepVersions: 2 });
    const left = await listIntents(log.store, uuid);
    expect([...left.batches.values()].flat().map((batch) => batch.producer)).toEqual(["poisoned"]);
  });
});

describe("hazard 48 and 49: two holders of one id", () => {
  test("one incarnation holds it, and the same seq of the two never has the same name", async () => {
    const { world, log } = await begun();
    const pair = [new Writer(world.open(uri, log.spec), "twin"), new Writer(world.open(uri, log.spec), "twin")];
    await Promise.all(pair.map((writer) => writer.open()));
    const [a, b] = await Promise.all(pair.map((writer) => writer.upload()));
    expect(batchKey(a as Descriptor, 0)).not.toBe(batchKey(b as Descriptor, 0));
    const outcomes = await Promise.allSettled([pair[0]?.commit([a as Descriptor]), pair[1]?.commit([b as Descriptor])]);
    expect(outcomes.map((o) => o.status).sort()).toEqual(["fulfilled", "rejected"]);
    expect(await occurrences(world.open(uri, log.spec), "twin", 0)).toBe(1);
  });
});

describe("hazard 51: a silent producer's state is moved out while it returns", () => {
  test("it finds its seq and resume point, whichever commit comes first", async () => {
    for (let seed = 1; seed <= 8; seed++) {
      const world = new SmallWorld(seed);
      const made = await world.create(uri);
      const silence = { silentVersions: 24, inlineProducersMin: 2 };
      const log = world.open(uri, made.spec, world.store(uri), silence);
      for (let i = 0; i < 18; i++) await new Writer(log, `s${i}`).write(2);
      const busy = new Writer(log, "busy");
      await busy.write(23);
      await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 50) });
      const returning = [3, 9, 17].map(
        (i) => new Writer(world.open(uri, made.spec, world.store(uri), silence), `s${i}`),
      );
      for (const writer of returning) await writer.log.head.newest();
      await Promise.all([
        busy.write(4),
        reclaim(world.open(uri, made.spec), now),
        ...returning.map((writer) => writer.open()),
      ]);
      for (const writer of returning) {
        expect(writer.seq).toBe(2);
        await writer.write(1);
        const opened = await openProducer(world.open(uri, made.spec), writer.id);
        expect([opened.state.seq, opened.resumePoint]).toEqual([3, { after: 2 }]);
      }
      await readAll(world.open(uri, made.spec));
    }
  });
});

describe("hazard 53: a lane is its id", () => {
  test("another id cannot take its steps, and a successor goes on where it stood", async () => {
    const world = new SmallWorld();
    const log = await world.create(uri, { kind: "lanes", lanes: 2 });
    for (const id of ["lane-0", "lane-1"]) await new Writer(log, id).write(4);
    const intruder = new Writer(log, "lane-2");
    await expect(intruder.write(1)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    const successor = new Writer(world.open(uri, log.spec), "lane-0");
    await successor.open();
    expect([successor.seq, successor.holder?.epoch]).toEqual([4, asEpoch(2)]);
    await successor.write(2);
    await new Writer(log, "lane-1").write(2);
    await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 6) });
    await reclaim(log, now);
    const texts = [...(await readAll(world.open(uri, log.spec))).values()];
    expect(texts.map((text) => text.match(/lane-\d \d/)?.[0])).toEqual([
      "lane-0 3",
      "lane-1 3",
      "lane-0 4",
      "lane-1 4",
      "lane-0 5",
      "lane-1 5",
    ]);
  });
});
