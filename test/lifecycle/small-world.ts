/** A namespace on a memory store with everything passed in, and a producer that is quick to write. */
import { openProducer } from "../../src/cadence/index.js";
import {
  asSeq,
  type BatchName,
  batchKey,
  type Cursor,
  type Descriptor,
  encodeExtent,
  encodeLineage,
  encodeNamespace,
  type LineageSample,
  makeCursor,
  type NamespaceSpec,
  namespaceKey,
  type Order,
} from "../../src/format/index.js";
import { type Holder, Log, type SilencePolicy } from "../../src/log/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { AutoEnv } from "./auto-env.js";

export const rows = 2;
const chunks = 1;

/** Several namespaces on stores of their own, found by uri. */
export class SmallWorld {
  readonly env: AutoEnv;
  readonly stores = new Map<string, MemoryStore>();

  constructor(seed = 1) {
    this.env = new AutoEnv(seed);
  }

  store(uri: string): MemoryStore {
    let store = this.stores.get(uri);
    if (!store) {
      store = new MemoryStore(uri);
      this.stores.set(uri, store);
    }
    return store;
  }

  /** Creates a namespace and opens it. */
  async create(uri: string, order: Order = { kind: "commit" }): Promise<Log> {
    const spec: NamespaceSpec = {
      format: 1,
      uuid: this.env.uuid(),
      grid: { rows, chunks },
      order,
      created: this.env.now(),
      rest: {},
    };
    await this.store(uri).create(namespaceKey, encodeNamespace(spec));
    return this.open(uri, spec);
  }

  /** Another process's view. */
  open(uri: string, spec: NamespaceSpec, store: ObjectStore = this.store(uri), silence?: SilencePolicy): Log {
    return new Log({ store, env: this.env, spec, openOrigin: async (origin) => this.store(origin), silence });
  }
}

/** One producer id. */
export class Writer {
  readonly log: Log;
  readonly id: string;
  holder: Holder | undefined;
  seq = 0;

  constructor(log: Log, id = "p") {
    this.log = log;
    this.id = id;
  }

  async open(): Promise<this> {
    const opening = await openProducer(this.log, this.id);
    this.holder = opening.holder;
    this.seq = opening.state.seq;
    return this;
  }

  /** Uploads and does not commit. */
  async upload(
    options: { attempt?: number; samples?: LineageSample[]; seq?: number; cellsPerExtent?: number } = {},
  ): Promise<Descriptor> {
    if (!this.holder) await this.open();
    const { uuid } = this.log.spec;
    const seq = options.seq ?? this.seq;
    const name = {
      ...(this.holder as Holder),
      seq: asSeq(seq),
      attempt: options.attempt ?? 0,
      base: (await this.log.head.newest()).version,
    } as BatchName;
    const cells = Array.from({ length: rows * chunks }, (_, cell) => {
      const bytes = Buffer.from(`${uuid} ${this.id} ${seq} ${cell}`);
      return { bytes, rawLength: bytes.length, encoding: 0 };
    });
    const size = options.cellsPerExtent ?? cells.length;
    const extents: Descriptor["extents"][number][] = [];
    for (let firstCell = 0; firstCell < cells.length; firstCell += size) {
      const isLast = firstCell + size >= cells.length;
      const { body, entry } = encodeExtent(
        uuid,
        name,
        { extent: extents.length, firstCell },
        cells.slice(firstCell, firstCell + size),
        isLast ? { resumePoint: { after: seq } } : {},
        isLast && options.samples ? encodeLineage(options.samples) : undefined,
      );
      await this.log.store.put(batchKey(name, extents.length), body);
      extents.push(entry);
    }
    return { ...name, extents };
  }

  /** Commits uploaded batches. */
  async commit(batches: readonly Descriptor[]): Promise<void> {
    for (;;) {
      const { result } = await this.log.attemptBatches(this.holder as Holder, batches, { fresh: true });
      if (result?.verdicts.every((v) => v === "staged" || v === "in")) break;
      if (result?.verdicts.includes("expired")) throw new Error("expired");
    }
    this.seq = Math.max(this.seq, ...batches.map((b) => b.seq + 1));
  }

  /** Writes `count` batches, a commit each (or `perCommit` in one). */
  async write(count: number, options: { perCommit?: number; samples?: LineageSample[] } = {}): Promise<Descriptor[]> {
    const all: Descriptor[] = [];
    const perCommit = options.perCommit ?? 1;
    for (let done = 0; done < count; done += perCommit) {
      const batches: Descriptor[] = [];
      for (let i = 0; i < Math.min(perCommit, count - done); i++) {
        if (!this.holder) await this.open();
        batches.push(await this.upload({ ...options, seq: this.seq + i }));
      }
      await this.commit(batches);
      all.push(...batches);
    }
    return all;
  }
}

/** The cursor at the first row of a step. */
export function cursorAt(log: Log, step: number): Cursor {
  return makeCursor(log.spec.uuid, step * rows, step);
}

/** Every key of a store. */
export async function keysOf(store: ObjectStore, prefix = ""): Promise<string[]> {
  const keys: string[] = [];
  for (let startAfter: string | undefined; ; ) {
    const page = await store.list(prefix, { startAfter });
    keys.push(...page.objects.map((o) => o.key));
    if (!page.more) return keys;
    startAfter = keys.at(-1);
  }
}

/** The bytes of every step in `[trim, end)`, read through a fresh view: throws when anything is missing. */
export async function readAll(log: Log): Promise<Map<number, string>> {
  const manifest = await log.head.jump();
  const found = new Map<number, string>();
  for (let step = manifest.steps.trim as number; step < manifest.steps.end; step++) {
    const { descriptor, store } = await log.locate(manifest, step as never);
    const texts: string[] = [];
    for (let extent = 0; extent < descriptor.extents.length; extent++) {
      const bytes = await store.get(batchKey(descriptor, extent));
      if (!bytes) throw new Error(`step ${step}: ${batchKey(descriptor, extent)} is missing`);
      texts.push(Buffer.from(bytes.subarray(0, descriptor.extents[extent]?.table)).toString("latin1"));
    }
    found.set(step, texts.join("|"));
  }
  return found;
}
