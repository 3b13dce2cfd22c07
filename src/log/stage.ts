/** Staging: what a commit changes, as pure functions on a draft. Called again from the new base after every conflict. */
import { BatchWeaveError } from "../errors.js";
import {
  asEpoch,
  asSeq,
  asStep,
  batchStem,
  type Descriptor,
  hasLeft,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  type ProducerState,
  type Step,
} from "../format/index.js";
import type { Draft } from "./draft.js";

/** Lanes: how many batches a lane may be ahead of the first missing step. More wait with their producer. */
export const laneAheadMax = 64;

/** What became of one batch. */
export type BatchVerdict =
  /** Staged now. */
  | "staged"
  /** Producer state says it is in the log already. */
  | "in"
  /** Its upload is older than the orphan cutoff: it must be uploaded again under a new name. */
  | "expired"
  /** Its lane is too far ahead; try again later. */
  | "ahead"
  /** A batch before it could not be staged; its own upload is still good. */
  | "blocked";

/** Who a batch must belong to. */
export interface Holder {
  readonly producer: string;
  readonly epoch: number;
  readonly incarnation: string;
}

/** True when `state` is held by this very incarnation. */
export function holds(state: ProducerState | undefined, holder: Holder): boolean {
  return state !== undefined && state.epoch === holder.epoch && state.incarnation === holder.incarnation;
}

/** FENCED: a newer process holds the producer id. Says nothing about pending batches. */
export function fenced(holder: Holder, state: ProducerState | undefined): BatchWeaveError {
  return new BatchWeaveError(
    "FENCED",
    `Producer ${holder.producer} was opened again elsewhere (epoch ${state?.epoch ?? "unknown"}, this one holds ${holder.epoch}). Stop this process; the new holder continues from the committed resume point.`,
    { producer: holder.producer, epoch: holder.epoch, foundEpoch: state?.epoch },
  );
}

/** CLOSED: the log takes nothing more. */
export function closedError(end: number): BatchWeaveError {
  return new BatchWeaveError(
    "CLOSED",
    `The log is closed at step ${end}; nothing can be appended. Create or fork a namespace to go on.`,
    { end },
  );
}

/**
 * Stages a producer's uploaded batches, in the order of their seq, as far as possible. Throws FENCED, CLOSED or
 * SEQUENCE_CONFLICT; the caller makes sure the base is verified before it believes that.
 */
export function stageBatches(
  draft: Draft,
  spec: NamespaceSpec,
  holder: Holder,
  batches: readonly Descriptor[],
): BatchVerdict[] {
  const state = draft.producers.get(holder.producer);
  if (!state || !holds(state, holder)) throw fenced(holder, state);
  const sequence = new Sequence(state, draft);
  const verdicts: BatchVerdict[] = [];
  let blocked = false;
  try {
    for (const batch of batches) {
      const verdict: BatchVerdict = blocked ? blockedVerdict(draft, batch) : stageBatch(draft, spec, sequence, batch);
      verdicts.push(verdict);
      blocked ||= verdict !== "staged" && verdict !== "in";
    }
  } finally {
    sequence.finish();
  }
  return verdicts;
}

/** A reclaim passes a whole backlog at once: all of it must be uploaded again now, not each when it is its turn. */
function blockedVerdict(draft: Draft, batch: Descriptor): BatchVerdict {
  return batch.base < draft.base.orphanCutoff ? "expired" : "blocked";
}

/** Where a producer is while its batches are staged. Its state is made once, after the last of them: a backlog has hundreds. */
class Sequence {
  readonly #draft: Draft;
  #state: ProducerState;
  #last: Descriptor | undefined;
  /** The next seq. */
  seq: number;

  constructor(state: ProducerState, draft: Draft) {
    this.#draft = draft;
    this.#state = state;
    this.seq = state.seq;
  }

  advance(batch: Descriptor): void {
    this.#last = batch;
    this.seq = batch.seq + 1;
  }

  /** The state after everything staged so far, put into the draft. */
  finish(): ProducerState {
    const batch = this.#last;
    if (!batch) return this.#state;
    this.#last = undefined;
    const extent = batch.extents.length - 1;
    const { size, check } = batch.extents[extent] as Descriptor["extents"][number];
    const { base, attempt, epoch, incarnation, seq } = batch;
    this.#state = {
      ...this.#state,
      seq: asSeq(this.seq),
      at: this.#draft.version,
      resume: { kind: "batch", batch: { base, attempt, extent, size, check, epoch, incarnation, seq } },
    };
    this.#draft.producers.set(batch.producer, this.#state);
    return this.#state;
  }
}

function stageBatch(draft: Draft, spec: NamespaceSpec, state: Sequence, batch: Descriptor): BatchVerdict {
  if (batch.seq < state.seq) {
    assertSameContent(state.finish(), batch);
    // It was committed and waited, and closing the log dropped it: its step will never be.
    if (wasDropped(draft, spec, batch)) throw closedError(draft.end);
    return "in";
  }
  if (batch.seq > state.seq) {
    throw new BatchWeaveError(
      "SEQUENCE_CONFLICT",
      `Batch ${batchStem(batch)} leaves a gap: the next seq of ${batch.producer} is ${state.seq}. Open the producer again.`,
      { expected: state.seq, found: batch.seq },
    );
  }
  // Nothing is concluded about a closed log before "in" was ruled out: the batch may have made it.
  if (draft.closed) throw closedError(draft.end);
  // The reclaimer relies on this: below the cutoff nothing can become live any more.
  if (batch.base < draft.base.orphanCutoff) return "expired";
  const step = stepOf(draft, spec, batch);
  if (step >= draft.end + aheadMax(spec)) return "ahead";
  placeBatch(draft, step, batch);
  state.advance(batch);
  return "staged";
}

/** Within an incarnation a seq is bound to its bytes: the same seq with other content is a defect that must not be hidden. */
function assertSameContent(state: ProducerState, batch: Descriptor): void {
  if (state.resume.kind !== "batch" || state.resume.batch.seq !== batch.seq || !holds(state, batch)) return;
  const check = batch.extents.at(-1)?.check;
  if (check === state.resume.batch.check) return;
  throw new BatchWeaveError(
    "SEQUENCE_CONFLICT",
    `Seq ${batch.seq} of ${batch.producer} is in the log with other content. A producer must build the same batch for the same seq; report this.`,
    { seq: batch.seq, expected: state.resume.batch.check, found: check },
  );
}

function aheadMax(spec: NamespaceSpec): number {
  return spec.order.kind === "lanes" ? spec.order.lanes * laneAheadMax : 1;
}

function stepOf(draft: Draft, spec: NamespaceSpec, batch: Descriptor): Step {
  if (spec.order.kind === "commit") return draft.end;
  // In a fork lanes count from the fork's first own step.
  return asStep(firstOwnStep(spec) + batch.seq * spec.order.lanes + laneNumber(batch.producer, spec.order.lanes));
}

/** A closed log of lanes ends at its first missing step: what waited above was dropped, although producer state counts it. */
function wasDropped(draft: Draft, spec: NamespaceSpec, batch: Descriptor): boolean {
  return draft.closed && spec.order.kind === "lanes" && stepOf(draft, spec, batch) >= draft.end;
}

/**
 * The first seq of a producer that is neither in the log nor waiting. Its state's, but in a closed log of lanes: there what waited when it
 * was closed was dropped, so a lane has exactly the batches below the end.
 */
export function seqInLog(
  spec: NamespaceSpec,
  { closed, steps }: Pick<Manifest, "closed" | "steps">,
  producer: string,
  seq: number,
): number {
  return closed ? Math.min(seq, laneSeqAt(spec, producer, steps.end) ?? seq) : seq;
}

/** The seq of a lane's first batch at or above `step`; undefined for what is no lane. */
export function laneSeqAt(spec: NamespaceSpec, producer: string, step: number): number | undefined {
  if (spec.order.kind !== "lanes") return undefined;
  const lane = laneOf(producer, spec.order.lanes);
  return lane === undefined ? undefined : Math.max(0, Math.ceil((step - firstOwnStep(spec) - lane) / spec.order.lanes));
}

/** The first step that is this namespace's own: 0, or where it was forked. */
export function firstOwnStep(spec: NamespaceSpec): number {
  return spec.fork ? spec.fork.tail.start + spec.fork.tail.batches.length : 0;
}

function placeBatch(draft: Draft, step: Step, batch: Descriptor): void {
  if (step !== draft.end) {
    draft.waiting.set(step, batch);
    return;
  }
  draft.push(batch);
  for (let next = draft.waiting.get(draft.end); next; next = draft.waiting.get(draft.end)) {
    draft.waiting.delete(draft.end);
    draft.push(next);
  }
}

/** The number in `lane-<k>`; a lane is its producer id. */
export function laneNumber(producer: string, lanes: number): number {
  const lane = laneOf(producer, lanes);
  if (lane !== undefined) return lane;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `This namespace has ${lanes} lanes, and a lane is a producer id: use lane-0 to lane-${lanes - 1}, not ${JSON.stringify(producer)}.`,
    { producer, lanes },
  );
}

function laneOf(producer: string, lanes: number): number | undefined {
  const match = /^lane-(0|[1-9]\d*)$/.exec(producer);
  const lane = match ? Number(match[1]) : lanes;
  return lane < lanes ? lane : undefined;
}

/** What an opener found in the sealed tables of its base. */
export interface SilentFinding {
  readonly state: ProducerState;
  readonly table: NodeRef;
  /** The table holds a copy of its resume point. */
  readonly hasResumePoint: boolean;
}

/** A producer that was silent for so long that its state moved to a table comes back: its state is inlined again. True if so. */
export function stageReturn(draft: Draft, holder: Holder, silent: SilentFinding | undefined): boolean {
  if (draft.producers.has(holder.producer) || !silent || !holds(silent.state, holder)) return false;
  draft.producers.set(holder.producer, {
    ...silent.state,
    at: draft.version,
    resume: silent.hasResumePoint ? { kind: "table", table: silent.table } : { kind: "none" },
  });
  return true;
}

/** Opens a producer: the next epoch with a fresh incarnation. Returns true when this incarnation already holds it. */
export function stageOpening(
  draft: Draft,
  id: string,
  incarnation: string,
  silent: SilentFinding | undefined,
): boolean {
  const inline = draft.producers.get(id);
  if (inline?.incarnation === incarnation) return true;
  const before = inline ?? silent?.state;
  draft.producers.set(id, {
    epoch: asEpoch((before?.epoch ?? 0) + 1),
    incarnation,
    seq: before?.seq ?? asSeq(0),
    at: draft.version,
    // A copy in a table stays the last until the next batch; a table that is named here stays live.
    resume: inline?.resume ?? (silent?.hasResumePoint ? { kind: "table", table: silent.table } : { kind: "none" }),
    ...(before?.rest ? { rest: before.rest } : {}),
  });
  return false;
}

/** The holder closed its producer and carries no more. False: it is written down already, or another holds the id. */
export function stageLeaving(draft: Draft, holder: Holder): boolean {
  const state = draft.producers.get(holder.producer);
  if (!state || !holds(state, holder) || hasLeft(state)) return false;
  draft.producers.set(holder.producer, { ...state, at: draft.version, left: state.epoch });
  return true;
}

/** Closes the log at its end. Lanes: refused while batches wait above a missing step, unless they are dropped by name. */
export function stageClosing(draft: Draft, dropWaiting: boolean): boolean {
  if (draft.closed) return true;
  if (draft.waiting.size > 0 && !dropWaiting) {
    const first = Math.min(...draft.waiting.keys());
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `${draft.waiting.size} committed batches wait above the missing step ${draft.end} (the first is step ${first}). Let the missing lane catch up, or close with dropWaiting (--drop-waiting) to leave them out.`,
      { missing: draft.end, waiting: draft.waiting.size },
    );
  }
  draft.waiting.clear();
  draft.closed = true;
  return false;
}
