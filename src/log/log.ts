/** The log of one namespace: reading verified state and committing changes to it. */

import type { Env } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  type BatchMetadata,
  batchKey,
  corrupt,
  type Descriptor,
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
  type Holder,
  holds,
  type SilentFinding,
  stageBatches,
  stageClosing,
  stageOpening,
} from "./stage.js";
import { type BatchPlace, type OpenOrigin, StepIndex } from "./step-index.js";

/** Components of a log. */
export interface LogParts {
  readonly store: ObjectStore;
  readonly env: Env;
  readonly spec: NamespaceSpec;
  readonly openOrigin: OpenOrigin;
  readonly silence?: SilencePolicy | undefined;
}

/** An opened producer: what it holds and where it goes on. */
export interface Opening {
  readonly holder: Holder;
  readonly state: ProducerState;
  readonly resumePoint: unknown;
}

/** One process's view of one namespace. */
export class Log {
  readonly store: ObjectStore;
  readonly env: Env;
  readonly spec: NamespaceSpec;
  readonly head: Head;
  readonly index: StepIndex;
  readonly #committer: Committer;
  readonly #silence: SilencePolicy;

  constructor(parts: LogParts) {
    this.store = parts.store;
    this.env = parts.env;
    this.spec = parts.spec;
    this.head = new Head(parts.store, parts.env, parts.spec);
    this.index = new StepIndex(parts.store, parts.spec, parts.openOrigin);
    this.#committer = new Committer(parts.store, parts.env, this.head);
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

  /** One attempt at committing a producer's uploaded batches. */
  attemptBatches(
    holder: Holder,
    batches: readonly Descriptor[],
    options?: CommitOptions,
  ): Promise<Attempt<BatchVerdict[]>> {
    return this.#committer.attempt(this.#batchesChange(holder, batches), options);
  }

  #batchesChange(holder: Holder, batches: readonly Descriptor[]): Change<SilenceFindings | undefined, BatchVerdict[]> {
    return {
      by: holder.producer,
      prepare: (base, options) =>
        lookUpSilence(
          base,
          this.#silence,
          (ref) => this.readTable(ref, options),
          (id, state) => this.readResumePoint(id, state, options),
        ),
      stage: (draft, findings) => {
        const result = stageBatches(draft, this.spec, holder, batches);
        const staged = result.includes("staged");
        if (staged) stageSilence(draft, findings);
        return { done: !staged, result };
      },
    };
  }

  /**
   * Opens a producer id: commits the next epoch with this incarnation, fencing whoever held it, and reads the resume point as of
   * the version that committed the opening. `takeover: false`: refuse if somebody else opens it at the same time.
   */
  async open(id: string, options: CallOptions & { takeover?: boolean | undefined } = {}): Promise<Opening> {
    const incarnation = this.env.id();
    const first = { epoch: -1 };
    const { manifest } = await this.commit<SilentFinding | undefined, boolean>(
      {
        by: id,
        prepare: async (base, call) =>
          base.producers.has(id) ? undefined : await findSilent(base, id, (ref) => this.readTable(ref, call)),
        stage: (draft, silent) => {
          const before = draft.producers.get(id) ?? silent?.state;
          if (first.epoch === -1) first.epoch = before?.epoch ?? 0;
          if (
            options.takeover === false &&
            before &&
            before.incarnation !== incarnation &&
            before.epoch !== first.epoch
          ) {
            throw new BatchWeaveError(
              "FENCED",
              `Producer ${id} was opened by another process at the same time (epoch ${before.epoch}). Stop one of the two.`,
              { producer: id, epoch: before.epoch },
            );
          }
          const done = stageOpening(draft, id, incarnation, silent);
          return { done, result: done };
        },
      },
      { signal: options.signal, fresh: true },
    );
    const state = manifest.producers.get(id) as ProducerState;
    const holder: Holder = { producer: id, epoch: state.epoch, incarnation };
    return { holder, ...(await this.#resume(holder, state, options)) };
  }

  /** If the resume point is gone by now, the state moved on without us or the head names another place for it. */
  async #resume(
    holder: Holder,
    opened: ProducerState,
    options: CallOptions,
  ): Promise<{ state: ProducerState; resumePoint: unknown }> {
    let state = opened;
    for (let attempt = 0; ; attempt++) {
      try {
        return { state, resumePoint: await this.readResumePoint(holder.producer, state, options) };
      } catch (error) {
        if (!isBatchWeaveError(error, "MISSING_OBJECT") || attempt >= 3) throw error;
        const newer = (await this.head.jump(options)).producers.get(holder.producer);
        if (!newer || !holds(newer, holder)) throw error;
        state = newer;
      }
    }
  }

  /** Closes the log: no batch after the current end, ever. */
  async close(options: CallOptions & { dropWaiting?: boolean | undefined } = {}): Promise<Manifest> {
    const { manifest } = await this.commit<undefined, boolean>(
      {
        by: "close",
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

  async #lastMetadata(producer: string, last: LastBatch, options?: CallOptions): Promise<BatchMetadata> {
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
