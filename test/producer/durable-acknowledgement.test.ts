/**
 * Property: nothing is acknowledged on a manifest that can still vanish with a power failure, whichever process created it. Method: a store that has
 * `sync`, as files do, and tells when it was asked for which name; a batch carried by another process, a checkpoint that another rank
 * registered, a boundary that another reclaimer announced.
 */

import { expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import { systemEnv } from "../../src/env/index.js";
import { asVersion, decodeNamespace } from "../../src/format/index.js";
import { BatchWeaveError, createNamespace, openNamespace, type Producer } from "../../src/index.js";
import { reclaim, registerCheckpoint } from "../../src/lifecycle/index.js";
import { type Holder, Log, listIntents } from "../../src/log/index.js";
import { MemoryStore } from "../../src/store/index.js";
import { cursorAt, SmallWorld, Writer } from "../lifecycle/small-world.js";

/** A store whose names do not survive power loss by themselves. */
class VolatileStore extends MemoryStore {
  readonly synced: string[] = [];
  onSync: (key: string) => Promise<void> = async () => {};

  async sync(key: string): Promise<void> {
    await this.onSync(key);
    this.synced.push(key);
  }
}

/** The same objects, seen by another process. */
function seenBy(store: MemoryStore): VolatileStore {
  const other = new VolatileStore();
  for (const call of ["create", "put", "get", "getRange", "list", "delete"] as const)
    Object.assign(other, { [call]: store[call].bind(store) });
  return other;
}

interface Pair {
  readonly volatile: VolatileStore;
  readonly producer: Producer;
  /** Waits until there is something to carry, and commits it. */
  readonly carry: () => Promise<void>;
}

/** A follower on a volatile store, and another process that carries its batch. */
async function makePair(): Promise<Pair> {
  const store = new MemoryStore();
  await createNamespace("memory:", { grid: { rows: 1, chunks: 1 } }, { store });
  const volatile = seenBy(store);
  const spec = decodeNamespace((await store.get("namespace.json")) as Uint8Array, "namespace.json");
  const carrier = new Log({ store, env: systemEnv, spec, openOrigin: async () => store });
  const { holder } = await openProducer(carrier, "carrier");
  const producer = await (await openNamespace("memory:", { store: volatile })).producer({ id: "follower" });
  const carry = async (): Promise<void> => {
    let intents = await listIntents(carrier.store, spec.uuid);
    while (intents.batches.size === 0) {
      await systemEnv.sleep(5);
      intents = await listIntents(carrier.store, spec.uuid);
    }
    const attempt = await carrier.attemptBatches(holder as Holder, [], { fresh: true, intents });
    expect(attempt.result?.carried).toBe(1);
  };
  return { volatile, producer, carry };
}

test("a carried batch is acknowledged only when the carrier's manifest is durable", async () => {
  const { volatile, producer, carry } = await makePair();
  let syncs = 0;
  let acknowledged = false;
  volatile.onSync = async () => {
    expect(acknowledged).toBe(false);
    syncs++;
  };
  const ticket = await producer.append([Buffer.from("x")]);
  const committed = ticket.committed.then(({ version }) => {
    acknowledged = true;
    return version;
  });
  await carry();
  const version = await committed;
  expect(syncs).toBe(1);
  expect(volatile.synced).toEqual([expect.stringMatching(new RegExp(`manifest/0*${version}\\.json$`))]);
  await producer.close();
});

test("a store that cannot make it durable acknowledges nothing", async () => {
  const { volatile, producer, carry } = await makePair();
  volatile.onSync = async (key) => {
    throw new BatchWeaveError("STORE_UNAVAILABLE", `cannot sync ${key}`);
  };
  const ticket = await producer.append([Buffer.from("x")]);
  await carry();
  await expect(ticket.committed).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
  await expect(producer.close()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
});

test("what is concluded without a commit is synced first, once", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log, "p").write(3);
  await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 1) });
  const volatile = seenBy(world.store("memory:a") as MemoryStore);
  const other = world.open("memory:a", log.spec, volatile);
  await registerCheckpoint(other, { id: "c", cursor: cursorAt(log, 1) });
  expect(volatile.synced.length).toBe(1);
  await registerCheckpoint(other, { id: "c", cursor: cursorAt(log, 1) });
  expect(volatile.synced.length).toBe(1);
});

test("a boundary that somebody else announced is synced before anything is deleted", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log, "p").write(12);
  await registerCheckpoint(log, { id: "c", cursor: cursorAt(log, 6) });
  await reclaim(log, { graceMs: 0, keepVersions: 2 });
  const { n, upTo } = log.head.boundary.newest;
  const volatile = seenBy(world.store("memory:a") as MemoryStore);
  const other = world.open("memory:a", log.spec, volatile);
  const head = await other.head.load();
  await other.head.boundary.announce(asVersion(upTo), head.version, world.env);
  expect(volatile.synced).toEqual([`boundary/${String(n).padStart(20, "0")}.json`]);
});

test("a manifest names no marker that its writer has not synced yet", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:a");
  await new Writer(log, "p").write(6);
  const volatile = seenBy(world.store("memory:a") as MemoryStore);
  const other = world.open("memory:a", log.spec, volatile);
  const { version } = await log.head.load();
  await log.head.boundary.announce(asVersion(2), version, world.env);
  expect(await other.head.boundary.look()).toBe(2);
  const hintOf = async (id: string): Promise<number> => {
    await registerCheckpoint(other, { id, cursor: cursorAt(log, 1) });
    return (await other.head.newest()).boundaryHint;
  };
  expect(await hintOf("a"), "seen, not synced").toBe(0);
  await other.head.boundary.announce(asVersion(2), version, world.env);
  expect(volatile.synced.at(-1)).toMatch(/boundary/);
  expect(await hintOf("b"), "synced").toBe(1);
});
