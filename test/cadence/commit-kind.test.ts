/**
 * Property: a version says in a field of its own what it was made for, and no text meant for people steers a committer. Method: every kind of commit on one log, read
 * back from the stored manifests; and versions without the field, as old logs have them.
 */
import { expect, test } from "vitest";
import { isCarriers } from "../../src/cadence/index.js";
import { asVersion, decodeManifest, hasLeft, type Manifest, manifestKey } from "../../src/format/index.js";
import { createNamespace, MemoryStore, openNamespace } from "../../src/index.js";

async function manifestsOf(store: MemoryStore, uuid: string): Promise<Manifest[]> {
  const { objects } = await store.list("", { limit: 1_000 });
  const keys = objects.map(({ key }) => key).filter((key) => /(^|\/)manifest\/\d+\.json$/.test(key));
  return await Promise.all(
    keys.sort().map(async (key, i) => {
      const bytes = (await store.get(key)) as Uint8Array;
      return decodeManifest(bytes, key, uuid, asVersion(i + 1));
    }),
  );
}

/** The same version as an old writer would have stored it. */
function withoutKind({ commit: { kind: _, ...commit }, ...manifest }: Manifest): Manifest {
  return { ...manifest, commit };
}

test("every commit says its kind, and old logs, which do not say it, are read by their states", async () => {
  const store = new MemoryStore();
  const ns = await createNamespace("memory:kinds", { grid: { rows: 1, chunks: 1 } }, { store });
  // A name that a program could stumble over, if it read `by`.
  const producer = await ns.producer({ id: "close" });
  await producer.append([new Uint8Array(8)]);
  await producer.close();
  const solo = await ns.producer({ id: "solo", cadence: { kind: "naive" } });
  await solo.append([new Uint8Array(8)]);
  await solo.close();
  const consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0, environment: {} });
  await ns.checkpoint("a", consumer.cursor);
  await ns.releaseCheckpoint("a");
  await ns.setMaxLag(100);
  await ns.reclaim({ graceMs: 0, keepVersions: 100 });
  await ns.endLog();
  const manifests = await manifestsOf(store, ns.uuid);
  const kinds = manifests.map(({ commit }) => commit.kind);
  expect(kinds.slice(0, 9)).toEqual([
    "open",
    "carrier",
    "leave",
    "open",
    "own",
    "leave",
    "checkpoint",
    "release",
    "settings",
  ]);
  expect(kinds.at(-1)).toBe("close");
  expect(manifests.map(isCarriers)).toEqual(kinds.map((kind) => kind === "carrier"));
  // Whoever committed batches is taken for a carrier; an opening, though it names a last batch, is not.
  expect(manifests.map((m) => isCarriers(withoutKind(m))).slice(0, 5)).toEqual([false, true, true, false, true]);
  expect([...(manifests.at(-1) as Manifest).producers.values()].map(hasLeft)).toEqual([true, true]);
});

test("a producer that was closed and opened again has not left", async () => {
  const store = new MemoryStore();
  const ns = await createNamespace("memory:again", { grid: { rows: 1, chunks: 1 } }, { store });
  await (await ns.producer({ id: "p" })).close();
  const again = await (await openNamespace("memory:again", { store })).producer({ id: "p", takeover: "when-quiet" });
  const newest = (await manifestsOf(store, ns.uuid)).at(-1) as Manifest;
  expect([again.epoch, newest.version, hasLeft(newest.producers.get("p") as never)]).toEqual([2, 3, false]);
  expect(manifestKey(newest.version)).toContain("3.json");
  await again.close();
});
