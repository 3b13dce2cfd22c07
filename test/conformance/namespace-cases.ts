/** Cases of whole namespaces: following the chain past boundaries and zombies, the deep index, lanes, forks, extents, and every kind of loss and damage. */
import {
  asEpoch,
  asSeq,
  asVersion,
  batchKey,
  boundaryKey,
  crc32,
  type Descriptor,
  encodeBoundary,
  encodeExtent,
  encodeManifest,
  encodeNamespace,
  encodeRoot,
  encodeTable,
  everyVersion,
  genesisManifest,
  indexKey,
  lifeFolder,
  type Manifest,
  manifestKey,
  type NamespaceSpec,
  namespaceKey,
  type Origin,
} from "../../src/format/index.js";
import { Draft } from "../../src/log/draft.js";
import { stageCheckpoint } from "../../src/log/index.js";
import { type Holder, stageBatches, stageClosing, stageOpening } from "../../src/log/stage.js";
import type { ConformanceCase } from "./case-runner.js";
import { foreign, uuid } from "./codec-cases.js";

const incarnation = "0123456789ab";

/** Builds a namespace commit by commit; everything in it follows from the calls. */
class Builder {
  readonly objects = new Map<string, Uint8Array>();
  readonly spec: NamespaceSpec;
  manifest: Manifest;

  constructor(change: Partial<NamespaceSpec> = {}) {
    this.spec = {
      format: 1,
      uuid,
      grid: { rows: 2, chunks: 2 },
      order: { kind: "commit" },
      created: 5,
      rest: {},
      ...change,
    };
    this.objects.set(namespaceKey, encodeNamespace(this.spec));
    this.manifest = genesisManifest(this.spec);
  }

  /** Commits what `change` does to a draft. */
  commit(change: (draft: Draft) => unknown): this {
    const id = (this.manifest.version + 1).toString().padStart(12, "c");
    const draft = new Draft(this.manifest, { id, by: "case", time: 1_760_000_000_000, boundaryHint: 0 });
    change(draft);
    this.manifest = draft.finish();
    for (const { key, bytes } of draft.sealed) this.objects.set(key, bytes);
    this.objects.set(manifestKey(this.manifest.version), encodeManifest(this.manifest));
    return this;
  }

  open(producer: string): this {
    return this.commit((draft) => stageOpening(draft, producer, incarnation, undefined));
  }

  /** Commits `count` batches of a producer at once, split into extents of so many cells. */
  append(producer: string, count: number, cellsPerExtent = 4): this {
    const state = this.manifest.producers.get(producer);
    const holder: Holder = { producer, epoch: state?.epoch ?? 1, incarnation };
    const batches = Array.from({ length: count }, (_, i) => this.upload(holder, (state?.seq ?? 0) + i, cellsPerExtent));
    return this.commit((draft) => stageBatches(draft, this.spec, holder, batches));
  }

  upload(holder: Holder, seq: number, cellsPerExtent: number): Descriptor {
    const { rows, chunks } = this.spec.grid;
    const name = {
      producer: holder.producer,
      epoch: asEpoch(holder.epoch),
      seq: asSeq(seq),
      incarnation,
      attempt: 0,
      base: asVersion(this.manifest.version),
    };
    const extents: Descriptor["extents"][number][] = [];
    for (let cell = 0; cell < rows * chunks; cell += cellsPerExtent) {
      const count = Math.min(cellsPerExtent, rows * chunks - cell);
      const slices = Array.from({ length: count }, (_, i) => {
        const bytes = Buffer.from(`${holder.producer}/${seq}/${cell + i} `.repeat((seq + cell + i) % 3));
        return { bytes, rawLength: bytes.length, encoding: 0 };
      });
      const isLast = cell + count === rows * chunks;
      const place = { extent: extents.length, firstCell: cell };
      const { body, entry } = encodeExtent(
        this.spec.uuid,
        name,
        place,
        slices,
        isLast ? { resumePoint: { after: seq } } : {},
      );
      this.objects.set(batchKey(name, extents.length), Buffer.concat(body));
      extents.push(entry);
    }
    return { ...name, extents };
  }

  boundary(n: number, upTo: number): this {
    this.objects.set(boundaryKey(n), encodeBoundary(this.spec.uuid, { n, upTo: asVersion(upTo) }));
    return this;
  }

  /** The last marker of a deleted namespace. */
  ended(n: number): this {
    this.objects.set(boundaryKey(n), encodeBoundary(this.spec.uuid, { n, upTo: everyVersion, deleted: true }));
    return this;
  }

  remove(key: string): this {
    if (!this.objects.delete(key)) throw new Error(`${key} is not there`);
    return this;
  }

  damage(key: string, at: number): this {
    const bytes = Uint8Array.from(this.objects.get(key) as Uint8Array);
    const position = at < 0 ? bytes.length + at : at;
    bytes[position] = (bytes[position] as number) ^ 32;
    this.objects.set(key, bytes);
    return this;
  }

  /** Key of the object of a step in the tail. */
  keyOf(step: number, extent = 0): string {
    return batchKey(this.manifest.tail.batches[step - this.manifest.tail.start] as Descriptor, extent);
  }

  json(): Record<string, string> {
    const folder = lifeFolder(this.spec);
    const atPlace = (key: string): string => (key === namespaceKey || folder === "" ? key : `${folder}/${key}`);
    return Object.fromEntries(
      [...this.objects].map(([key, bytes]) => [atPlace(key), Buffer.from(bytes).toString("base64")]),
    );
  }
}

const head = { kind: "head" };
const step = (n: number): object => ({ kind: "step", step: n });
const shares = (settings: object, iterations = 1_000): object => ({
  kind: "shares",
  settings: { waitTimeoutMs: 60_000, ...settings },
  iterations,
});
const rank = (dp: number, r: number, more: object = {}, cp = 1): object => ({ mesh: { dp, cp }, rank: r, ...more });

function casesOf(
  name: string,
  builder: Builder,
  views: Record<string, object>,
  origins: Record<string, Record<string, string>> = {},
): ConformanceCase[] {
  return [{ name, op: "namespace", objects: builder.json(), origins, views }];
}

function plainCases(): ConformanceCase[] {
  const plain = new Builder().open("p").append("p", 3).open("q").append("q", 2, 3).append("p", 1, 1);
  plain.commit((draft) => stageCheckpoint(draft, 2, { group: "run", id: "a", row: 4, iteration: 2 }));
  plain.commit((draft) => stageClosing(draft, false));
  const cursor = { batchweave: 1, namespace: uuid, row: 5, iteration: 9 };
  return casesOf("plain", plain, {
    head,
    "dp 1": shares(rank(1, 0)),
    "dp 2, rank 1": shares(rank(2, 1)),
    "dp 5 leaves rows over": shares(rank(5, 4)),
    "dp 2, cp 2": shares(rank(2, 3, {}, 2)),
    "three rows a rank": shares(rank(2, 1, { rowsPerRank: 3 })),
    "global batch": shares(rank(2, 0, { policy: "global-batch" })),
    "from a cursor": shares(rank(3, 2, { from: cursor })),
    "from a cursor of another namespace": shares(rank(1, 0, { from: { ...cursor, namespace: foreign } })),
    "from a row inside a batch, global batch": shares(rank(1, 0, { policy: "global-batch", from: { row: 3 } })),
    "cp 4 does not fit": shares(rank(1, 0, {}, 4)),
    "resume point of p": { kind: "resume", producer: "p" },
    "resume point of q, in its last extent": { kind: "resume", producer: "q" },
    "resume point of nobody": { kind: "resume", producer: "x" },
    "a step beyond": step(6),
  });
}

function chainCases(): ConformanceCase[] {
  const grown = (): Builder => new Builder().open("p").append("p", 2).append("p", 2).append("p", 2);
  const reclaimed = grown().boundary(1, 1).boundary(2, 2);
  for (const version of [1, 2]) reclaimed.remove(manifestKey(asVersion(version)));
  // A stale writer created version 2 again: it must not be believed, nor stop anybody.
  const zombie = grown();
  const other = new Builder().open("z");
  zombie
    .boundary(1, 2)
    .remove(manifestKey(asVersion(1)))
    .objects.set(manifestKey(asVersion(2)), encodeManifest({ ...other.manifest, version: asVersion(2) }));
  const hinted = grown();
  hinted.manifest = { ...hinted.manifest, boundaryHint: 3 };
  hinted.objects.set(manifestKey(hinted.manifest.version), encodeManifest(hinted.manifest));
  const chain = { head, "all rows": shares(rank(1, 0), 12) };
  const trimmed = new Builder()
    .open("p")
    .append("p", 3)
    .commit((draft) => {
      draft.trim = 2 as Draft["trim"];
    });
  trimmed.commit((draft) => stageClosing(draft, false));
  return [
    ...casesOf("boundary", reclaimed, chain),
    ...casesOf("zombie", zombie, chain),
    ...casesOf("boundary that does not grow", grown().boundary(1, 2).boundary(2, 2), { head }),
    ...casesOf("a hint to a marker that is gone", hinted, { head }),
    ...casesOf("a corrupt head", grown().damage(manifestKey(asVersion(4)), 60), { head }),
    ...casesOf("nothing committed", new Builder(), { head, step: step(0) }),
    ...casesOf("trimmed", trimmed, {
      head,
      earliest: shares(rank(1, 0)),
      "a row that is gone": shares(rank(1, 0, { from: { row: 1 } })),
      "a step that is gone": step(1),
    }),
  ];
}

function indexCases(): ConformanceCase[] {
  const sealed = new Builder({ grid: { rows: 1, chunks: 1 } }).open("p").append("p", 70);
  const table = [...sealed.objects.keys()].find((key) => key.startsWith("index/")) as string;
  // A past that was trimmed before it was sealed: a node of one segment and 63 empty places.
  const deep = new Builder({ grid: { rows: 1, chunks: 1 } }).open("p");
  const start = 4_032;
  deep.manifest = {
    ...deep.manifest,
    steps: { trim: start, end: start },
    tail: { start, batches: [] },
    index: [{ start: 63, refs: [] }],
  } as unknown as Manifest;
  deep.append("p", 70);
  const views = { "first sealed step": step(0), "last sealed step": step(63), "first of the tail": step(64) };
  const deepViews = { "through the node": step(start + 5), tail: step(start + 65), "below the trim": step(start - 1) };
  return [
    ...casesOf("segment", sealed, { head, ...views, "all rows": shares(rank(1, 0), 70) }),
    ...casesOf("segment gone", rebuilt(sealed).remove(table), { step: step(5), tail: step(66) }),
    ...casesOf("segment damaged", rebuilt(sealed).damage(table, 30), { step: step(5) }),
    ...casesOf("node", deep, { head, ...deepViews }),
  ];
}

/** A copy that can be damaged on its own. */
function rebuilt(from: Builder): Builder {
  const copy = new Builder({ format: from.spec.format, grid: from.spec.grid, order: from.spec.order });
  copy.objects.clear();
  for (const [key, bytes] of from.objects) copy.objects.set(key, bytes);
  copy.manifest = from.manifest;
  return copy;
}

function damageCases(): ConformanceCase[] {
  const plain = new Builder()
    .open("p")
    .append("p", 3)
    .commit((draft) => stageClosing(draft, false));
  const second = plain.keyOf(1);
  const swapped = rebuilt(plain);
  swapped.objects.set(second, plain.objects.get(plain.keyOf(2)) as Uint8Array);
  const views = { reads: shares(rank(1, 0)), "its neighbour": shares(rank(1, 0), 2) };
  const foreignManifest = rebuilt(plain);
  foreignManifest.objects.set(manifestKey(asVersion(3)), encodeManifest({ ...plain.manifest, namespace: foreign }));
  return [
    ...casesOf("a slice damaged", rebuilt(plain).damage(second, 2), views),
    ...casesOf("a slice table damaged", rebuilt(plain).damage(second, -100), views),
    ...casesOf("a trailer damaged", rebuilt(plain).damage(second, -5), views),
    ...casesOf("a batch gone", rebuilt(plain).remove(second), views),
    ...casesOf("a batch cut short", cutShort(rebuilt(plain), second), views),
    ...casesOf("another batch in its place", swapped, views),
    ...casesOf("another namespace's manifest", foreignManifest, { head }),
  ];
}

function cutShort(builder: Builder, key: string): Builder {
  const bytes = builder.objects.get(key) as Uint8Array;
  builder.objects.set(key, bytes.subarray(0, bytes.length - 30));
  return builder;
}

function laneCases(): ConformanceCase[] {
  const lanes = new Builder({ order: { kind: "lanes", lanes: 2 } }).open("lane-0").open("lane-1");
  lanes.append("lane-1", 3).append("lane-0", 2);
  const closed = rebuilt(lanes).commit((draft) => stageClosing(draft, true));
  return [
    ...casesOf("lanes", lanes, { head, "what is contiguous": shares(rank(1, 0), 8) }),
    ...casesOf("lanes, closed", closed, { head, all: shares(rank(2, 1)) }),
  ];
}

function tableCases(): ConformanceCase[] {
  const builder = new Builder().open("p").append("p", 2);
  const state = builder.manifest.producers.get("p");
  if (!state) throw new Error("p is open");
  const bytes = encodeTable(uuid, new Map([["p", { state, resumePoint: { copied: true } }]]));
  const ref = { base: asVersion(2), commitId: "tttttttttttt", k: 0, check: crc32(bytes) };
  builder.objects.set(indexKey(ref.base, ref.commitId, ref.k), bytes);
  builder.commit((draft) => {
    draft.producers.set("p", { ...state, resume: { kind: "table", table: ref } });
    draft.tables = [ref];
  });
  return casesOf("a resume point in a table", builder, { "resume point": { kind: "resume", producer: "p" } });
}

/** A folder for each life, and what is left of deleted ones. */
function lifeCases(): ConformanceCase[] {
  const grown = (format: 1 | 2): Builder => new Builder({ format }).open("p").append("p", 2);
  const second = grown(2).commit((draft) => stageClosing(draft, false));
  // Its predecessor at the place, of the first version of the format, and what is left of it.
  const first = new Builder({ uuid: foreign }).open("p").append("p", 3).ended(1);
  const { [namespaceKey]: _, ...leftovers } = first.json();
  const deleted = (format: 1 | 2): Builder =>
    grown(format).commit((draft) => {
      draft.deleted = true;
    });
  const bare = grown(2).boundary(1, 1).ended(2);
  for (const key of [...bare.objects.keys()]) if (/^(manifest|batch|index)\//.test(key)) bare.remove(key);
  const forged = rebuilt(bare);
  forged.objects.set(manifestKey(asVersion(3)), encodeManifest({ ...bare.manifest, version: asVersion(3) }));
  const views = { head, "all rows": shares(rank(1, 0), 4), "resume point": { kind: "resume", producer: "p" } };
  return [
    ...casesOf("a life of its own", second, views),
    {
      ...(casesOf("a life beside its predecessor", second, views)[0] as ConformanceCase),
      objects: { ...leftovers, ...second.json() },
    },
    ...casesOf("the last version", deleted(2), views),
    ...casesOf("the last version, format 1", deleted(1), views),
    ...casesOf("the last marker", grown(2).ended(1), views),
    ...casesOf("nothing but markers", bare, views),
    ...casesOf("nothing but markers, and a version that a late writer made again", forged, views),
    ...casesOf("objects beside namespace.json instead", beside(grown(2)), { head }),
  ];
}

/** The objects of a life outside of its folder: nobody finds them. */
function beside(builder: Builder): Builder {
  const copy = new Builder();
  copy.objects.clear();
  for (const [key, bytes] of builder.objects) copy.objects.set(key, bytes);
  return copy;
}

function forkCases(format: 1 | 2 = 1): ConformanceCase[] {
  const origin = new Builder({ format, uuid: foreign, grid: { rows: 1, chunks: 1 } }).open("p").append("p", 70);
  const root = encodeRoot(foreign, { index: origin.manifest.index, tail: origin.manifest.tail });
  const ref = { base: asVersion(2), commitId: "rrrrrrrrrrrr", k: 0, check: crc32(root) };
  origin.objects.set(indexKey(ref.base, ref.commitId, ref.k), root);
  const inherited = origin.manifest.tail.batches.slice(0, 4).map((d) => ({ ...d, origin: 0 }));
  const at = (n: number): never => n as never;
  // Steps 10 and 11 of the origin are left out.
  const ranges = [
    { at: at(0), count: 10, from: at(0) },
    { at: at(10), count: 54, from: at(12) },
  ];
  const uri = "memory:origin";
  const fork = new Builder({
    format,
    grid: { rows: 1, chunks: 1 },
    fork: {
      origins: [{ uuid: foreign, uri, format, root: ref, ranges }],
      tail: { start: at(64), batches: inherited.slice(2) },
    },
  });
  fork
    .open("own")
    .append("own", 2)
    .commit((draft) => stageClosing(draft, false));
  const views = {
    head,
    "before the gap": step(9),
    "after the gap": step(10),
    "in the origin's tail": step(63),
    inherited: step(64),
    own: step(66),
    all: shares(rank(1, 0)),
  };
  const withoutRoot = origin.json();
  delete withoutRoot[indexKey(ref.base, ref.commitId, ref.k)];
  if (format === 2) return casesOf("fork of a life, in a life", fork, views, { [uri]: origin.json() });
  return [
    ...casesOf("fork", fork, views, { [uri]: origin.json() }),
    ...casesOf("fork whose origin is gone", fork, { step: step(3) }, { [uri]: {} }),
    ...casesOf("fork whose root is gone", fork, { step: step(3) }, { [uri]: withoutRoot }),
    ...trimmedForkCases(origin, { uuid: foreign, uri, format: 1, root: ref, ranges: [] }),
  ];
}

/** Forks that were made above a trim: holes, ancestors that nobody needs any more, and an origin that nothing leads to. */
function trimmedForkCases(origin: Builder, inherited: Origin): ConformanceCase[] {
  const hole = { producer: "trimmed", epoch: 0, incarnation: "", seq: 0, base: 0, attempt: 0, extents: [] };
  const shared = origin.manifest.tail.batches.slice(0, 2).map((d) => ({ ...d, origin: 0 }));
  const build = (trim: number, change: Partial<Origin> = {}, batches: unknown[] = [hole, ...shared]): Builder => {
    const tail = { start: 64 as never, batches: batches as Descriptor[] };
    const fork = { origins: [{ ...inherited, ...change }], tail, trim: trim as never };
    const builder = new Builder({ grid: { rows: 1, chunks: 1 }, fork });
    return builder
      .open("own")
      .append("own", 70)
      .commit((draft) => stageClosing(draft, false));
  };
  const at = { [inherited.uri]: origin.json() };
  const gone = { [inherited.uri]: {} };
  // Its one shared step lies in the ancestor's tail and came from an ancestor of that one.
  const through = new Builder({ uuid: foreign, grid: { rows: 1, chunks: 1 } });
  const root = encodeRoot(foreign, { index: [], tail: { start: 0 as never, batches: shared } });
  const ref = { base: asVersion(2), commitId: "rrrrrrrrrrrr", k: 0, check: crc32(root) };
  through.objects.set(indexKey(ref.base, ref.commitId, ref.k), root);
  const dropped = { root: ref, ranges: [{ at: 0 as never, count: 1, from: 0 as never }], via: [2 ** 53 - 1] };
  return [
    ...casesOf(
      "fork above a hole",
      build(65),
      { head, shared: step(65), sealed: step(130), all: shares(rank(1, 0)) },
      at,
    ),
    ...casesOf("fork that promises a hole", build(64), { step: step(64) }, at),
    ...casesOf("fork that outlived its ancestor", build(67), { all: shares(rank(1, 0)) }, gone),
    ...casesOf(
      "fork through an origin that was dropped",
      build(0, dropped, []),
      { step: step(0) },
      {
        [inherited.uri]: through.json(),
      },
    ),
  ];
}

/** All of them. */
export async function namespaceCases(): Promise<ConformanceCase[]> {
  return [
    ...plainCases(),
    ...chainCases(),
    ...indexCases(),
    ...damageCases(),
    ...laneCases(),
    ...tableCases(),
    ...forkCases(),
    ...forkCases(2),
    ...lifeCases(),
  ];
}
