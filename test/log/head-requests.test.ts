/**
 * Property: a search for the head and a look at the boundary cost exactly the requests and the waits that they are meant to, whatever a store answers: unknown, late, gone, full of versions.
 * Method: scripted answers; every request and sleep compared.
 */
import { describe, expect, test } from "vitest";
import {
  asStep,
  asVersion,
  boundaryKey,
  encodeBoundary,
  encodeManifest,
  genesisManifest,
  type Manifest,
  manifestKey,
  parseManifestKey,
} from "../../src/format/index.js";
import { commitMaxLag } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { lag, open, openOrigin, QuarterEnv, refuse, type ScriptedStore, spec } from "./scripted-log.js";

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

  test("what is no version is not taken for one, wherever it is listed", async () => {
    const { script, log } = open();
    for (const version of [4, 5]) await script.inner.put(manifestKey(asVersion(version)), manifestOf(version));
    const names = [
      "manifest/!",
      manifestKey(asVersion(4)),
      "manifest/4x",
      manifestKey(asVersion(5)),
      "manifest/strange",
    ];
    script.next(/^list manifest/, async () => ({ objects: names.map((key) => ({ key, size: 1 })), more: false }));
    expect((await log.head.load()).version).toBe(5);
    const last = Number.MAX_SAFE_INTEGER - 9;
    script.next(
      /^list manifest/,
      async () => ({ objects: [{ key: manifestKey(asVersion(last)), size: 1 }], more: true }),
      2,
    );
    script.next(/^get manifest/, async () => manifestOf(last));
    script.taken();
    const far = new Log({ store: script.store, env: new QuarterEnv(), spec, openOrigin });
    expect((await far.head.load()).version).toBe(last);
    // As far as can be counted: no probe beyond it, and the halves of what is left.
    expect(script.taken().filter((text) => text.startsWith("range"))).toHaveLength(3);
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
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000].map((ms) => 0.75 * ms));
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
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000].map((ms) => 0.75 * ms));
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
