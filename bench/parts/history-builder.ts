/**
 * Histories by staging: the real drafts seal the real index objects, one segment a draft, as if every batch had been a commit of its
 * own by one of a thousand producers in turn. Descriptors are synthetic, except those of the steps that will be read.
 */
import {
  asEpoch,
  asSeq,
  asStep,
  asVersion,
  batchKey,
  type Descriptor,
  encodeExtent,
  genesisManifest,
  indexFanout,
  type Manifest,
  type NamespaceSpec,
  type ProducerState,
} from "../../src/format/index.js";
import { Draft } from "../../src/log/index.js";
import type { Pack } from "./history-store.js";

/** A batch object that exists, with its descriptor in the history. */
export interface StoredBatch {
  readonly key: string;
  readonly body: readonly Uint8Array[];
}

const alphabet = "0123456789abcdefghijklmnopqrstuv";
const idChars = 12;

/** A well-mixed 32-bit number of two. */
function mix(a: number, b: number): number {
  let h = Math.imul(a ^ 0x9e3779b9, 0x85ebca6b) ^ Math.imul(b + 0x7f4a7c15, 0xc2b2ae35);
  h = Math.imul(h ^ (h >>> 15), 0x2c1b3c6d);
  h = Math.imul(h ^ (h >>> 12), 0x297a2d39);
  return (h ^ (h >>> 15)) >>> 0;
}

function id(a: number, b: number): string {
  let text = "";
  for (let i = 0; i < idChars; i++) text += alphabet[mix(a, b * 16 + i) & 31];
  return text;
}

/** A history that grows; its state can be taken at any length on the way. */
export class HistoryBuilder {
  readonly spec: NamespaceSpec;
  readonly producers: number;
  /** Batches of the steps asked for, by step. */
  readonly stored: ReadonlyMap<number, StoredBatch>;
  readonly #real: ReadonlyMap<number, Descriptor>;
  readonly #pack: Pack;
  #manifest: Manifest;

  constructor(spec: NamespaceSpec, producers: number, realSteps: ReadonlySet<number>, pack: Pack) {
    this.spec = spec;
    this.producers = producers;
    this.#pack = pack;
    this.#manifest = genesisManifest(spec);
    const batches = [...realSteps].map((step) => [step, this.#makeBatch(step)] as const);
    this.#real = new Map(batches.map(([step, { descriptor }]) => [step, descriptor]));
    this.stored = new Map(batches.map(([step, { batch }]) => [step, batch]));
  }

  /** The version that committed a step: one for each step before it, and one for each producer's opening. */
  versionOf(step: number): number {
    return this.producers + step + 1;
  }

  /** Goes on to `steps` steps and gives the manifest at that point; `boundaryHint` is the newest marker's number then. */
  at(steps: number, boundaryHint: number): Manifest {
    for (let end = this.#manifest.steps.end + indexFanout; end <= steps; end += indexFanout)
      this.#manifest = this.#grow(this.#manifest, end, true);
    const manifest = steps > this.#manifest.steps.end ? this.#grow(this.#manifest, steps, false) : this.#manifest;
    return { ...manifest, producers: this.#producerStates(steps), boundaryHint };
  }

  #grow(from: Manifest, end: number, keep: boolean): Manifest {
    const version = this.versionOf(end - 1);
    const base = { ...from, version: asVersion(version - 1) };
    const draft = new Draft(base, {
      id: id(version, 1),
      by: this.#producer(end - 1),
      time: 1_760_000_000_000 + version,
      boundaryHint: 0,
    });
    for (let step: number = from.steps.end; step < end; step++) draft.push(this.#descriptor(step));
    const next = draft.finish();
    if (keep) for (const { key, bytes } of draft.sealed) this.#pack.add(key, bytes);
    return next;
  }

  #producer(step: number): string {
    return `tokenizer-${String(step % this.producers).padStart(4, "0")}`;
  }

  #name(step: number): Omit<Descriptor, "extents"> {
    return {
      producer: this.#producer(step),
      epoch: asEpoch(1),
      incarnation: id(step % this.producers, 2),
      seq: asSeq(Math.floor(step / this.producers)),
      base: asVersion(Math.max(0, this.versionOf(step) - 64 - (step % 64))),
      attempt: 0,
    };
  }

  #descriptor(step: number): Descriptor {
    const real = this.#real.get(step);
    if (real) return real;
    const { rows, chunks } = this.spec.grid;
    const table = 8_388_608 + 200;
    const extent = { cells: rows * chunks, size: table + rows * chunks * 24 + 80, table, check: mix(step, 3) };
    return { ...this.#name(step), extents: [extent] };
  }

  #makeBatch(step: number): { descriptor: Descriptor; batch: StoredBatch } {
    const { rows, chunks } = this.spec.grid;
    const slices = Array.from({ length: rows * chunks }, (_, i) => {
      const bytes = Buffer.alloc(256, `${step}/${i} `);
      return { bytes, rawLength: bytes.length, encoding: 0 };
    });
    const name = this.#name(step);
    const { body, entry } = encodeExtent(this.spec.uuid, name, { extent: 0, firstCell: 0 }, slices, {});
    return { descriptor: { ...name, extents: [entry] }, batch: { key: batchKey(name, 0), body } };
  }

  #producerStates(steps: number): Map<string, ProducerState> {
    const states = new Map<string, ProducerState>();
    for (let step = Math.max(0, steps - this.producers); step < steps; step++) {
      const { producer, extents, ...name } = this.#descriptor(step);
      const { size, check } = extents[0] as Descriptor["extents"][number];
      states.set(producer, {
        epoch: name.epoch,
        incarnation: name.incarnation,
        seq: asSeq(name.seq + 1),
        at: asVersion(this.versionOf(step)),
        resume: { kind: "batch", batch: { ...name, extent: 0, size, check } },
      });
    }
    return states;
  }

  /** The next batch of the producer whose turn it is at the end of `manifest`. */
  nextBatch(manifest: Manifest): Descriptor {
    return { ...this.#descriptor(manifest.steps.end), base: asVersion(manifest.version - 1) };
  }

  /** First slice of a stored step, as it must read. */
  sliceOf(step: number, i: number): Uint8Array {
    return Buffer.alloc(256, `${step}/${i} `);
  }
}

/** Steps to read: spread over the history by chance, the same for the same seed. */
export function probeSteps(steps: number, count: number, seed: number): number[] {
  return Array.from({ length: count }, (_, i) => asStep(mix(seed + steps, i) % steps));
}
