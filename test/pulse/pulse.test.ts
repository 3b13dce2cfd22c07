/**
 * Property: pulses tell who lives, at a rate that does not grow with the fleet, and nothing depends on them: a store that fails, refuses or hangs is
 * no trouble to its process, a log without or with damaged ones is the same log, and those of the dead go.
 * Method: writers on a clock that is moved by hand, over a store in memory whose writes are counted.
 */
import { spawnSync } from "node:child_process";
import { expect, test } from "vitest";
import { BatchWeaveError } from "../../src/errors.js";
import { encodePulse, parsePulseKey, pulseBytesMax, pulseKey } from "../../src/format/index.js";
import { createNamespace, deleteNamespace, MemoryStore, type WriteOptions } from "../../src/index.js";
import { PulseReader, removeGonePulses, startPulse } from "../../src/pulse/index.js";
import { machineId } from "../../src/pulse/machine.js";
import { ManualEnv } from "../consumer/manual-env.js";

const uuid = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";

class CountedStore extends MemoryStore {
  puts: number[] = [];
  gets = 0;
  fail: (() => Promise<void>) | undefined;

  readonly clock: ManualEnv;

  constructor(clock: ManualEnv) {
    super();
    this.clock = clock;
  }

  override async put(key: string, body: Uint8Array, options?: WriteOptions): Promise<void> {
    await this.fail?.();
    this.puts.push(this.clock.now());
    await super.put(key, body, options);
  }

  override async get(key: string): Promise<Uint8Array | undefined> {
    this.gets++;
    return await super.get(key);
  }
}

test("a name says all of itself, and any other name is skipped", () => {
  const name = {
    role: "rank",
    name: "default-r-3",
    atMs: 1_760_000_000_000,
    everyMs: 10_000,
    incarnation: "0123456789ab",
  };
  expect(parsePulseKey(pulseKey(name))).toEqual(name);
  for (const key of [
    "pulse/rank/r-01-5-0123456789ab",
    "pulse/Rank/r-1-5-0123456789ab",
    "pulse/rank/-1-5-0123456789ab",
    "pulse/rank/__proto__-1-5-0123456789ab",
    `pulse/rank/r-${"9".repeat(16)}-5-0123456789ab`,
    "pulse/rank/r-1-5-0123456789az",
  ])
    expect(parsePulseKey(key)).toBeUndefined();
});

test("the bytes are those of the other language", () => {
  const name = {
    role: "rank",
    name: "default-3",
    atMs: 1_760_000_000_000,
    everyMs: 10_000,
    incarnation: "0123456789ab",
  };
  const facts = { step: 5, client: "python" };
  const bytes = encodePulse(uuid, name, {
    host: "node-1",
    pid: 77,
    machine: "m.1",
    startedMs: 1_759_999_999_000,
    facts,
  });
  // python/tests/test_pulse.py has the same line.
  expect(Buffer.from(bytes).toString()).toBe(
    '{"format":1,"kind":"pulse","namespace":"6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5","role":"rank","name":"default-3","at":1760000000000,"every":10000,"host":"node-1","pid":77,"machine":"m.1","started":1759999999000,"facts":{"step":5,"client":"python"},"crc32":"6ee22988"}\n',
  );
});

test("a process of this machine that is gone is dead, and nobody else is", async () => {
  const env = new ManualEnv();
  const store = new MemoryStore();
  const machine = machineId();
  const gone = spawnSync(process.execPath, ["--version"]).pid;
  const put = async (name: string, pid: number, where: string | undefined): Promise<void> => {
    const own = { role: "rank", name, atMs: env.now(), everyMs: 10_000, incarnation: "0123456789ab" };
    own.incarnation = `${name}0123456789ab`.slice(0, 12);
    const body = { host: "h", pid, machine: where, startedMs: 0, facts: {} };
    await store.put(pulseKey(own), encodePulse(uuid, own, body));
  };
  await put("a", gone, machine);
  await put("b", process.pid, machine);
  await put("c", gone, "another.1");
  await put("d", gone, undefined);
  await put("e", 0, machine);
  const found = await new PulseReader(env, store, uuid).read();
  // Where the machine does not tell who it is, nobody is called dead.
  expect(found.filter(({ isDead }) => isDead).map(({ name }) => name)).toEqual(machine === undefined ? [] : ["a"]);
  expect(found).toHaveLength(5);
});

test("one process is seen within a second, tells news every ten, and leaves nothing when it stops", async () => {
  const env = new ManualEnv();
  const store = new CountedStore(env);
  let batches = 7;
  const pulse = startPulse(env, store, uuid, { role: "producer", name: "p0", facts: () => ({ batches }) });
  await env.pass(1_000);
  const reader = new PulseReader(env, store, uuid);
  const [first] = await reader.read();
  expect(first).toMatchObject({ role: "producer", name: "p0", everyMs: 10_000, isLate: false, facts: { batches: 7 } });
  expect(first?.pid).toBe(process.pid);
  batches = 8;
  await env.pass(11_100);
  expect(await reader.read()).toMatchObject([{ facts: { batches: 8 }, startedMs: first?.startedMs }]);
  const { gets } = store;
  await reader.read();
  expect(store.gets, "a body is read once").toBe(gets);
  await pulse.stop();
  expect((await store.list("")).objects).toEqual([]);
});

test("two hundred processes write no more than about twelve a minute together, from their first moment on", async () => {
  const env = new ManualEnv();
  const store = new CountedStore(env);
  const peers = 200;
  const fleet = Array.from({ length: peers }, (_, i) =>
    startPulse(env, store, uuid, { role: "rank", name: `default-${i}`, peers }),
  );
  // Every one has written after the first thousand seconds.
  await env.pass(1_000_000);
  const begun = env.now();
  expect(store.puts.filter((at) => at < begun).length / (1_000_000 / 60_000)).toBeLessThan(16);
  expect(await new PulseReader(env, store, uuid).read()).toHaveLength(peers);
  await env.pass(3_000_000);
  const perMinute = store.puts.filter((at) => at >= begun).length / 50;
  expect(perMinute).toBeGreaterThan(8);
  expect(perMinute).toBeLessThan(13);
  expect((await store.list("")).objects.length).toBe(peers);
  await Promise.all(fleet.map((pulse) => pulse.stop()));
});

test("a store that fails, hangs or refuses delays nobody: failures are counted, tries get fewer, and who may not write stops", async () => {
  const env = new ManualEnv();
  const store = new CountedStore(env);
  let tries = 0;
  store.fail = async () => {
    tries++;
    throw new BatchWeaveError("STORE_UNAVAILABLE", "gone");
  };
  const pulse = startPulse(env, store, uuid, { role: "producer", name: "p0" });
  await env.pass(3_600_000);
  expect(tries).toBe(pulse.counts.failed);
  expect(tries).toBeGreaterThan(5);
  expect(tries).toBeLessThan(25);
  store.fail = undefined;
  await env.pass(400_000);
  expect(pulse.counts.written).toBeGreaterThan(0);
  await pulse.stop();

  store.fail = () => new Promise(() => {});
  const hung = startPulse(env, store, uuid, { role: "producer", name: "p1" });
  await env.pass(5_000);
  await env.drive(hung.stop());

  let denied = 0;
  store.fail = async () => {
    denied++;
    throw new BatchWeaveError("STORE_DENIED", "read-only");
  };
  const reader = startPulse(env, store, uuid, { role: "rank", name: "r0" });
  await env.pass(600_000);
  expect(denied).toBe(1);
  await reader.stop();
});

test("a successor takes away what its predecessor left, and what is long gone is deleted; living ones stay", async () => {
  const env = new ManualEnv();
  const store = new CountedStore(env);
  const left = (name: string, atMs: number): Promise<void> => {
    const one = { role: "rank", name, atMs, everyMs: 10_000, incarnation: env.id() };
    return store.put(pulseKey(one), encodePulse(uuid, one, { host: "h", pid: 1, startedMs: 0, facts: {} }));
  };
  await left("a", env.now());
  await left("b", env.now());
  await env.pass(60_000);
  await left("c", env.now());
  const pulse = startPulse(env, store, uuid, { role: "rank", name: "a" });
  await env.pass(1_000);
  const entries = await new PulseReader(env, store, uuid).read();
  expect(entries.map(({ name, isLate }) => [name, isLate])).toEqual([
    ["a", false],
    ["b", true],
    ["c", false],
  ]);
  expect(await removeGonePulses(env, store)).toBe(0);
  await env.pass(3_640_000);
  expect(await removeGonePulses(env, store)).toBe(2);
  expect((await new PulseReader(env, store, uuid).read()).map(({ name }) => name)).toEqual(["a"]);
  await pulse.stop();
});

test("facts that are too many are cut, the last first; what is damaged or strange is shown without them", async () => {
  const env = new ManualEnv();
  const store = new CountedStore(env);
  const facts = { step: 5, ...Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`k${i}`, "x".repeat(100)])) };
  const name = { role: "loader", name: "l", atMs: env.now(), everyMs: 10_000, incarnation: "0123456789ab" };
  const bytes = encodePulse(uuid, name, { host: "h".repeat(300), pid: 1, startedMs: 0, facts });
  expect(bytes.length).toBeLessThanOrEqual(pulseBytesMax);
  await store.put(pulseKey(name), bytes);
  const damaged = { ...name, name: "m", incarnation: "0123456789ac" };
  await store.put(pulseKey(damaged), bytes.subarray(0, 50));
  const large = { ...name, name: "n", incarnation: "0123456789ad" };
  await store.put(pulseKey(large), new Uint8Array(10_000));
  await store.put("pulse/rank/what-is-this", new Uint8Array(3));
  const entries = await new PulseReader(env, store, uuid).read();
  expect(entries.map((one) => [one.name, one.facts["step"]])).toEqual([
    ["l", 5],
    ["m", undefined],
    ["n", undefined],
  ]);
});

test("a log with pulses verifies, is reclaimed and deleted as without", async () => {
  const store = new MemoryStore();
  const ns = await createNamespace("memory:pulse", { grid: { rows: 1, chunks: 1 } }, { store });
  await using pulse = ns.pulse({ role: "producer", name: "p", facts: () => ({ x: 1 }) });
  const producer = await ns.producer({ id: "p" });
  await producer.append([new Uint8Array(9)]);
  await producer.close();
  await expect.poll(async () => (await ns.pulses()).length).toBe(1);
  expect((await ns.verify()).problems).toEqual([]);
  await ns.reclaim({ graceMs: 0, keepVersions: 1 });
  expect(await ns.pulses()).toHaveLength(1);
  await deleteNamespace("memory:pulse", { store });
  expect((await store.list("")).objects.filter(({ key }) => !key.includes("boundary/"))).toEqual([]);
  await pulse.stop();
});
