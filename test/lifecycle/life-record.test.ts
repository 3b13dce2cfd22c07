/**
 * Property: what trim, reclaim, forks, pins, verify, look-ups and deletion ask of a store, and what they report, changes only when somebody means it to: not a request
 * more, none less, no other key. Method: the life of three namespaces on memory stores, told in chapters; every request of a chapter is counted by its kind and folder and,
 * with its key, compared with `life-record.json`. `UPDATE_REQUESTS=1 npx vitest run test/lifecycle/life-record.test.ts` writes that file anew: its diff is what a change costs.
 */
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { decodeNamespace, makeCursor, namespaceKey } from "../../src/format/index.js";
import {
  commitDeletion,
  commitMaxLag,
  endLife,
  findSample,
  forkLog,
  liveCheckpoints,
  livesWithObjects,
  measureLag,
  type OpenLog,
  originOfStep,
  reclaim,
  registerCheckpoint,
  releaseCheckpoint,
  releasePins,
  translateCursor,
  verifyLog,
} from "../../src/lifecycle/index.js";
import { type Log, publishIntents } from "../../src/log/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { root } from "../source-tree.js";
import { cursorAt, SmallWorld, Writer } from "./small-world.js";

const path = join(root, "test/lifecycle/life-record.json");
const isUpdate = process.env["UPDATE_REQUESTS"] !== undefined;

/** What one chapter asked, of all stores: how often for each kind of request and folder, and a digest of the keys. */
class Record {
  #seen: string[] = [];
  readonly chapters: { [chapter: string]: { readonly requests: readonly string[]; readonly result: unknown } } = {};

  see(text: string): void {
    this.#seen.push(text);
  }

  async chapter<T>(name: string, work: () => Promise<T>): Promise<T> {
    this.#seen = [];
    const result = await work();
    const groups = new Map<string, string[]>();
    for (const text of this.#seen.sort()) {
      const kind = text.split("/", 1)[0] as string;
      groups.set(kind, [...(groups.get(kind) ?? []), text]);
    }
    const requests = [...groups].map(([kind, texts]) => {
      const digest = createHash("sha256").update(texts.join()).digest("hex").slice(0, 8);
      return `${kind}: ${texts.length} (${digest})`;
    });
    this.chapters[name] = { requests, result: JSON.parse(JSON.stringify(result ?? null)) };
    return result;
  }
}

function recording(inner: MemoryStore, record: Record): MemoryStore {
  const of = (name: string, key: string): string => `${inner.uri} ${name} ${key}`;
  const own: Pick<ObjectStore, "create" | "put" | "get" | "getRange" | "list" | "delete"> = {
    create: (key, ...rest) => {
      record.see(of("create", key));
      return inner.create(key, ...rest);
    },
    put: (key, ...rest) => {
      record.see(of("put", key));
      return inner.put(key, ...rest);
    },
    get: (key, ...rest) => {
      record.see(of("get", key));
      return inner.get(key, ...rest);
    },
    getRange: (key, start, length, ...rest) => {
      record.see(of("range", `${key} ${start}+${length}`));
      return inner.getRange(key, start, length, ...rest);
    },
    list: (prefix, options) => {
      record.see(of("list", `${prefix} ${options?.startAfter ?? ""} ${options?.limit ?? ""}`.trimEnd()));
      return inner.list(prefix, options);
    },
    delete: (keys, ...rest) => {
      for (const key of keys) record.see(of("delete", key));
      record.see(of("delete", "(a request)"));
      return inner.delete(keys, ...rest);
    },
  };
  return Object.assign(Object.create(inner) as MemoryStore, own);
}

class RecordedWorld extends SmallWorld {
  readonly record = new Record();

  override store(uri: string): MemoryStore {
    if (!this.stores.has(uri)) this.stores.set(uri, recording(new MemoryStore(uri), this.record));
    return super.store(uri);
  }

  readonly openLog: OpenLog = async (uri) => {
    const bytes = await this.store(uri).get(namespaceKey);
    if (!bytes) throw new Error(`no namespace at ${uri}`);
    return this.open(uri, decodeNamespace(bytes, uri));
  };

  /** As a process that starts now sees it. */
  fresh(log: Log): Log {
    return this.open(log.place.uri, log.spec);
  }
}

const samples = (n: number) => [
  { source: "web", id: String(n), tokens: 3 },
  { source: "book", id: String(n % 3), tokens: 5, row: n % 2 },
];

test("the life of three namespaces, request by request", async () => {
  const world = new RecordedWorld();
  const { record } = world;
  const uri = "memory:a";
  const now = { graceMs: 0, keepVersions: 2 };
  const find = async (at: string): Promise<string | undefined> => {
    const bytes = await world.store(at).get(namespaceKey);
    return bytes && decodeNamespace(bytes, at).uuid;
  };
  const fork = async (name: string, of: Log, to: string, settings: object): Promise<Log> => {
    const parts = { parent: { log: world.fresh(of), uri: of.place.uri }, target: { uri: to, store: world.store(to) } };
    const spec = await record.chapter(name, () =>
      forkLog({ ...parts, env: world.env, openLog: world.openLog }, settings),
    );
    return world.open(to, spec);
  };
  const log = await world.create(uri);
  const [p, q] = [new Writer(log, "p"), new Writer(log, "q")];
  await record.chapter("writing", async () => {
    for (let i = 0; i < 20; i++) await p.write(4, { perCommit: 4, samples: samples(i) });
    await q.write(5, { perCommit: 2 });
    await q.upload({ attempt: 3 });
    await new Writer(log, "gone").upload({ cellsPerExtent: 1 });
  });
  await record.chapter("checkpoints", async () => {
    const view = world.fresh(log);
    for (const step of [10, 30, 30, 50])
      await registerCheckpoint(view, { id: `c${step}`, cursor: cursorAt(log, step), keepLast: 2 });
    await registerCheckpoint(view, { id: "other", group: "g", cursor: cursorAt(log, 20) });
    await commitMaxLag(view, 70);
    const manifest = await view.head.jump();
    return { live: liveCheckpoints(manifest, 2), lag: measureLag(manifest, 2) };
  });
  await record.chapter("a reclaim that only looks", () => reclaim(world.fresh(log), { ...now, dryRun: true }));
  await record.chapter("a reclaim with grace", () => reclaim(world.fresh(log), { keepVersions: 4 }));
  await record.chapter("a reclaim", () => reclaim(world.fresh(log), now));
  await record.chapter("a reclaim right after, one request at a time", () =>
    reclaim(world.fresh(log), { ...now, requestsInFlightMax: 1 }),
  );
  const child = await fork("a fork that skips", log, "memory:b", {
    at: 80,
    skip: [
      { from: 25, to: 31 },
      { from: 60, to: 61 },
    ],
  });
  await record.chapter("writing in the fork", async () => {
    await new Writer(child, "p").write(9, { perCommit: 3 });
    await new Writer(child, "own").write(70, { perCommit: 7 });
  });
  const grandchild = await fork("a fork of the fork", child, "memory:c", { at: 90 });
  await record.chapter("what a fork says of steps and cursors", async () => ({
    origins: [0, 20, 70, 89, 90, 140].map((step) => originOfStep(grandchild.spec, step)),
    cursors: [0, 24, 25, 28, 31, 79, 80, 81].map((step) => translateCursor(grandchild.spec, cursorAt(log, step))),
    within: translateCursor(child.spec, makeCursor(log.spec.uuid, 81, 40)),
  }));
  await record.chapter("a checkpoint is released, and the parent reclaims beside forks", async () => {
    await releaseCheckpoint(world.fresh(log), { id: "c30" });
    await releaseCheckpoint(world.fresh(log), { id: "other", group: "g" });
    await log.head.jump();
    await p.write(12, { perCommit: 3 });
    return [await reclaim(world.fresh(log), now), await reclaim(world.fresh(log), now)];
  });
  await record.chapter("the fork reclaims", async () => {
    await registerCheckpoint(world.fresh(child), { id: "f", cursor: cursorAt(child, 40) });
    await child.head.jump();
    await new Writer(child, "own").write(12, { perCommit: 1 });
    return [await reclaim(world.fresh(child), now), await reclaim(world.fresh(child), now)];
  });
  await record.chapter("samples are looked for", async () => {
    const view = world.fresh(log);
    const manifest = await view.head.jump();
    return [
      await findSample(view, manifest, "1"),
      await findSample(view, manifest, "1", { source: "web" }),
      await findSample(view, manifest, "2", { from: 52, to: 70, matchesMax: 3, stepsInFlightMax: 2 }),
    ];
  });
  for (const level of ["footers", "bytes"] as const)
    for (const [name, one] of Object.entries({ parent: log, fork: child, "fork of the fork": grandchild }))
      await record.chapter(`verify ${name}: ${level}`, () =>
        verifyLog(world.fresh(one), { level }, { openLog: world.openLog, find }),
      );
  await record.chapter("damage is found and litter repaired", async () => {
    const store = world.store(uri);
    await log.head.jump();
    const batch = await q.upload({ attempt: 7 });
    await publishIntents(store, log.spec.uuid, [batch]);
    await store.delete((await store.list("batch/", { limit: 3 })).objects.slice(2).map(({ key }) => key));
    await store.put("index/strange", new Uint8Array(3));
    const parts = { openLog: world.openLog, find };
    const first = await verifyLog(world.fresh(log), { level: "bytes" }, parts);
    const repaired = await verifyLog(world.fresh(log), { level: "footers", repair: true }, parts);
    return [first, repaired, await verifyLog(world.fresh(log), { level: "footers" }, parts)];
  });
  await record.chapter("pins are released, and the log deleted", async () => {
    const refused = await commitDeletion(world.fresh(log), false).catch((error) => String(error));
    const parents = (one: Log) => one.spec.fork?.ancestors ?? [];
    await releasePins(grandchild.spec, parents(grandchild), world.openLog, { unconfirmed: false });
    await releasePins(child.spec, parents(child), world.openLog, { unconfirmed: true });
    const life = { place: world.store(uri), spec: log.spec };
    await commitDeletion(world.fresh(log), true);
    await endLife(life, world.env);
    return { refused, lives: await livesWithObjects(world.store(uri), 5) };
  });
  if (isUpdate) writeFileSync(path, `${JSON.stringify(record.chapters, undefined, 1)}\n`);
  const stored = JSON.parse(readFileSync(path, "utf8"));
  for (const [name, chapter] of Object.entries(record.chapters))
    expect({ [name]: chapter }).toEqual({ [name]: stored[name] });
});
