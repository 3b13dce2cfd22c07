/**
 * Property: a commit, a search for the head, a look at the boundary and at `namespace.json`, and a resume point cost exactly the requests and the waits that they are meant to, whatever
 * a store answers: unknown, refused, late, gone, full of versions. Method: a store whose answers are scripted, a clock that only sleeps move; every request and sleep compared.
 */
import { describe, expect, test } from "vitest";
import { BatchWeaveError, type ErrorCode } from "../../src/errors.js";
import {
  asStep,
  asVersion,
  boundaryKey,
  decodeNamespace,
  encodeBoundary,
  encodeManifest,
  encodeNamespace,
  genesisManifest,
  type Manifest,
  manifestKey,
  type NamespaceSpec,
  namespaceKey,
  parseManifestKey,
} from "../../src/format/index.js";
import { commitMaxLag } from "../../src/lifecycle/index.js";
import { type Change, type Holder, Log } from "../../src/log/index.js";
import { Presence } from "../../src/log/presence.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { AutoEnv } from "../lifecycle/auto-env.js";
import { Writer } from "../lifecycle/small-world.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 2, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};

/** Draws the middle; sleeps that are not cut short are written down. */
class MiddleEnv extends AutoEnv {
  readonly sleeps: number[] = [];

  override random(): number {
    return 0.5;
  }

  override id(): string {
    return super.id().replace(/^./, String(this.#ids++ % 10));
  }
  #ids = 0;

  override async sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    await new Promise((resolve) => setImmediate(resolve));
    signal?.throwIfAborted();
    this.sleeps.push(delayMs);
    this.nowMs += delayMs;
  }
}

type Answer = (inner: () => Promise<unknown>, key: string) => Promise<unknown>;

/** Writes requests down, `manifest/7` for the long name; the next scripted answer for a request, if any, is given instead. */
class ScriptedStore {
  readonly inner: MemoryStore = new MemoryStore("memory:s");
  readonly seen: string[] = [];
  readonly answers: [pattern: RegExp, answer: Answer][] = [];
  readonly store: ObjectStore;

  constructor(withSync = false) {
    const call = (name: string, key: string, inner: () => Promise<unknown>): Promise<never> => {
      const text = `${name} ${key}`.replaceAll(/\b0+(\d+)(\.json)?/g, "$1");
      this.seen.push(text);
      const at = this.answers.findIndex(([pattern]) => pattern.test(text));
      if (at < 0) return inner() as Promise<never>;
      const [[, answer]] = this.answers.splice(at, 1) as [(typeof this.answers)[0]];
      return answer(inner, key) as Promise<never>;
    };
    const { inner } = this;
    this.store = {
      uri: inner.uri,
      create: (key, ...rest) => call("create", key, () => inner.create(key, ...rest)),
      put: (key, ...rest) => call("put", key, () => inner.put(key, ...rest)),
      get: (key, ...rest) => call("get", key, () => inner.get(key, ...rest)),
      getRange: (key, ...rest) => call("range", key, () => inner.getRange(key, ...rest)),
      list: (prefix, options) =>
        call("list", `${prefix} ${options?.startAfter ?? ""}`.trim(), () => inner.list(prefix, options)),
      delete: (keys, ...rest) => call("delete", keys.join(), () => inner.delete(keys, ...rest)),
      ...(withSync ? { sync: (key: string) => call("sync", key, async () => undefined) } : {}),
    };
  }

  /** The next `times` requests like this are answered so. */
  next(pattern: RegExp, answer: Answer, times = 1): void {
    for (let i = 0; i < times; i++) this.answers.push([pattern, answer]);
  }

  taken(): string[] {
    return this.seen.splice(0);
  }
}

const refuse =
  (code: ErrorCode): Answer =>
  () =>
    Promise.reject(new BatchWeaveError(code, "refused", {}));
const openOrigin = (): Promise<never> => Promise.reject(new Error("no forks here"));

function open(
  of: NamespaceSpec = spec,
  withSync = false,
): { script: ScriptedStore; env: MiddleEnv; log: Log; other: Log } {
  const script = new ScriptedStore(withSync);
  const env = new MiddleEnv();
  const log = new Log({ store: script.store, env, spec: of, openOrigin });
  return { script, env, log, other: new Log({ store: script.inner, env: new AutoEnv(7), spec: of, openOrigin }) };
}

const lag = (maxLag: number): Change<undefined, boolean> => ({
  by: "test",
  kind: "settings",
  stage: (draft) => {
    const done = draft.settings?.maxLag === maxLag;
    draft.settings = { maxLag };
    return { done, result: done };
  },
});

describe("a commit", () => {
  test("without anything in its way: finds the head, PUTs, looks", async () => {
    const { script, env, log } = open();
    const { manifest } = await log.commit(lag(1));
    expect([manifest.version, env.sleeps]).toEqual([1, []]);
    const first = ["list manifest/ manifest/0", "get boundary/1", "get manifest/1", "get boundary/1"];
    expect(script.taken()).toEqual([...first, "create manifest/1", "get boundary/1"]);
    await log.commit(lag(2));
    expect(script.taken()).toEqual(["create manifest/2", "get boundary/1"]);
    await log.commit(lag(2));
    expect(script.taken()).toEqual(["list manifest/ manifest/2", "get boundary/1"]);
    expect(await log.attempt(lag(2), { fresh: true })).toMatchObject({ outcome: "nothing" });
    expect(script.taken()).toEqual(["list manifest/ manifest/2", "get boundary/1"]);
    const next = await log.attempt(lag(3), { vouchLater: true });
    expect([next.outcome, script.taken()]).toEqual(["created", ["create manifest/3"]]);
    const chain = await log.attempt(lag(4), { vouchLater: true, from: next.manifest });
    expect([chain.outcome, chain.manifest.version, script.taken()]).toEqual(["created", 4, ["create manifest/4"]]);
    const nothing = await log.attempt(lag(4), { from: chain.manifest });
    expect([nothing.outcome, nothing.manifest.version, script.taken()]).toEqual(["nothing", 4, []]);
  });

  test("an unknown outcome is tried again with the same bytes, 50 ms later, then twice as long, up to 5 s", async () => {
    const { script, env, log } = open();
    await log.head.load();
    script.taken();
    script.next(/create/, async () => "unknown", 9);
    const { manifest } = await log.commit(lag(1));
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    expect(script.taken()).toEqual([...Array(10).fill("create manifest/1"), "get boundary/1"]);
    script.next(/create/, async (inner) => {
      await inner();
      return "unknown";
    });
    const own = await log.attempt(lag(2));
    expect([own.outcome, own.manifest.version, own.manifest.commit.id === manifest.commit.id]).toEqual([
      "committed",
      2,
      false,
    ]);
    expect(script.taken()).toEqual(["create manifest/2", "create manifest/2", "get manifest/2", "get boundary/1"]);
  });

  test("a PUT that could not be sent is tried six times; any other failure ends it", async () => {
    const { script, env, log } = open();
    await log.head.load();
    script.next(/create/, refuse("STORE_UNAVAILABLE"), 5);
    expect((await log.attempt(lag(1))).outcome).toBe("committed");
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800]);
    script.next(/create/, refuse("STORE_UNAVAILABLE"), 6);
    await expect(log.attempt(lag(2))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(script.answers).toEqual([]);
    script.next(/create/, refuse("STORE_DENIED"));
    await expect(log.attempt(lag(2))).rejects.toMatchObject({ code: "STORE_DENIED" });
    expect(env.sleeps).toHaveLength(10);
  });

  test("a PUT without an answer for 1.5 s is sent once more, and either may win", async () => {
    for (const [first, second, outcome] of [
      ["never", "created", "committed"],
      ["never", "lost", "lost"],
      ["unknown", "created", "committed"],
      ["created", "never", "committed"],
    ] as const) {
      const { script, env, log, other } = open();
      await log.head.load();
      const later = async <T>(value: T): Promise<T> => {
        for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
        return value;
      };
      const answers: Record<string, Answer> = {
        never: () => new Promise(() => {}),
        unknown: () => later("unknown"),
        created: async (inner) => await later(await inner()),
        lost: async (inner) => {
          await commitMaxLag(other, 77);
          return await inner();
        },
      };
      script.next(/create/, answers[first] as Answer);
      script.next(/create/, answers[second] as Answer);
      script.taken();
      expect((await log.attempt(lag(1))).outcome, `${first}, ${second}`).toBe(outcome);
      expect(env.sleeps).toEqual([1_500]);
      expect(script.taken().filter((text) => text.startsWith("create"))).toHaveLength(2);
    }
    const { script, log } = open();
    await log.head.load();
    const late = async (): Promise<never> => {
      for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
      throw new BatchWeaveError("STORE_DENIED", "refused", {});
    };
    script.next(/create/, late);
    script.next(/create/, refuse("STORE_DENIED"));
    await expect(log.attempt(lag(1))).rejects.toMatchObject({ code: "STORE_DENIED" });
  });

  test("what is lost is tried from the new head after a random wait that doubles, up to 2 s", async () => {
    const { script, env, log, other } = open();
    await script.inner.put(namespaceKey, encodeNamespace(spec));
    await log.head.load();
    let n = 0;
    const race: Answer = async (inner) => {
      await commitMaxLag(other, ++n);
      return await inner();
    };
    script.next(/create/, race, 10);
    script.taken();
    const { manifest } = await log.commit(lag(500));
    expect(manifest.version).toBe(11);
    expect(env.sleeps).toEqual([10, 20, 40, 80, 160, 320, 640, 1_000, 1_000, 1_000]);
    const seen = script.taken();
    expect(seen.slice(0, 6)).toEqual([
      "create manifest/1",
      "get manifest/1",
      "list manifest/ manifest/0",
      "get manifest/1",
      "get boundary/1",
      "list manifest/ manifest/1",
    ]);
    expect(seen).toHaveLength(5 * 10 + 10 * 2 + 2);
    script.next(/create/, race, 1_000);
    await expect(log.commit(lag(5_000))).rejects.toMatchObject({ code: "CONTENDED", details: { attempts: 1_000 } });
    expect(script.answers).toEqual([]);
  });

  test("a version that is gone when its owner is asked for settles nothing", async () => {
    const { script, log, other } = open();
    await log.head.load();
    script.next(/create/, async () => {
      await commitMaxLag(other, 8);
      return "exists";
    });
    script.next(/get manifest\/1/, async () => undefined);
    script.taken();
    const attempt = await log.attempt(lag(9));
    expect([attempt.outcome, attempt.manifest.version]).toEqual(["unsettled", 1]);
    expect(script.taken()).toEqual([
      ...["create manifest/1", "get manifest/1", "list manifest/ manifest/0", "get manifest/1", "get boundary/1"],
      ...["get manifest/2", "get boundary/1"],
    ]);
  });

  test("a look-up that finds its object gone begins again on a newer version, and only on a newer one", async () => {
    const { script, log, other } = open();
    await log.head.load();
    let tries = 0;
    const change: Change<undefined, boolean> = {
      ...lag(9),
      prepare: async () => {
        if (++tries < 3) throw new BatchWeaveError("MISSING_OBJECT", "gone", {});
        return undefined;
      },
    };
    await expect(log.attempt(change)).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect(tries).toBe(1);
    await commitMaxLag(other, 8);
    script.taken();
    expect((await log.attempt(change)).manifest.version).toBe(2);
    expect(script.taken().filter((text) => text.startsWith("list"))).toHaveLength(1);
    tries = -5;
    const refusing = { ...change, prepare: async () => Promise.reject(new BatchWeaveError("CORRUPT", "broken", {})) };
    await expect(log.attempt(refusing)).rejects.toMatchObject({ code: "CORRUPT" });
  });

  test("a refusal is concluded from a look, not from what is known", async () => {
    const { script, log, other } = open();
    await log.head.load();
    await commitMaxLag(other, 8);
    const change: Change<undefined, boolean> = {
      ...lag(9),
      stage: (draft) => {
        if (draft.version === 1) throw new BatchWeaveError("CLOSED", "refused", {});
        draft.settings = { maxLag: 9 };
        return { done: false, result: true };
      },
    };
    script.taken();
    expect((await log.attempt(change)).manifest.version).toBe(2);
    const asked = ["list manifest/ manifest/0", "get manifest/1", "get boundary/1"];
    expect(script.taken()).toEqual([...asked, "create manifest/2", "get boundary/1"]);
    const bug = { ...change, stage: () => Promise.reject(new Error("a bug")) as never };
    bug.stage = () => {
      throw new TypeError("a bug");
    };
    await expect(log.attempt(bug)).rejects.toThrow("a bug");
  });
});

describe("the head", () => {
  const versionOf = (version: number): Manifest => ({
    ...genesisManifest(spec),
    version: asVersion(version),
    commit: { id: "c00000000000", by: "test", time: 0 },
  });
  const manifestOf = (version: number): Uint8Array => encodeManifest(versionOf(version));

  /** A log of `last` versions that are not really there. */
  function vast(last: number): { script: ScriptedStore; log: Log } {
    const found = open();
    const { script } = found;
    const names = (after: number) =>
      Array.from({ length: Math.max(0, Math.min(1_000, last - after)) }, (_, i) => ({
        key: manifestKey(asVersion(after + 1 + i)),
        size: 1,
      }));
    const of = (key: string): number => parseManifestKey(key.split(" ").at(-1) as string) ?? 0;
    script.next(/^list manifest/, async (_, key) => ({ objects: names(of(key)), more: last - of(key) > 1_000 }), 99);
    script.next(/^range manifest/, async (_, key) => (of(key) <= last ? new Uint8Array(1) : undefined), 999);
    script.next(/^get manifest/, async (_, key) => (of(key) <= last ? manifestOf(of(key)) : undefined), 99);
    return found;
  }

  test("of very many versions takes a few dozen requests", async () => {
    for (const [last, lists, probes] of [
      [1_000, 1, 0],
      [1_001, 2, 4],
      [2_000, 2, 4],
      [8_999, 2, 4],
      [9_000, 2, 8],
      [72_999, 2, 8],
      [73_000, 2, 12],
      [10_000_000, 2, 20],
    ] as const) {
      const { script, log } = vast(last);
      expect((await log.head.load()).version).toBe(last);
      const seen = script.taken();
      const count = (start: string): number => seen.filter((text) => text.startsWith(start)).length;
      expect([last, count("list"), count("range"), count("get manifest")]).toEqual([last, lists, probes, 2]);
    }
  });

  test("a jump lists what is behind the known version, and searches when that does not fit a page", async () => {
    const { script, log, other } = open();
    await log.head.load();
    for (let i = 1; i <= 3; i++) await commitMaxLag(other, i);
    script.taken();
    expect((await log.head.jump()).version).toBe(3);
    expect(script.taken()).toEqual(["list manifest/ manifest/0", "get manifest/3", "get boundary/1"]);
    expect((await log.head.jump()).version).toBe(3);
    expect(script.taken()).toEqual(["list manifest/ manifest/3", "get boundary/1"]);
    const far = vast(5_000);
    await far.log.head.load();
    expect((await far.log.head.jump()).version).toBe(5_000);
    const { log: log2, script: script2 } = open();
    await log2.head.load();
    script2.next(/^list manifest/, async () => ({
      objects: [{ key: manifestKey(asVersion(1)), size: 1 }],
      more: true,
    }));
    script2.taken();
    expect((await log2.head.jump()).version).toBe(0);
    expect(script2.taken()[1]).toBe("list manifest/ manifest/0");
  });

  test("a walk reads version by version until one is enough, or so many were read", async () => {
    const { script, log, other } = open();
    await log.head.load();
    for (let i = 1; i <= 6; i++) await commitMaxLag(other, i);
    script.taken();
    expect((await log.head.walk((m) => m.version >= 2, 3)).version).toBe(2);
    expect(script.taken()).toEqual(["get manifest/1", "get manifest/2", "get boundary/1"]);
    expect((await log.head.walk(() => false, 3)).version).toBe(5);
    expect(script.taken()).toEqual(["get manifest/3", "get manifest/4", "get manifest/5", "get boundary/1"]);
    expect((await log.head.walk(() => false, 3)).version).toBe(6);
    expect(script.taken()).toEqual(["get manifest/6", "get manifest/7", "get boundary/1"]);
    expect((await log.head.advance()).version).toBe(6);
    expect(script.taken()).toEqual(["get manifest/7", "get boundary/1"]);
    expect(log.head.lookedAtMs).toBe(log.env.monotonic());
  });

  test("nothing above the boundary: twenty listings, later and later, then it is lost", async () => {
    const { script, env, log } = open();
    await script.inner.put(boundaryKey(1), encodeBoundary(spec.uuid, { n: 1, upTo: asVersion(5) }));
    await expect(log.head.load()).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect(env.sleeps).toEqual(Array.from({ length: 20 }, (_, i) => 10 * i));
    expect(script.taken().filter((text) => text.startsWith("list"))).toHaveLength(20);
  });

  test("a name that is listed and gone again and again: a hundred times", async () => {
    const { script, env, log } = open();
    const page = { objects: [{ key: manifestKey(asVersion(3)), size: 1 }], more: false };
    script.next(/^list manifest/, async () => page, 200);
    await expect(log.head.load()).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect(env.sleeps).toEqual(Array.from({ length: 100 }, (_, i) => 10 * i));
    expect(script.taken().slice(0, 3)).toEqual(["list manifest/ manifest/0", "get manifest/3", "get boundary/1"]);
  });

  test("a version at the boundary is a zombie; the one above it is not", async () => {
    const { script, log } = open();
    for (const version of [4, 5]) await script.inner.put(manifestKey(asVersion(version)), manifestOf(version));
    await script.inner.put(boundaryKey(1), encodeBoundary(spec.uuid, { n: 1, upTo: asVersion(4) }));
    expect((await log.head.load()).version).toBe(5);
    const stale = open();
    await stale.script.inner.put(manifestKey(asVersion(4)), manifestOf(4));
    await stale.script.inner.put(boundaryKey(1), encodeBoundary(spec.uuid, { n: 1, upTo: asVersion(4) }));
    await expect(stale.log.head.load()).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    const known = open();
    await known.script.inner.put(manifestKey(asVersion(1)), manifestOf(1));
    await known.log.head.load();
    await known.script.inner.put(manifestKey(asVersion(2)), manifestOf(2));
    await known.script.inner.put(boundaryKey(1), encodeBoundary(spec.uuid, { n: 1, upTo: asVersion(1) }));
    known.script.next(/^get manifest\/2/, async () => undefined);
    // The name was absent, and the boundary has come as far as what is known: it is searched anew.
    expect((await known.log.head.advance()).version).toBe(2);
    const vouched = await known.log.head.vouch({ ...genesisManifest(spec), version: asVersion(1) });
    expect([vouched, await known.log.head.vouch({ ...genesisManifest(spec), version: asVersion(3) })]).toEqual([
      false,
      true,
    ]);
    expect(known.log.head.known?.version).toBe(3);
  });

  test("an end whose rows cannot be counted is refused", async () => {
    const { script, log } = open();
    const end = Math.floor(Number.MAX_SAFE_INTEGER / 2);
    for (const [steps, fits] of [
      [end, true],
      [end + 1, false],
    ] as const) {
      const manifest: Manifest = {
        ...versionOf(1),
        steps: { trim: asStep(steps), end: asStep(steps) },
        tail: { start: asStep(steps), batches: [] },
      };
      script.next(/^get manifest\/1/, async () => encodeManifest(manifest));
      const read = log.head.read(asVersion(1)).then(
        () => true,
        ({ code }) => code !== "CORRUPT",
      );
      expect(await read).toBe(fits);
    }
  });

  test("what survives power loss is synced once", async () => {
    const { script, log } = open(spec, true);
    await log.commit(lag(1));
    script.taken();
    const { known } = log.head;
    await log.head.keep(known as Manifest);
    expect(script.taken()).toEqual([]);
    const next = { ...(known as Manifest), version: asVersion(2) };
    await log.head.keep(next);
    await log.head.keep(next);
    expect(script.taken()).toEqual(["sync manifest/2"]);
  });
});

describe("the boundary", () => {
  test("is announced by the next marker, again while the outcome is unknown, and believed when the chain shows it", async () => {
    const { script, env, log } = open(spec, true);
    const chain = log.head.boundary;
    script.next(/create boundary/, async () => "unknown", 9);
    expect(await chain.announce(asVersion(3), asVersion(9), env)).toBe(3);
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000]);
    const seen = script.taken();
    expect(seen.slice(-4)).toEqual(["create boundary/1", "get boundary/1", "get boundary/2", "sync boundary/1"]);
    expect([chain.newest, chain.kept]).toEqual([{ n: 1, upTo: 3 }, 1]);
    expect(await chain.announce(asVersion(3), asVersion(9), env)).toBe(3);
    expect(script.taken()).toEqual(["get boundary/2", "sync boundary/1"]);
    await expect(chain.announce(asVersion(9), asVersion(9), env)).rejects.toThrow("never announced");
    expect(await chain.announce(asVersion(4), asVersion(9), env)).toBe(4);
    expect(chain.newest).toEqual({ n: 2, upTo: 4 });
  });

  test("ends with a marker of every version, after which everything is deleted", async () => {
    const { script, env, log } = open(spec, true);
    const chain = log.head.boundary;
    script.next(/create boundary/, async () => "unknown", 8);
    await chain.end(env);
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000]);
    expect(script.taken().slice(-3)).toEqual(["create boundary/1", "get boundary/1", "sync boundary/1"]);
    await expect(chain.look()).rejects.toMatchObject({ code: "DELETED" });
    await chain.end(env);
    expect(script.taken()).toEqual(["sync boundary/1"]);
    const broken = open();
    broken.script.next(/get boundary/, refuse("STORE_DENIED"));
    await expect(broken.log.head.boundary.end(env)).rejects.toMatchObject({ code: "STORE_DENIED" });
  });

  test("never falls, and what was seen may not vanish", async () => {
    const { script, env, log } = open();
    const chain = log.head.boundary;
    expect(chain.kept).toBe(0);
    await chain.assertIntact();
    expect(script.taken()).toEqual([]);
    await chain.announce(asVersion(3), asVersion(9), env);
    expect(chain.kept).toBe(1);
    await chain.assertIntact();
    await script.inner.put(boundaryKey(2), encodeBoundary(spec.uuid, { n: 2, upTo: asVersion(3) }));
    await expect(chain.look()).rejects.toMatchObject({ code: "CORRUPT" });
    await script.inner.delete([boundaryKey(1), boundaryKey(2)]);
    await expect(chain.assertIntact()).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    await expect(log.head.load()).rejects.toMatchObject({ code: "MISSING_OBJECT" });
  });

  test("a hint is read where it is ahead, and must be there", async () => {
    const { script, log } = open(spec, true);
    const chain = log.head.boundary;
    for (const n of [1, 2])
      await script.inner.put(boundaryKey(n), encodeBoundary(spec.uuid, { n, upTo: asVersion(n + 3) }));
    await chain.jump(2);
    expect([script.taken(), chain.newest, chain.kept]).toEqual([["get boundary/2"], { n: 2, upTo: 5 }, 2]);
    await chain.jump(1);
    await chain.jump(2);
    expect([script.taken(), chain.kept]).toEqual([[], 2]);
    await expect(chain.jump(3)).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    await script.inner.put(boundaryKey(3), encodeBoundary(spec.uuid, { n: 3, upTo: asVersion(9), deleted: true }));
    await expect(chain.jump(3)).rejects.toMatchObject({ code: "DELETED" });
  });
});

describe("namespace.json", () => {
  const lives: NamespaceSpec = { ...spec, format: 2 };

  test("is asked for when it was not seen for 30 s", async () => {
    const { script, env, log } = open();
    await script.inner.put(namespaceKey, encodeNamespace(spec));
    env.nowMs += 29_999;
    await log.presence.check();
    expect(script.taken()).toEqual([]);
    env.nowMs += 1;
    await log.presence.check();
    await log.presence.check();
    expect(script.taken()).toEqual(["get namespace.json"]);
    await script.inner.put(namespaceKey, encodeNamespace({ ...spec, uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f6" }));
    await expect(log.presence.ask()).rejects.toMatchObject({ code: "DELETED" });
    const early = new Presence(script.store, env, log.head, spec, env.monotonic() - 30_000);
    await expect(early.check()).rejects.toMatchObject({ code: "DELETED" });
  });

  test("is written again where the chain goes on, by whoever may", async () => {
    const { script, log } = open(lives);
    await log.commit(lag(1));
    await log.commit(lag(2));
    script.taken();
    await log.presence.ask();
    const folder = `life/${spec.uuid}/`;
    expect(script.taken().map((text) => text.replaceAll(folder, ""))).toEqual([
      "get namespace.json",
      "list manifest/ manifest/1",
      "get boundary/1",
      "create namespace.json",
    ]);
    const bytes = (await script.inner.get(namespaceKey)) as Uint8Array;
    expect(decodeNamespace(bytes, namespaceKey).uuid).toBe(spec.uuid);
    await script.inner.delete([namespaceKey]);
    script.next(/create namespace/, refuse("STORE_DENIED"));
    await log.presence.ask();
    script.next(/create namespace/, refuse("STORE_UNAVAILABLE"));
    await expect(log.presence.ask()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    const fresh = new Log({ store: script.store, env: new MiddleEnv(), spec: lives, openOrigin });
    script.taken();
    await fresh.presence.ask();
    expect(script.taken()[1]?.replaceAll(folder, "")).toBe("list manifest/ manifest/0");
  });

  test("of a life without versions, or of the first format, is not", async () => {
    const { log } = open(lives);
    await expect(log.presence.ask()).rejects.toMatchObject({ code: "DELETED" });
    const old = open();
    await old.log.commit(lag(1));
    await expect(old.log.presence.ask()).rejects.toMatchObject({ code: "DELETED" });
  });
});

describe("a resume point", () => {
  async function written(): Promise<ReturnType<typeof open> & { holder: Holder; writer: Writer }> {
    const parts = open();
    const writer = new Writer(parts.other);
    await writer.write(3);
    parts.script.taken();
    return { ...parts, writer, holder: writer.holder as Holder };
  }
  const gone: Answer = async () => undefined;

  test("is looked at without opening anything, and four times when it is gone", async () => {
    const { script, log, writer } = await written();
    expect(await log.peek("p")).toEqual({ seq: 3, resumePoint: { after: 2 } });
    expect(await log.peek("nobody")).toBeUndefined();
    script.next(/^range/, gone, 3);
    expect(await log.peek("p")).toEqual({ seq: 3, resumePoint: { after: 2 } });
    script.next(/^range/, gone, 4);
    await expect(log.peek("p")).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect(script.answers).toEqual([]);
    script.next(/^range/, refuse("STORE_DENIED"));
    await expect(log.peek("p")).rejects.toMatchObject({ code: "STORE_DENIED" });
    const opened = (await log.head.jump()).producers.get("p");
    script.next(/^range/, async (_, key) => {
      await writer.write(1);
      return await script.inner.getRange(`${key}-`, 0, 1);
    });
    const resumed = await log.resume(writer.holder as Holder, opened as never);
    expect([resumed.state.seq, resumed.resumePoint]).toEqual([4, { after: 3 }]);
  });

  test("of an opening: the head tells where it is now, or that another holds the id", async () => {
    const { script, log, holder, writer } = await written();
    const state = (await log.head.jump()).producers.get("p") as never;
    script.next(/^range/, gone, 3);
    expect((await log.resume(holder, state)).resumePoint).toEqual({ after: 2 });
    script.next(/^range/, gone, 4);
    await expect(log.resume(holder, state)).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    script.next(/^range/, gone);
    await expect(log.resume({ ...holder, producer: "nobody" }, state)).rejects.toMatchObject({ code: "FENCED" });
    await new Writer(writer.log, "p").open();
    script.next(/^range/, gone);
    await expect(log.resume(holder, state)).rejects.toMatchObject({ code: "FENCED" });
  });

  test("of a footer that is not the one committed is corrupt", async () => {
    const { log } = await written();
    const state = (await log.head.jump()).producers.get("p");
    if (state?.resume.kind !== "batch") throw new Error("no batch");
    const { batch } = state.resume;
    const wrong = { ...state, resume: { kind: "batch" as const, batch: { ...batch, check: batch.check + 1 } } };
    await expect(log.readResumePoint("p", wrong)).rejects.toMatchObject({ code: "CORRUPT" });
    expect(await log.readResumePoint("p", { ...state, resume: { kind: "none" } })).toBeUndefined();
  });
});
