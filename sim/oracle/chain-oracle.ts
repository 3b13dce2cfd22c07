/**
 * The oracle of the log. It sees every write as the store applies it, so it knows the true chain: version N is the first object of
 * that name, created while N - 1 was the head. Whatever appears under an older name later is a zombie, which no process may believe.
 */
import {
  auditBatchObject,
  batchKey,
  batchPrefix,
  boundaryPrefix,
  crc32,
  type Descriptor,
  decodeBoundary,
  decodeFooter,
  type decodeManifest,
  decodeNamespace,
  decodeNode,
  decodeRoot,
  decodeSegment,
  descriptorKeys,
  genesisManifest,
  type IndexLevel,
  indexFanout,
  indexPrefix,
  lifeFolder,
  type Manifest,
  manifestPrefix,
  type NamespaceSpec,
  type NodeRef,
  namespaceKey,
  nodeRefKey,
  parseBatchKey,
  parseIndexKey,
  parseManifestKey,
  stepsPerNode,
} from "../../src/format/index.js";
import { type BatchIdentity, identityKey, readSlice } from "../actors/batch-content.js";
import { tenantsPrefix } from "../actors/side-actors.js";
import { indexRefs, keysWithin } from "../store/index-refs.js";
import type { Applied, SimStore } from "../store/sim-store.js";
import { keyInLife } from "../world/life-key.js";
import { nextOf, ProducerTruths } from "./producer-truth.js";
import { VersionOracle } from "./version-oracle.js";
import { Violation } from "./violation.js";

/** A batch of the true chain. */
export interface BatchTruth {
  readonly descriptor: Descriptor;
  readonly identity: BatchIdentity;
  readonly keys: readonly string[];
  /** CRC-32 of every cell's bytes. */
  readonly cells: readonly number[];
  /** Version that took it. */
  readonly version: number;
}

/** Watches the store, keeps the true chain, and fails the run at the very write that breaks a promise. */
export class ChainOracle {
  readonly producers: ProducerTruths;
  /** Batches by step, from the first step on, trimmed ones too. */
  readonly steps: BatchTruth[] = [];
  #spec: NamespaceSpec | undefined;
  #head: Manifest | undefined;
  #boundary = { n: 0, upTo: 0 };
  readonly #store: SimStore;
  readonly #decode: typeof decodeManifest;
  readonly versions: VersionOracle;
  readonly #bySeq = new Map<string, BatchTruth>();
  readonly #stepOfKey = new Map<string, number>();
  readonly #commitIds = new Set<string>();
  /** Commit ids by version. */
  readonly #commitOf: string[] = [];
  readonly #appended = new Set<string>();
  readonly #counters = new Map<string, number>();
  readonly #checkedRefs = new Set<string>();
  /** What forks share, by name: theirs until they let it go themselves, whatever the pins say. */
  readonly #held = new Map<string, ReadonlySet<string>>();
  #live: { readonly version: number; readonly keys: ReadonlySet<string> } | undefined;
  /** Versions committed, creates of versions that were taken, manifests created under a name that was used before, and so on. */
  readonly counts = {
    commits: 0,
    conflicts: 0,
    zombieManifests: 0,
    acknowledged: 0,
    reclaimed: 0,
    boundaries: 0,
    abortedUploads: 0,
  };

  constructor(store: SimStore, decode: typeof decodeManifest, keepLast: number) {
    this.#store = store;
    this.#decode = decode;
    this.versions = new VersionOracle(keepLast);
    this.producers = new ProducerTruths({
      get: (key) => store.get(this.#atPlace(key)),
      sizeOf: (key) => store.sizeOf(this.#atPlace(key)),
    });
    store.onApply = (applied) => this.#watch(applied);
  }

  /** The namespace, once it exists. */
  get spec(): NamespaceSpec | undefined {
    return this.#spec;
  }

  /** Head of the true chain, once there is a namespace. */
  get head(): Manifest | undefined {
    return this.#head;
  }

  /** The oldest row left. */
  get trimRow(): number {
    return (this.#head?.steps.trim ?? 0) * (this.#spec?.grid.rows ?? 1);
  }

  /** Highest version announced as deletable. */
  get boundary(): number {
    return this.#boundary.upTo;
  }

  // What actors report.

  /** A producer process is about to append this. Only such batches may ever be in the log. */
  append(batch: BatchIdentity): void {
    this.#appended.add(identityKey(batch));
    const { producer, counter } = batch;
    this.#counters.set(producer, Math.max(counter + 1, this.#counters.get(producer) ?? 0));
  }

  /** Batches of this id that anybody ever appended, whatever became of them. */
  counterOf(id: string): number {
    return this.#counters.get(id) ?? 0;
  }

  /** A producer was opened. */
  opened(id: string, epoch: number, nextSeq: number, resumePoint: unknown): void {
    const truth = this.producers.get(id);
    if (truth === undefined || truth.epoch < epoch)
      throw new Violation("opening", `${id} believes in epoch ${epoch}; the chain knows ${truth?.epoch ?? "none"}`);
    if ((nextOf(resumePoint) ?? 0) !== nextSeq)
      throw new Violation("resume-point", `${id} is to go on at ${nextSeq} from ${JSON.stringify(resumePoint)}`);
  }

  /** A batch was acknowledged to the process that appended it. */
  acknowledge(batch: BatchIdentity, epoch: number, version: number): void {
    this.requireIn(batch, epoch, version);
    this.counts.acknowledged++;
  }

  /** A batch is in the log, and no other under its name. */
  requireIn(batch: BatchIdentity, epoch: number, version: number): void {
    const { producer, counter } = batch;
    const truth = this.#bySeq.get(`${producer}/${counter}`);
    const told = `${producer}/${counter} of epoch ${epoch} is acknowledged as of version ${version}`;
    if (truth === undefined) throw new Violation("durability", `${told}, and no version of the chain has it`);
    if (truth.identity.variant !== batch.variant || truth.descriptor.epoch !== epoch)
      throw new Violation(
        "durability",
        `${told}; the chain has ${truth.identity.variant}'s of ${truth.descriptor.epoch}`,
      );
    if (truth.version > version || version > (this.#head?.version ?? 0))
      throw new Violation("durability", `${told}; it came in ${truth.version}, the head is ${this.#head?.version}`);
  }

  /** A process holds this manifest for verified: then it is a version of the true chain, and not what somebody made under its name. */
  verified(manifest: Manifest): void {
    const { version, commit } = manifest;
    const expected = this.#commitOf[version];
    if (version > 0 && expected !== commit.id)
      throw new Violation("verified", `version ${version} is believed to be commit ${commit.id}; it was ${expected}`);
  }

  /** FENCED is only true when somebody newer holds the id. */
  fenced(id: string, epoch: number): void {
    const truth = this.producers.get(id);
    if (truth === undefined || truth.epoch <= epoch)
      throw new Violation("fencing", `${id} is told that epoch ${epoch} is fenced; the chain is at ${truth?.epoch}`);
  }

  /** A fork was made that shares these steps; `heirOf`, the very steps of another fork. */
  forked(fork: string, shared: { readonly from: number; readonly to: number } | { readonly heirOf: string }): void {
    if ("heirOf" in shared) {
      const keys = this.#held.get(shared.heirOf);
      if (keys !== undefined) this.#held.set(fork, keys);
      return;
    }
    const keys = this.steps.slice(shared.from, shared.to).flatMap((truth) => truth.keys);
    this.#held.set(fork, new Set(keys));
  }

  /** A fork is about to give up what it shares. */
  unfork(fork: string): void {
    this.#held.delete(fork);
  }

  // What the store applies.

  /** The key of this life's object in the whole store. */
  #atPlace(key: string): string {
    const folder = this.#spec && key !== namespaceKey ? lifeFolder(this.#spec) : "";
    return folder === "" ? key : `${folder}/${key}`;
  }

  #watch({ kind, key: whole, changed, same }: Applied): void {
    if (whole.startsWith(tenantsPrefix)) return;
    if (kind === "put" && !same && !whole.startsWith("probe/"))
      throw new Violation("immutability", `${whole} was overwritten with other bytes`);
    if (whole.startsWith("forks/")) return;
    const key = keyInLife(whole);
    if (kind === "abort") {
      this.#onAbort(key);
      return;
    }
    if (kind === "delete") {
      if (changed) this.#onDelete(key);
      return;
    }
    if (!changed) {
      if (key.startsWith(manifestPrefix)) this.counts.conflicts++;
      return;
    }
    if (key.startsWith(manifestPrefix)) this.#onManifest(key);
    else if (key.startsWith(boundaryPrefix)) this.#onBoundary(key);
    else if (key === namespaceKey) {
      this.#spec = decodeNamespace(this.#store.get(key) as Uint8Array, key);
      this.#head = genesisManifest(this.#spec);
    }
  }

  #onManifest(key: string): void {
    const version = parseManifestKey(key);
    const before = this.#head;
    if (version === undefined || before === undefined || this.#spec === undefined) return;
    if (version <= before.version) {
      this.counts.zombieManifests++;
      if (version > this.#boundary.upTo)
        throw new Violation("announcement", `${key} was free although the boundary is ${this.#boundary.upTo}`);
      return;
    }
    if (version !== before.version + 1)
      throw new Violation("chain", `${key} was created while the head is ${before.version}`);
    const after = this.#decode(this.#store.get(this.#atPlace(key)) as Uint8Array, key, this.#spec.uuid, version);
    this.#accept(before, after);
    this.#head = after;
    this.counts.commits++;
  }

  #accept(before: Manifest, after: Manifest): void {
    const { version } = after;
    if (this.#commitIds.has(after.commit.id)) throw new Violation("chain", `commit ${after.commit.id} came twice`);
    this.#commitIds.add(after.commit.id);
    this.#commitOf[version] = after.commit.id;
    const grows = (what: string, from: number, to: number): void => {
      if (to < from) throw new Violation("monotone", `version ${version}: ${what} goes back from ${from} to ${to}`);
    };
    grows("end", before.steps.end, after.steps.end);
    grows("trim", before.steps.trim, after.steps.trim);
    grows("orphan cutoff", before.orphanCutoff, after.orphanCutoff);
    grows("boundary hint", before.boundaryHint, after.boundaryHint);
    grows("closed", Number(before.closed), Number(after.closed));
    if (after.boundaryHint > this.#boundary.n)
      throw new Violation(
        "boundary",
        `version ${version} hints at marker ${after.boundaryHint} of ${this.#boundary.n}`,
      );
    if (before.closed && after.steps.end > before.steps.end)
      throw new Violation("closed", `version ${version} appends to a closed log`);
    if (after.orphanCutoff > before.version)
      throw new Violation("cutoff", `version ${version} has the cutoff ${after.orphanCutoff}, above its base`);
    this.#checkRefs(before, after);
    const fresh = this.#checkSteps(before, after);
    this.producers.advance(
      before,
      after,
      fresh.map(({ descriptor }) => descriptor),
    );
    this.versions.check(this.#spec as NamespaceSpec, before, after);
  }

  /** Steps that were visible stay what they were; new ones exist, whole and sound, at the moment they become visible. */
  #checkSteps(before: Manifest, after: Manifest): BatchTruth[] {
    const { version, tail } = after;
    const fresh: BatchTruth[] = [];
    const take = (descriptor: Descriptor): BatchTruth => {
      const truth = this.#audit(descriptor, before, version);
      this.#bySeq.set(`${descriptor.producer}/${descriptor.seq}`, truth);
      fresh.push(truth);
      return truth;
    };
    tail.batches.forEach((descriptor, i) => {
      const truth = this.steps[tail.start + i];
      if (truth !== undefined) this.#requireSame(truth, descriptor, tail.start + i, version);
    });
    const waited = new Map([...before.waiting].map(([step, d]) => [step, d]));
    for (let step: number = before.steps.end; step < after.steps.end; step++) {
      const descriptor = this.#lookUp(after, step);
      const early = waited.get(step as never);
      waited.delete(step as never);
      const truth = early && this.#bySeq.get(`${early.producer}/${early.seq}`);
      if (truth !== undefined) this.#requireSame(truth, descriptor, step, version);
      const placed = truth ?? take(descriptor);
      this.steps[step] = placed;
      for (const key of placed.keys) this.#stepOfKey.set(key, step);
    }
    for (const [step, descriptor] of after.waiting) {
      const early = waited.get(step);
      waited.delete(step);
      const truth = early && this.#bySeq.get(`${early.producer}/${early.seq}`);
      if (truth !== undefined) this.#requireSame(truth, descriptor, step, version);
      else take(descriptor);
    }
    if (waited.size > 0 && !(after.closed && !before.closed))
      throw new Violation("durability", `version ${version} forgets waiting steps ${[...waited.keys()].join(", ")}`);
    return fresh;
  }

  #requireSame(truth: BatchTruth, found: Descriptor, step: number, version: number): void {
    const { descriptor } = truth;
    if (found === descriptor || batchKey(found, 0) === batchKey(descriptor, 0)) return;
    throw new Violation(
      "order",
      `version ${version} has ${batchKey(found, 0)} at step ${step}, where ${truth.keys[0]} was`,
    );
  }

  #lookUp({ tail, index, version, namespace }: Manifest, step: number): Descriptor {
    if (step >= tail.start) return tail.batches[step - tail.start] as Descriptor;
    for (let level = 0; level < index.length; level++) {
      const { start, refs } = index[level] as IndexLevel;
      let ref: NodeRef | null | undefined = refs[Math.floor(step / stepsPerNode(level)) - start];
      for (let below = level; ref && below > 0; below--) {
        const node = decodeNode(this.#bytes(nodeRefKey(ref), version), nodeRefKey(ref), namespace);
        ref = node.refs[Math.floor(step / stepsPerNode(below - 1)) % indexFanout];
      }
      if (!ref) continue;
      const run = decodeSegment(this.#bytes(nodeRefKey(ref), version), nodeRefKey(ref), namespace);
      const found = run.batches[step - run.start];
      if (found !== undefined) return found;
    }
    throw new Violation("reference", `version ${version} has no way to step ${step}`);
  }

  #bytes(key: string, version: number): Uint8Array {
    const bytes = this.#store.get(this.#atPlace(key));
    if (bytes === undefined) throw new Violation("reference", `version ${version} needs ${key}, which is not there`);
    return bytes;
  }

  /** Every index object that a version references is there, as it was when it was sealed, and no older than the cutoff allows. */
  #checkRefs(before: Manifest, after: Manifest): void {
    for (const ref of indexRefs(after)) {
      const key = nodeRefKey(ref);
      if (this.#checkedRefs.has(key)) continue;
      this.#checkedRefs.add(key);
      const bytes = this.#bytes(key, after.version);
      if (crc32(bytes) !== ref.check)
        throw new Violation("reference", `${key} is not what version ${after.version} says`);
      if (ref.base < before.orphanCutoff)
        throw new Violation("cutoff", `version ${after.version} stages ${key}, below ${before.orphanCutoff}`);
      // What a segment holds must be the steps as they were.
      if (!after.index.some((level, i) => i === 0 && level.refs.includes(ref))) continue;
      const run = decodeSegment(bytes, key, after.namespace);
      run.batches.forEach((descriptor, i) => {
        const truth = this.steps[run.start + i];
        if (truth !== undefined) this.#requireSame(truth, descriptor, run.start + i, after.version);
      });
    }
  }

  /** Checks every byte of a batch and who made it. */
  #audit(descriptor: Descriptor, before: Manifest, version: number): BatchTruth {
    const spec = this.#spec as NamespaceSpec;
    const first = batchKey(descriptor, 0);
    if (descriptor.base < before.orphanCutoff)
      throw new Violation("cutoff", `version ${version} takes ${first}; the cutoff is ${before.orphanCutoff}`);
    const twice = this.#bySeq.get(`${descriptor.producer}/${descriptor.seq}`);
    if (twice !== undefined)
      throw new Violation("exactly-once", `version ${version} takes ${first}; ${twice.keys[0]} is that seq already`);
    const cells: number[] = [];
    let identity: BatchIdentity | undefined;
    let firstCell = 0;
    for (const [number, extent] of descriptor.extents.entries()) {
      const key = batchKey(descriptor, number);
      const bytes = this.#bytes(key, version);
      const place = { extent: number, firstCell };
      const { metadata } = auditBatchObject(bytes, key, spec.uuid, descriptor, place, extent, false);
      const last = number === descriptor.extents.length - 1;
      if (last && nextOf(metadata.resumePoint) !== descriptor.seq + 1)
        throw new Violation("resume-point", `${key} says ${JSON.stringify(metadata.resumePoint)}`);
      const footer = decodeFooter(bytes.subarray(extent.table), key, spec.uuid, descriptor, place, extent);
      for (let i = 0; i < footer.cells; i++) {
        const entry = footer.entry(i);
        // Slices are stored as they are, and the audit has compared their checksums.
        const slice = readSlice(bytes.subarray(entry.offset, entry.offset + entry.length), key);
        identity ??= slice;
        if (
          slice.cell !== firstCell + i ||
          slice.producer !== descriptor.producer ||
          slice.counter !== descriptor.seq ||
          slice.variant !== identity.variant
        )
          throw new Violation("content", `${key} holds cell ${JSON.stringify(slice)} as its ${firstCell + i}`);
        cells.push(entry.crc);
      }
      firstCell += extent.cells;
    }
    if (identity === undefined || !this.#appended.has(identityKey(identity)))
      throw new Violation("content", `${first} holds what nobody appended: ${JSON.stringify(identity)}`);
    return { descriptor, identity, keys: descriptorKeys(descriptor), cells, version };
  }

  #onBoundary(key: string): void {
    if (this.#spec === undefined || this.#head === undefined) return;
    const n = Number(key.slice(boundaryPrefix.length, -".json".length));
    const marker = decodeBoundary(this.#store.get(this.#atPlace(key)) as Uint8Array, key, this.#spec.uuid, n);
    if (n !== this.#boundary.n + 1 || marker.upTo <= this.#boundary.upTo || marker.upTo >= this.#head.version)
      throw new Violation(
        "boundary",
        `${key} announces ${marker.upTo}; head ${this.#head.version}, before ${this.#boundary.upTo}`,
      );
    this.#boundary = { n, upTo: marker.upTo };
    this.counts.boundaries++;
  }

  #onDelete(key: string): void {
    const head = this.#head;
    if (head === undefined) return;
    const forbidden = (why: string): never => {
      throw new Violation("deletion", `${key} was deleted: ${why}`);
    };
    if (key.startsWith(boundaryPrefix) || key === namespaceKey) forbidden("it is kept for ever");
    for (const [fork, keys] of this.#held) if (keys.has(key)) forbidden(`the fork ${fork} shares it`);
    const version = parseManifestKey(key);
    if (version !== undefined) {
      if (version > this.#boundary.upTo) forbidden(`the boundary is ${this.#boundary.upTo}`);
      if (version >= head.version) forbidden("it is the head");
    }
    const base = key.startsWith(batchPrefix)
      ? parseBatchKey(key)?.name.base
      : key.startsWith(indexPrefix)
        ? parseIndexKey(key)?.base
        : undefined;
    if (base === undefined) return;
    this.counts.reclaimed++;
    // What was committed and trimmed cannot be staged again, so it may go before the cutoff reaches it.
    const isTrimmed = (this.#stepOfKey.get(key) ?? head.steps.trim) < head.steps.trim;
    if (base >= head.orphanCutoff && !isTrimmed) forbidden(`its base is not below the cutoff ${head.orphanCutoff}`);
    if (this.liveKeys(head).has(key)) forbidden(`version ${head.version} needs it`);
  }

  /** An upload below the cutoff cannot be staged any more; of any other its producer still hopes for something. */
  #onAbort(key: string): void {
    const base = parseBatchKey(key)?.name.base;
    const cutoff = this.#head?.orphanCutoff ?? 0;
    if (base === undefined || base >= cutoff)
      throw new Violation("deletion", `the upload of ${key} was aborted; the cutoff is ${cutoff}`);
    this.counts.abortedUploads++;
  }

  /** Keys that the head keeps alive. */
  liveKeys(head: Manifest): ReadonlySet<string> {
    if (this.#live?.version === head.version) return this.#live.keys;
    const keys = new Set<string>();
    for (let step: number = head.steps.trim; step < head.steps.end; step++)
      for (const key of this.steps[step]?.keys ?? []) keys.add(key);
    for (const descriptor of head.waiting.values()) for (const key of descriptorKeys(descriptor)) keys.add(key);
    for (const key of this.producers.lastKeys(head)) keys.add(key);
    for (const ref of indexRefs(head)) keys.add(nodeRefKey(ref));
    const read = (key: string): Uint8Array => this.#bytes(key, head.version);
    const { trim, end } = head.steps;
    for (const key of keysWithin(head.index, trim, end, head.namespace, read)) keys.add(key);
    for (const { from, to, root } of head.pins.values()) {
      for (let step: number = from; step < to; step++) for (const key of this.steps[step]?.keys ?? []) keys.add(key);
      const rootKey = nodeRefKey(root);
      const { index } = decodeRoot(read(rootKey), rootKey, head.namespace);
      for (const key of keysWithin(index, from, to, head.namespace, read)) keys.add(key);
    }
    this.#live = { version: head.version, keys };
    return keys;
  }

  // At the end.

  /** Walks everything the head promises: all of it is there and sound. */
  walk(): void {
    const head = this.#head;
    if (head === undefined) throw new Violation("activity", "no namespace was ever created");
    for (const key of this.liveKeys(head)) this.#bytes(key, head.version);
    for (let step: number = head.steps.trim; step < head.steps.end; step++) {
      const { descriptor, cells } = this.steps[step] as BatchTruth;
      let at = 0;
      for (const [number, extent] of descriptor.extents.entries()) {
        const key = batchKey(descriptor, number);
        const bytes = this.#bytes(key, head.version);
        auditBatchObject(bytes, key, head.namespace, descriptor, { extent: number, firstCell: at }, extent, false);
        at += extent.cells;
      }
      if (at !== cells.length) throw new Violation("content", `step ${step} has ${at} cells`);
    }
  }
}
