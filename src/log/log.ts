/** The log of one namespace: reading verified state and committing changes to it. */

import type { Env } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  type BatchMetadata,
  batchKey,
  corrupt,
  type Descriptor,
  type decodeManifest,
  decodeMetadata,
  decodeTable,
  decodeTrailer,
  footerCheck,
  type LastBatch,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  type ProducerState,
  type SilentProducer,
  type Step,
  trailerBytes,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { type Attempt, type Change, type CommitOptions, Committer } from "./commit.js";
import { Head } from "./head.js";
import { type Intents, noIntents, stageIntents } from "./intents.js";
import { lifeStore } from "./life.js";
import { Presence } from "./presence.js";
import { RoundTrip } from "./round-trip.js";
import {
  defaultSilence,
  findSilent,
  lookUpSilence,
  type SilenceFindings,
  type SilencePolicy,
  stageSilence,
} from "./silent.js";
import {
  type BatchVerdict,
  fenced,
  type Holder,
  holds,
  type SilentFinding,
  stageBatches,
  stageClosing,
  stageLeaving,
  stageReturn,
} from "./stage.js";
import { type BatchPlace, type OpenOrigin, StepIndex } from "./step-index.js";

/** Components of a log. */
interface LogParts {
  /** The place: the store that `namespace.json` is in. */
  readonly store: ObjectStore;
  readonly env: Env;
  readonly spec: NamespaceSpec;
  /** Monotonic time before `spec` was read; a process may be paused between that and now. Default: now. */
  readonly specReadAtMs?: number | undefined;
  readonly openOrigin: OpenOrigin;
  readonly silence?: SilencePolicy | undefined;
  /** How manifests are decoded. Default: each by itself. */
  readonly decode?: typeof decodeManifest | undefined;
}

interface BatchesFindings {
  readonly silence: SilenceFindings | undefined;
  readonly returning: ReadonlyMap<string, SilentFinding>;
}

/** What one attempt did with own and others' batches. */
interface BatchesResult {
  readonly verdicts: readonly BatchVerdict[];
  readonly carried: number;
}

/** How a producer's batches are to be committed. */
interface BatchesOptions extends CommitOptions {
  /** `carrier`: goes on committing for all producers; `own`: commits for itself; `leave`: this is its last, and its state says so. Default `own`. */
  readonly kind?: "carrier" | "own" | "leave" | undefined;
  /** What others announced. */
  readonly intents?: Intents | undefined;
}

/** One process's view of one namespace. */
export class Log {
  /** The store that `namespace.json` is in. */
  readonly place: ObjectStore;
  /** The store of everything else: in this life's own folder. */
  readonly store: ObjectStore;
  readonly env: Env;
  readonly spec: NamespaceSpec;
  readonly head: Head;
  readonly index: StepIndex;
  /** Whether `namespace.json` is still this one's. */
  readonly presence: Presence;
  /** How long this store takes for a small write. */
  readonly roundTrip: RoundTrip = new RoundTrip();
  readonly #committer: Committer;
  readonly #silence: SilencePolicy;

  constructor(parts: LogParts) {
    this.place = parts.store;
    this.store = lifeStore(parts.store, parts.spec);
    this.env = parts.env;
    this.spec = parts.spec;
    this.head = new Head(this.store, parts.env, parts.spec, { decode: parts.decode, roundTrip: this.roundTrip });
    this.index = new StepIndex(this.store, parts.spec, parts.openOrigin);
    this.presence = new Presence(parts.store, parts.env, this.head, parts.spec, parts.specReadAtMs);
    this.#committer = new Committer(this.store, parts.env, this.head, this.presence, this.roundTrip);
    this.#silence = parts.silence ?? defaultSilence;
  }

  /** The batch at a step of a verified manifest. */
  locate(manifest: Manifest, step: Step, options?: CallOptions): Promise<BatchPlace> {
    return this.index.locate(manifest, step, options);
  }

  /** Commits any change, retrying until it is in or refused. */
  commit<P, R>(change: Change<P, R>, options?: CommitOptions): Promise<{ manifest: Manifest; result: R }> {
    return this.#committer.commit(change, options);
  }

  /** One attempt at any change: lost or unsettled, the caller decides when to try again. */
  attempt<P, R>(change: Change<P, R>, options?: CommitOptions): Promise<Attempt<R>> {
    return this.#committer.attempt(change, options);
  }

  /**
   * One attempt at committing a producer's uploaded batches and, with `intents`, all other producers'. `result.verdicts` are the own
   * batches' in order, `result.carried` counts what was carried for others.
   */
  attemptBatches(
    holder: Holder,
    batches: readonly Descriptor[],
    options: BatchesOptions = {},
  ): Promise<Attempt<BatchesResult>> {
    return this.#committer.attempt(this.#batchesChange(holder, batches, options), options);
  }

  #batchesChange(
    holder: Holder,
    batches: readonly Descriptor[],
    { kind = "own", intents = noIntents }: BatchesOptions,
  ): Change<BatchesFindings, BatchesResult> {
    return {
      by: holder.producer,
      kind,
      prepare: async (base, options) => {
        const absent = [holder.producer, ...intents.openings.map((o) => o.producer)].filter(
          (id) => !base.producers.has(id),
        );
        const [silence, ...found] = await Promise.all([
          this.#lookUpSilence(base, options),
          ...absent.map((id) => this.findSilent(base, id, options)),
        ]);
        return {
          silence,
          returning: new Map(absent.flatMap((id, i) => (found[i] ? [[id, found[i] as SilentFinding]] : []))),
        };
      },
      stage: (draft, { silence, returning }) => {
        // Even when its batches are in already: only state in a manifest, not in a table, acknowledges them.
        const returned = batches.length > 0 && stageReturn(draft, holder, returning.get(holder.producer));
        const verdicts = batches.length > 0 ? stageBatches(draft, this.spec, holder, batches) : [];
        const carried = stageIntents(draft, this.spec, intents, returning);
        const left = kind === "leave" && stageLeaving(draft, holder);
        const done = carried === 0 && !returned && !left && !verdicts.includes("staged");
        if (!done) stageSilence(draft, silence);
        return { done, result: { verdicts, carried } };
      },
    };
  }

  /** A producer's state in the sealed tables of `base`, if it is there. */
  findSilent(base: Manifest, id: string, options?: CallOptions): Promise<SilentFinding | undefined> {
    return findSilent(base, id, (ref) => this.readTable(ref, options));
  }

  async #stateInTable(base: Manifest, { producer }: Holder, options: CallOptions): Promise<ProducerState | undefined> {
    const silent = await this.findSilent(base, producer, options);
    return silent && { ...silent.state, resume: { kind: "table", table: silent.table } };
  }

  #lookUpSilence(base: Manifest, options?: CallOptions): Promise<SilenceFindings | undefined> {
    const readTable = (ref: NodeRef): Promise<Map<string, SilentProducer>> => this.readTable(ref, options);
    return lookUpSilence(base, this.#silence, readTable, (id, state) => this.readResumePoint(id, state, options));
  }

  /** Where a producer stands, without opening it; undefined when there is none of this id. A moment later it may have moved on. */
  async peek(id: string, options: CallOptions = {}): Promise<{ seq: number; resumePoint: unknown } | undefined> {
    for (let attempt = 0; ; attempt++) {
      const head = await this.head.jump(options);
      const state = head.producers.get(id);
      const silent = state ? undefined : await this.findSilent(head, id, options);
      if (silent) {
        const { resumePoint } = (await this.readTable(silent.table, options)).get(id) ?? {};
        return { seq: silent.state.seq, resumePoint };
      }
      if (!state) return undefined;
      try {
        return { seq: state.seq, resumePoint: await this.readResumePoint(id, state, options) };
      } catch (error) {
        // Its next batch took the place of the last, which was reclaimed.
        if (!isBatchWeaveError(error, "MISSING_OBJECT") || attempt >= 3) throw error;
      }
    }
  }

  /**
   * Where an opened producer goes on: its resume point as of the version that committed its opening. If that is gone by now, the state moved on
   * without us or the head names another place for it.
   */
  async resume(
    holder: Holder,
    opened: ProducerState,
    options: CallOptions = {},
  ): Promise<{ state: ProducerState; resumePoint: unknown }> {
    let state = opened;
    for (let attempt = 0; ; attempt++) {
      try {
        return { state, resumePoint: await this.readResumePoint(holder.producer, state, options) };
      } catch (error) {
        if (!isBatchWeaveError(error, "MISSING_OBJECT") || attempt >= 3) throw error;
        const newest = await this.head.jump(options);
        const newer = newest.producers.get(holder.producer) ?? (await this.#stateInTable(newest, holder, options));
        if (!newer || !holds(newer, holder)) throw fenced(holder, newer);
        state = newer;
      }
    }
  }

  /** Closes the log: no batch after the current end, ever. */
  async close(options: CallOptions & { dropWaiting?: boolean | undefined } = {}): Promise<Manifest> {
    const { manifest } = await this.commit<undefined, boolean>(
      {
        by: "close log",
        kind: "close",
        stage: (draft) => {
          const done = stageClosing(draft, options.dropWaiting === true);
          return { done, result: done };
        },
      },
      { signal: options.signal, fresh: true },
    );
    return manifest;
  }

  /** Reads a sealed table of silent producers. */
  readTable(ref: NodeRef, options?: CallOptions): Promise<Map<string, SilentProducer>> {
    return this.index.readObject({ store: this.store, namespace: this.spec.uuid }, ref, decodeTable, options);
  }

  /** The resume point of a producer state: in its last batch's footer, or in a table's copy. */
  async readResumePoint(id: string, state: ProducerState, options?: CallOptions): Promise<unknown> {
    if (state.resume.kind === "none") return undefined;
    if (state.resume.kind === "table") return (await this.readTable(state.resume.table, options)).get(id)?.resumePoint;
    const metadata = await this.#lastMetadata(id, state.resume.batch, options);
    return metadata.resumePoint;
  }

  /** Bytes can also be damaged on their way: one more read before the object is called corrupt. */
  async #lastMetadata(producer: string, last: LastBatch, options?: CallOptions): Promise<BatchMetadata> {
    try {
      return await this.#readMetadata(producer, last, options);
    } catch (error) {
      if (!isBatchWeaveError(error, "CORRUPT")) throw error;
      return await this.#readMetadata(producer, last, options);
    }
  }

  async #readMetadata(producer: string, last: LastBatch, options?: CallOptions): Promise<BatchMetadata> {
    const key = batchKey({ producer, ...last }, last.extent);
    const end = await this.#range(key, last.size - trailerBytes, trailerBytes, options);
    const trailer = decodeTrailer(end, key, this.spec.uuid);
    const footer = await this.#range(key, trailer.metadata.offset, last.size - trailer.metadata.offset, options);
    if (footerCheck(footer.subarray(trailer.tableOffset - trailer.metadata.offset)) !== last.check)
      corrupt(key, "its footer does not match the commit");
    return decodeMetadata(footer.subarray(0, trailer.metadata.length), key, trailer.metadata);
  }

  async #range(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array> {
    const bytes = await this.store.getRange(key, start, length, options);
    if (!bytes)
      throw new BatchWeaveError(
        "MISSING_OBJECT",
        `${key} holds a resume point and is not in ${this.store.uri}. Restore it.`,
        { key },
      );
    return bytes;
  }
}
