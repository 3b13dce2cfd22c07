/** A draft: the next version of the state while it is being staged. Pure; nothing here touches the store. */
import {
  asStep,
  asVersion,
  type CheckpointGroup,
  crc32,
  type Descriptor,
  encodeNode,
  encodeSegment,
  type IndexLevel,
  indexFanout,
  indexKey,
  type Manifest,
  type ManifestSettings,
  type NodeRef,
  type Pin,
  type ProducerState,
  type Step,
  stepsPerNode,
  type Version,
} from "../format/index.js";

/** An index object that must be written before the commit. */
interface SealedObject {
  readonly key: string;
  readonly bytes: Uint8Array;
}

/** Who makes the next version, as the manifest records it. */
interface CommitStamp {
  readonly id: string;
  readonly by: string;
  readonly kind?: Manifest["commit"]["kind"];
  readonly time: number;
  readonly boundaryHint: number;
}

/** Mutable copy of a base manifest. `stage*` functions change it; {@link Draft.finish} makes the next version. */
export class Draft {
  readonly base: Manifest;
  readonly version: Version;
  readonly producers: Map<string, ProducerState>;
  readonly checkpoints: Map<string, CheckpointGroup>;
  readonly pins: Map<string, Pin>;
  readonly waiting: Map<Step, Descriptor>;
  tables: NodeRef[];
  trim: Step;
  closed: boolean;
  /** True: the next version is the last one. */
  deleted = false;
  orphanCutoff: Version;
  settings: ManifestSettings | undefined;
  starving: Step | undefined;
  rest: Record<string, unknown>;
  readonly sealed: SealedObject[] = [];
  readonly #stamp: CommitStamp;
  #tail: Descriptor[];
  #tailStart: Step;
  #levels: { start: number; refs: NodeRef[] }[];

  constructor(base: Manifest, stamp: CommitStamp) {
    this.base = base;
    this.version = asVersion(base.version + 1);
    this.producers = new Map(base.producers);
    this.checkpoints = new Map(base.checkpoints);
    this.pins = new Map(base.pins);
    this.waiting = new Map(base.waiting);
    this.tables = [...base.tables];
    this.trim = base.steps.trim;
    this.closed = base.closed;
    this.orphanCutoff = base.orphanCutoff;
    this.settings = base.settings;
    this.starving = base.starving;
    this.rest = { ...base.rest };
    this.#stamp = stamp;
    this.#tail = [...base.tail.batches];
    this.#tailStart = base.tail.start;
    this.#levels = base.index.map((level) => ({ start: level.start, refs: [...level.refs] }));
  }

  /** The first step not visible yet. */
  get end(): Step {
    return asStep(this.#tailStart + this.#tail.length);
  }

  /** Gives a batch the next step. */
  push(descriptor: Descriptor): void {
    this.#tail.push(descriptor);
  }

  /** Registers an index object to be written before the commit and returns its reference. */
  seal(bytes: Uint8Array): NodeRef {
    const ref: NodeRef = {
      base: this.base.version,
      commitId: this.#stamp.id,
      k: this.sealed.length,
      check: crc32(bytes),
    };
    this.sealed.push({ key: indexKey(ref.base, ref.commitId, ref.k), bytes });
    return ref;
  }

  /** Seals what is full, drops index references below the trim, and returns the next version. */
  finish(): Manifest {
    this.#sealTail();
    return {
      namespace: this.base.namespace,
      version: this.version,
      commit: this.#stampText(),
      steps: { trim: this.trim, end: this.end },
      closed: this.closed,
      ...(this.deleted ? { deleted: true } : {}),
      index: this.#trimmedLevels(),
      tail: { start: this.#tailStart, batches: this.#tail },
      waiting: this.waiting,
      producers: this.producers,
      tables: this.tables,
      checkpoints: this.checkpoints,
      pins: this.pins,
      settings: this.settings,
      // It says nothing once the end has moved on.
      starving: this.starving === this.end ? this.starving : undefined,
      orphanCutoff: this.orphanCutoff,
      boundaryHint: Math.max(this.#stamp.boundaryHint, this.base.boundaryHint),
      rest: this.rest,
    };
  }

  #stampText(): Manifest["commit"] {
    const { id, by, time, kind } = this.#stamp;
    return { id, by, time, ...(kind === undefined ? {} : { kind }) };
  }

  /** Moves every full run of 64 descriptors into a segment, and every full level into a node above it. */
  #sealTail(): void {
    while (this.#tail.length >= indexFanout) {
      const batches = this.#tail.slice(0, indexFanout);
      const ref = this.seal(encodeSegment(this.base.namespace, { start: this.#tailStart, batches }));
      this.#pushRef(0, this.#tailStart / indexFanout, ref);
      this.#tail = this.#tail.slice(indexFanout);
      this.#tailStart = asStep(this.#tailStart + indexFanout);
    }
  }

  #pushRef(levelNumber: number, number: number, ref: NodeRef): void {
    const level = this.#levels[levelNumber] ?? { start: number, refs: [] };
    this.#levels[levelNumber] = level;
    level.refs.push(ref);
    if ((number + 1) % indexFanout !== 0) return;
    // The level is full: its last 64 objects get a parent. Those the trim has passed are left out of it.
    const first = number + 1 - indexFanout;
    const refs = Array.from({ length: indexFanout }, (_, i) => level.refs[first + i - level.start] ?? null);
    const start = asStep(first * stepsPerNode(levelNumber));
    const parent = this.seal(encodeNode(this.base.namespace, { level: levelNumber + 1, start, refs }));
    this.#levels[levelNumber] = { start: number + 1, refs: [] };
    this.#pushRef(levelNumber + 1, first / indexFanout, parent);
  }

  #trimmedLevels(): IndexLevel[] {
    return this.#levels.map((level, i) => {
      const passed = Math.floor(this.trim / stepsPerNode(i));
      const drop = Math.min(Math.max(0, passed - level.start), level.refs.length);
      return { start: level.start + drop, refs: level.refs.slice(drop) };
    });
  }
}
