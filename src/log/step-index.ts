/** From a step to its descriptor: the tail, the sealed index, or an ancestor's (forks). */
import { BatchWeaveError } from "../errors.js";
import {
  asStep,
  corrupt,
  crc32,
  type Descriptor,
  decodeNode,
  decodeRoot,
  decodeSegment,
  type IndexLevel,
  type IndexNode,
  type IndexRoot,
  indexFanout,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  nodeRefKey,
  type Run,
  type Step,
  stepsPerNode,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";

/** Where a batch's objects are. */
export interface BatchPlace {
  readonly descriptor: Descriptor;
  /** The store that holds them: this namespace's, or an ancestor's. */
  readonly store: ObjectStore;
  /** The namespace uuid in those objects. */
  readonly namespace: string;
  /** Position in this namespace's origins when an ancestor holds them. */
  readonly origin?: number | undefined;
}

/** Opens an ancestor's store by its uri; passed in, so that the log knows no schemes. */
export type OpenOrigin = (uri: string) => Promise<ObjectStore>;

const runsCachedMax = 64;

/** Looks steps up. Index objects are immutable, so the last few stay in memory. */
export class StepIndex {
  readonly #store: ObjectStore;
  readonly #spec: NamespaceSpec;
  readonly #openOrigin: OpenOrigin;
  readonly #runs = new Map<string, Promise<unknown>>();
  readonly #origins = new Map<string, Promise<ObjectStore>>();

  constructor(store: ObjectStore, spec: NamespaceSpec, openOrigin: OpenOrigin) {
    this.#store = store;
    this.#spec = spec;
    this.#openOrigin = openOrigin;
  }

  /** The batch at `step`, which must be in `[trim, end)` of the verified `manifest`. */
  async locate(manifest: Manifest, step: Step, options?: CallOptions): Promise<BatchPlace> {
    const { trim, end } = manifest.steps;
    if (step < trim || step >= end) throw outside(manifest, step);
    const own = { store: this.#store, namespace: this.#spec.uuid };
    if (step < manifest.tail.start) {
      const inherited = this.#inherited(step);
      if (inherited) return await this.#locateInherited(inherited.origin, inherited.step, options);
      const descriptor = await this.#descend(own, manifest.index, step, options);
      return await this.#place(descriptor);
    }
    return await this.#place(manifest.tail.batches[step - manifest.tail.start] as Descriptor);
  }

  /** Reads and checks an index object of this namespace or an ancestor. */
  async readObject<T>(
    from: { store: ObjectStore; namespace: string },
    ref: NodeRef,
    decode: (bytes: Uint8Array, where: string, namespace: string) => T,
    options?: CallOptions,
  ): Promise<T> {
    const key = nodeRefKey(ref);
    const cacheKey = `${from.namespace}/${key}`;
    const cached = this.#runs.get(cacheKey) as Promise<T> | undefined;
    if (cached) {
      // Most recently used last.
      this.#runs.delete(cacheKey);
      this.#runs.set(cacheKey, cached);
      return await cached;
    }
    const reading = this.#fetch(from, ref, key, decode, options);
    this.#runs.set(cacheKey, reading);
    const oldest = this.#runs.keys().next().value;
    if (this.#runs.size > runsCachedMax && oldest !== undefined) this.#runs.delete(oldest);
    try {
      return await reading;
    } catch (error) {
      this.#runs.delete(cacheKey);
      throw error;
    }
  }

  async #fetch<T>(
    from: { store: ObjectStore; namespace: string },
    ref: NodeRef,
    key: string,
    decode: (bytes: Uint8Array, where: string, namespace: string) => T,
    options?: CallOptions,
  ): Promise<T> {
    const bytes = await from.store.get(key, options);
    if (!bytes) throw missingIndexObject(key, from.store.uri);
    if (crc32(bytes) !== ref.check) {
      throw new BatchWeaveError(
        "CORRUPT",
        `${key} does not match the reference to it. Restore it from a replica or a backup.`,
        { key, expected: ref.check, found: crc32(bytes) },
      );
    }
    return decode(bytes, key, from.namespace);
  }

  async #descend(
    from: { store: ObjectStore; namespace: string },
    levels: readonly IndexLevel[],
    step: Step,
    options?: CallOptions,
  ): Promise<Descriptor> {
    for (let level = 0; level < levels.length; level++) {
      const { start, refs } = levels[level] as IndexLevel;
      const number = Math.floor(step / stepsPerNode(level));
      let ref: NodeRef | null | undefined = refs[number - start];
      for (let below = level; ref && below > 0; below--) {
        const node: IndexNode = await this.readObject(from, ref, decodeNode, options);
        assertPlace(ref, node.level === below && node.start === firstStep(step, below), step);
        ref = node.refs[Math.floor(step / stepsPerNode(below - 1)) % indexFanout];
      }
      if (ref) {
        const run: Run = await this.readObject(from, ref, decodeSegment, options);
        assertPlace(ref, run.start === firstStep(step, 0), step);
        return run.batches[step - run.start] as Descriptor;
      }
    }
    throw new BatchWeaveError(
      "CORRUPT",
      `Step ${step} is in no index object of ${from.store.uri}. Run \`batchweave verify\`.`,
      { step },
    );
  }

  #inherited(step: Step): { origin: number; step: Step } | undefined {
    const origins = this.#spec.fork?.origins ?? [];
    for (let origin = 0; origin < origins.length; origin++) {
      for (const range of origins[origin]?.ranges ?? []) {
        if (step >= range.at && step < range.at + range.count)
          return { origin, step: asStep(range.from + step - range.at) };
      }
    }
    return undefined;
  }

  async #locateInherited(origin: number, step: Step, options?: CallOptions): Promise<BatchPlace> {
    const ancestor = await this.#origin(origin);
    const root: IndexRoot = await this.readObject(ancestor, ancestor.root, decodeRoot, options);
    const descriptor =
      step >= root.tail.start
        ? (root.tail.batches[step - root.tail.start] as Descriptor)
        : await this.#descend(ancestor, root.index, step, options);
    if (descriptor.origin === undefined)
      return { descriptor, store: ancestor.store, namespace: ancestor.namespace, origin };
    // The ancestor is a fork itself and inherited this batch: its numbers are not ours.
    return await this.#placeAt(descriptor, ancestor.via?.[descriptor.origin] ?? Number.MAX_SAFE_INTEGER);
  }

  async #place(descriptor: Descriptor): Promise<BatchPlace> {
    if (descriptor.origin === undefined) return { descriptor, store: this.#store, namespace: this.#spec.uuid };
    return await this.#placeAt(descriptor, descriptor.origin);
  }

  async #placeAt(descriptor: Descriptor, origin: number): Promise<BatchPlace> {
    const ancestor = await this.#origin(origin);
    return { descriptor, store: ancestor.store, namespace: ancestor.namespace, origin };
  }

  async #origin(
    number: number,
  ): Promise<{ store: ObjectStore; namespace: string; root: NodeRef; via?: readonly number[] | undefined }> {
    const origin = this.#spec.fork?.origins[number];
    if (!origin)
      throw new BatchWeaveError(
        "CORRUPT",
        `A batch of ${this.#store.uri} names origin ${number}, which namespace.json does not list.`,
        { origin: number },
      );
    let store = this.#origins.get(origin.uri);
    if (!store) {
      store = this.#openOrigin(origin.uri);
      this.#origins.set(origin.uri, store);
    }
    return { store: await store, namespace: origin.uuid, root: origin.root, via: origin.via };
  }
}

/** The first step under the object of `level` that covers `step`. */
function firstStep(step: Step, level: number): number {
  return step - (step % stepsPerNode(level));
}

/** A reference that leads to another part of the index must not give another step's batch. */
function assertPlace(ref: NodeRef, isExpected: boolean, step: Step): void {
  if (!isExpected) corrupt(nodeRefKey(ref), `it does not cover step ${step}, for which the index names it`);
}

function missingIndexObject(key: string, uri: string): BatchWeaveError {
  return new BatchWeaveError(
    "MISSING_OBJECT",
    `${key} is referenced by the log and is not in ${uri}. If a reclaim passed meanwhile, load the head again; otherwise restore it.`,
    { key },
  );
}

/** Gone, or not there yet: people must do different things about the two. */
function outside({ steps: { trim, end }, closed }: Manifest, step: Step): BatchWeaveError {
  if (step < trim) {
    const left = trim < end ? `holds steps ${trim} to ${end - 1}; ask for one of those` : "holds no step now";
    const message = `Step ${step} was reclaimed, and nothing brings it back: the log ${left}.`;
    return new BatchWeaveError("RECLAIMED", message, { step, trim, end });
  }
  const last = end === 0 ? "nothing is published yet" : `the last step is ${end - 1}`;
  const message = closed
    ? `Step ${step} does not exist: the log is closed and ${last}.`
    : `Step ${step} is not published yet: ${last}, and the log is open. Ask again when producers have come that far.`;
  return new BatchWeaveError("INVALID_ARGUMENT", message, { step, trim, end });
}
