/** What the true chain says of every producer: followed from version to version, whatever is inline and whatever is in tables. */
import {
  batchKey,
  type Descriptor,
  decodeTable,
  type Manifest,
  type NodeRef,
  nodeRefKey,
  type ProducerState,
  type SilentProducer,
} from "../../src/format/index.js";
import type { SimStore } from "../store/sim-store.js";
import { Violation } from "./violation.js";

/** State of one producer id, as of the head of the true chain. */
export interface ProducerTruth {
  readonly epoch: number;
  readonly incarnation: string;
  /** The next seq. */
  readonly seq: number;
  /** Key of the object with the last resume point, once there is one. */
  readonly lastKey: string | undefined;
}

/** Follows producers along the chain. */
export class ProducerTruths {
  readonly #store: Pick<SimStore, "get" | "sizeOf">;
  readonly #truths = new Map<string, ProducerTruth>();
  readonly #tables = new Map<string, ReadonlyMap<string, SilentProducer>>();
  /** How often state moved out to a table, and how often somebody came back from one. */
  moved = 0;
  returned = 0;

  constructor(store: Pick<SimStore, "get" | "sizeOf">) {
    this.#store = store;
  }

  get(id: string): ProducerTruth | undefined {
    return this.#truths.get(id);
  }

  get ids(): Iterable<string> {
    return this.#truths.keys();
  }

  /** Keys of batch objects that hold somebody's resume point. */
  *lastKeys(manifest: Manifest): Iterable<string> {
    for (const [id, { resume }] of manifest.producers)
      if (resume.kind === "batch") yield batchKey({ producer: id, ...resume.batch }, resume.batch.extent);
  }

  /** Goes on to the next version; `fresh` are the batches that are new in it, in the order of their steps. */
  advance(before: Manifest, after: Manifest, fresh: readonly Descriptor[]): void {
    const byProducer = new Map<string, Descriptor[]>();
    for (const batch of fresh) {
      const list = byProducer.get(batch.producer);
      if (list === undefined) byProducer.set(batch.producer, [batch]);
      else list.push(batch);
    }
    let vanished = false;
    for (const id of before.producers.keys()) vanished ||= !after.producers.has(id);
    for (const id of byProducer.keys()) {
      if (!after.producers.has(id))
        throw new Violation("producer-state", `version ${after.version} has batches of ${id} and no state`);
    }
    for (const [id, state] of after.producers) {
      const old = before.producers.get(id);
      const batches = byProducer.get(id);
      // Untouched state is most of it.
      if (batches === undefined && old !== undefined && sameState(old, state)) continue;
      if (old === undefined && this.#truths.has(id)) this.returned++;
      this.#follow(id, state, batches ?? [], after);
    }
    if (vanished || !sameTables(before.tables, after.tables)) this.#checkTables(after);
  }

  #follow(id: string, state: ProducerState, batches: readonly Descriptor[], after: Manifest): void {
    const truth: ProducerTruth = this.#truths.get(id) ?? { epoch: 0, incarnation: "", seq: 0, lastKey: undefined };
    let { seq, lastKey } = truth;
    let opened = false;
    for (const batch of [...batches].sort((a, b) => a.seq - b.seq)) {
      const old = batch.epoch === truth.epoch && batch.incarnation === truth.incarnation;
      const mine = batch.epoch === state.epoch && batch.incarnation === state.incarnation;
      if (!mine && (!old || opened)) {
        throw new Violation(
          "fencing",
          `version ${after.version} takes ${name(batch)} although ${id} is held by epoch ${state.epoch} ${state.incarnation}`,
        );
      }
      opened ||= !old;
      if (batch.seq !== seq)
        throw new Violation("sequence", `version ${after.version} takes ${name(batch)}; the next seq is ${seq}`);
      seq++;
      lastKey = batchKey(batch, batch.extents.length - 1);
    }
    const same = state.epoch === truth.epoch && state.incarnation === truth.incarnation;
    if (!same && state.epoch !== truth.epoch + 1) {
      throw new Violation(
        "epoch",
        `version ${after.version}: ${id} goes from epoch ${truth.epoch} ${truth.incarnation} to ${state.epoch} ${state.incarnation}`,
      );
    }
    if (state.seq !== seq)
      throw new Violation("sequence", `version ${after.version}: ${id} says seq ${state.seq}, its batches say ${seq}`);
    this.#truths.set(id, { epoch: state.epoch, incarnation: state.incarnation, seq, lastKey });
    this.#checkResume(id, state, seq, lastKey, after);
  }

  #checkResume(id: string, state: ProducerState, seq: number, lastKey: string | undefined, after: Manifest): void {
    const { resume } = state;
    const { version } = after;
    if (resume.kind === "none") {
      if (seq > 0) throw new Violation("resume-point", `version ${version}: ${id} has ${seq} batches, no resume point`);
      return;
    }
    if (resume.kind === "batch") {
      const key = batchKey({ producer: id, ...resume.batch }, resume.batch.extent);
      if (key !== lastKey)
        throw new Violation("resume-point", `version ${version}: the last batch of ${id} is ${lastKey}, not ${key}`);
      if (this.#store.sizeOf(key) === undefined)
        throw new Violation("resume-point", `version ${version}: ${key}, the last of ${id}, is gone`);
      return;
    }
    const entry = this.#table(resume.table, after).get(id);
    if (nextOf(entry?.resumePoint) !== seq)
      throw new Violation("resume-point", `version ${version}: the table of ${id} does not say ${seq}`);
  }

  /** Whoever is not inline must be in a table, newest first, just as it left. */
  #checkTables(after: Manifest): void {
    const { version, producers, tables } = after;
    for (const [id, truth] of this.#truths) {
      if (producers.has(id)) continue;
      let entry: SilentProducer | undefined;
      for (let i = tables.length - 1; i >= 0 && entry === undefined; i--)
        entry = this.#table(tables[i] as NodeRef, after).get(id);
      const { epoch, incarnation, seq } = truth;
      if (entry?.state.epoch === epoch && entry.state.incarnation === incarnation && entry.state.seq === seq) {
        if (seq === 0 || nextOf(entry.resumePoint) === seq) continue;
      }
      const found = entry === undefined ? "nothing" : `epoch ${entry.state.epoch}, seq ${entry.state.seq}`;
      throw new Violation(
        "silent-state",
        `version ${version}: ${id} left the manifest at epoch ${epoch}, seq ${seq}; its tables say ${found}`,
      );
    }
  }

  #table(ref: NodeRef, { version, namespace }: Manifest): ReadonlyMap<string, SilentProducer> {
    const key = nodeRefKey(ref);
    const bytes = this.#store.get(key);
    if (bytes === undefined) throw new Violation("reference", `version ${version} needs ${key}, which is not there`);
    let table = this.#tables.get(key);
    if (table === undefined) {
      table = decodeTable(bytes, key, namespace);
      this.#tables.set(key, table);
      this.moved += table.size;
    }
    return table;
  }
}

/** The counter that a simulated producer's resume point holds. */
export function nextOf(resumePoint: unknown): number | undefined {
  const next = (resumePoint as { next?: unknown } | null | undefined)?.next;
  return typeof next === "number" ? next : undefined;
}

function sameState(a: ProducerState, b: ProducerState): boolean {
  return a.epoch === b.epoch && a.incarnation === b.incarnation && a.seq === b.seq && a.resume.kind === b.resume.kind;
}

function sameTables(a: readonly NodeRef[], b: readonly NodeRef[]): boolean {
  return a.length === b.length && a.every((ref, i) => nodeRefKey(ref) === nodeRefKey(b[i] as NodeRef));
}

function name(batch: Descriptor): string {
  return `${batch.producer} epoch ${batch.epoch} ${batch.incarnation} seq ${batch.seq}`;
}
