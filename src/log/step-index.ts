/** From a step to its descriptor: the tail, the sealed index, or an ancestor's (forks). */
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
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
  type OriginRange,
  type Run,
  type Step,
  stepsPerNode,
  storedJsonBytesMax,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { lifeStore } from "./life.js";

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

/** A reader needs one object a level, and a segment or two more. Each segment kept is 64 descriptors that the collector goes through again and again. */
const runsCachedMax = 8;

/** Looks steps up. Index objects are immutable, so the last few stay in memory. */
export class StepIndex {
  readonly #store: ObjectStore;
  readonly #spec: NamespaceSpec;
  readonly #openOrigin: OpenOrigin;
  readonly #runs = new Map<string, Promise<unknown>>();
  readonly #origins = new Map<number, Promise<ObjectStore>>();
  /** The segment of this namespace that was used last: a reader goes through its steps one by one. */
  #lastRun: Run | undefined;

  constructor(store: ObjectStore, spec: NamespaceSpec, openOrigin: OpenOrigin) {
    this.#store = store;
    this.#spec = spec;
    this.#openOrigin = openOrigin;
  }

  /** The batch at `step`, which must be in `[trim, end)` of the verified `manifest`. */
  async locate(manifest: Manifest, step: Step, options?: CallOptions): Promise<BatchPlace> {
    const { trim, end } = manifest.steps;
    if (step < trim || step >= end) throw outside(manifest, step);
    const place = await this.#find(manifest, step, options);
    // Only a step that was trimmed before its fork was made has no objects.
    if (place.descriptor.extents.length === 0)
      corrupt(this.#store.uri, `step ${step} is promised, and no batch is there`, { step });
    return place;
  }

  async #find(manifest: Manifest, step: Step, options?: CallOptions): Promise<BatchPlace> {
    if (step >= manifest.tail.start)
      return await this.#place(manifest.tail.batches[step - manifest.tail.start] as Descriptor);
    const inherited = this.#inherited(step);
    if (inherited) return await this.#locateInherited(inherited, step, options);
    const own = { store: this.#store, namespace: this.#spec.uuid };
    // A committed step never changes, so it needs no second way down from a newer manifest.
    const known = this.#lastRun && descriptorIn(this.#lastRun, step);
    if (known) return await this.#place(known);
    const run = await this.#descend(own, manifest, step, options);
    this.#lastRun = run;
    return await this.#place(descriptorIn(run, step) as Descriptor);
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
    const bytes = await from.store.get(key, { ...options, bytesMax: storedJsonBytesMax });
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
    tree: { readonly index: readonly IndexLevel[]; readonly tail: Run },
    step: Step,
    options?: CallOptions,
  ): Promise<Run> {
    for (let level = 0; level < tree.index.length; level++) {
      const { start, refs } = tree.index[level] as IndexLevel;
      const ref = refs[Math.floor(step / stepsPerNode(level)) - start];
      const run = ref && (await this.#segment(from, ref, level, step, options));
      if (run) return run;
    }
    throw new BatchWeaveError(
      "CORRUPT",
      `Step ${step} is in no index object of ${from.store.uri}. Run \`batchweave verify\`.`,
      { step, until: nextCovered(tree, step) },
    );
  }

  /** The segment that holds `step`, from an object of `level` that covers it down. Undefined: a node has no reference for it. */
  async #segment(
    from: { store: ObjectStore; namespace: string },
    top: NodeRef,
    level: number,
    step: Step,
    options?: CallOptions,
  ): Promise<Run | undefined> {
    let ref: NodeRef | null | undefined = top;
    for (let at = level; ref; at--) {
      try {
        if (at === 0) {
          const run: Run = await this.readObject(from, ref, decodeSegment, options);
          assertPlace(ref, run.start === firstStep(step, 0), step);
          return run;
        }
        const node: IndexNode = await this.readObject(from, ref, decodeNode, options);
        assertPlace(ref, node.level === at && node.start === firstStep(step, at), step);
        ref = node.refs[Math.floor(step / stepsPerNode(at - 1)) % indexFanout];
      } catch (error) {
        throw lostUntil(error, firstStep(step, at) + stepsPerNode(at));
      }
    }
    return undefined;
  }

  #inherited(step: Step): Inherited | undefined {
    const origins = this.#spec.fork?.origins ?? [];
    for (let origin = 0; origin < origins.length; origin++) {
      for (const range of origins[origin]?.ranges ?? []) {
        if (step >= range.at && step < range.at + range.count) return { origin, range };
      }
    }
    return undefined;
  }

  async #locateInherited({ origin, range }: Inherited, step: Step, options?: CallOptions): Promise<BatchPlace> {
    const ancestor = await this.#origin(origin);
    const descriptor = await this.#inAncestor(ancestor, asStep(range.from + step - range.at), range, options);
    if (descriptor.origin === undefined)
      return { descriptor, store: ancestor.store, namespace: ancestor.namespace, origin };
    // The ancestor is a fork itself and inherited this batch: its numbers are not ours.
    return await this.#placeAt(descriptor, ancestor.via?.[descriptor.origin] ?? Number.MAX_SAFE_INTEGER);
  }

  async #inAncestor(
    ancestor: { store: ObjectStore; namespace: string; root: NodeRef },
    step: Step,
    range: OriginRange,
    options?: CallOptions,
  ): Promise<Descriptor> {
    const here = range.at - range.from;
    const end = range.at + range.count;
    let root: IndexRoot;
    try {
      root = await this.readObject(ancestor, ancestor.root, decodeRoot, options);
    } catch (error) {
      throw lostUntil(error, end);
    }
    try {
      const run = step < root.tail.start ? await this.#descend(ancestor, root, step, options) : root.tail;
      const descriptor = descriptorIn(run, step);
      if (descriptor) return descriptor;
    } catch (error) {
      const until = unreadableUntil(error);
      throw until === undefined ? error : lostUntil(error, Math.min(end, until + here));
    }
    return corrupt(nodeRefKey(ancestor.root), `it ends before step ${step}, which a fork shares`, { until: end });
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
    let store = this.#origins.get(number);
    if (!store) {
      store = this.#openOrigin(origin.uri).then((place) => lifeStore(place, origin));
      this.#origins.set(number, store);
    }
    return { store: await store, namespace: origin.uuid, root: origin.root, via: origin.via };
  }
}

interface Inherited {
  readonly origin: number;
  readonly range: OriginRange;
}

/** The first step that is not lost with what could not be read: `verify` says it once and goes on from there. */
export function unreadableUntil(error: unknown): number | undefined {
  const until = isBatchWeaveError(error) ? error.details["until"] : undefined;
  return typeof until === "number" ? until : undefined;
}

function lostUntil(error: unknown, until: number): unknown {
  if (!isBatchWeaveError(error)) return error;
  return new BatchWeaveError(error.code, error.message, { ...error.details, until }, error.cause);
}

/** The first step after `step` that some reference or the tail may hold. */
function nextCovered(
  { index, tail }: { readonly index: readonly IndexLevel[]; readonly tail: Run },
  step: number,
): number {
  const starts = index.flatMap(({ start, refs }, level) => (refs.length > 0 ? [start * stepsPerNode(level)] : []));
  // A node may have no reference for this step and one for the next segment.
  const inside = index.some(({ start, refs }, level) => refs[Math.floor(step / stepsPerNode(level)) - start]);
  return Math.min(
    ...starts.filter((at) => at > step),
    tail.start,
    inside ? firstStep(asStep(step), 0) + indexFanout : tail.start,
  );
}

function descriptorIn({ start, batches }: Run, step: Step): Descriptor | undefined {
  return batches[step - start];
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
