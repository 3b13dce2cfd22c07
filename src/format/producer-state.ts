/** Producer state: the only place that answers "did I commit?". Inline in the manifest, or in a sealed table when long silent. */
import { asEpoch, asSeq, asVersion, type Epoch, type Seq, type Version } from "./brand.js";
import { decodeNodeRef, encodeNodeRef, type NodeRef } from "./index-node.js";
import { openJson, sealJson } from "./json-object.js";
import type { BatchName } from "./keys.js";
import { asId, asInteger, asList, asName, asRecord, asTuple, asUnknown, corrupt } from "./shape.js";

/** The producer's last batch: enough to derive the key of its last extent, where the resume point is. */
export interface LastBatch extends Omit<BatchName, "producer"> {
  readonly extent: number;
  readonly size: number;
  readonly check: number;
}

/** Where the resume point is: nowhere yet, in the last batch's footer, or copied into a sealed table. */
export type ResumePlace =
  | { readonly kind: "none" }
  | { readonly kind: "batch"; readonly batch: LastBatch }
  | { readonly kind: "table"; readonly table: NodeRef };

/** State of one producer id. */
export interface ProducerState {
  readonly epoch: Epoch;
  readonly incarnation: string;
  /** The next seq: everything below is in the log. */
  readonly seq: Seq;
  /** Version of the manifest that changed this state last. */
  readonly at: Version;
  readonly resume: ResumePlace;
  /** The epoch whose holder said that it is gone; see {@link hasLeft}. */
  readonly left?: Epoch | undefined;
  /** Trailing elements that this version does not know, kept. */
  readonly rest?: readonly unknown[] | undefined;
}

/** Whether the producer's holder closed it. The next holder is another epoch, which has not. */
export function hasLeft(state: ProducerState): boolean {
  return state.left === state.epoch;
}

/** Compact: `[epoch, incarnation, seq, at, last, left, ...]`; `last` leaves out what equals the state itself, and `left` may be absent. */
export function encodeProducerState(s: ProducerState): unknown[] {
  const head = [s.epoch, s.incarnation, s.seq, s.at, encodeResumePlace(s)];
  if (s.rest) return [...head, s.left ?? 0, ...s.rest];
  return s.left === undefined ? head : [...head, s.left];
}

function encodeResumePlace(s: ProducerState): unknown {
  if (s.resume.kind === "none") return 0;
  if (s.resume.kind === "table") return { table: encodeNodeRef(s.resume.table) };
  const { base, attempt, extent, size, check, epoch, incarnation } = s.resume.batch;
  const own = epoch === s.epoch && incarnation === s.incarnation;
  return own ? [base, attempt, extent, size, check] : [base, attempt, extent, size, check, epoch, incarnation];
}

export function decodeProducerState(value: unknown, where: string): ProducerState {
  const list = asList(value, where, "producer state");
  const epoch = asEpoch(asInteger(list[0], where, "producer.epoch"));
  const incarnation = asId(list[1], where, "producer.incarnation");
  const seq = asSeq(asInteger(list[2], where, "producer.seq"));
  const at = asVersion(asInteger(list[3], where, "producer.at"));
  const resume = decodeResumePlace(list[4], { epoch, incarnation, seq }, where);
  if (list.length <= 5) return { epoch, incarnation, seq, at, resume };
  const left = asInteger(list[5], where, "producer.left");
  const state = { epoch, incarnation, seq, at, resume, ...(left === 0 ? {} : { left: asEpoch(left) }) };
  return list.length === 6 ? state : { ...state, rest: asUnknown(list.slice(6), where) };
}

function decodeResumePlace(
  value: unknown,
  state: { epoch: Epoch; incarnation: string; seq: Seq },
  where: string,
): ResumePlace {
  if (value === 0) return { kind: "none" };
  if (!Array.isArray(value)) {
    return { kind: "table", table: decodeNodeRef(asRecord(value, where, "producer.last")["table"], where) };
  }
  if (state.seq === 0) corrupt(where, "a producer has a last batch and no first");
  const [base, attempt, extent, size, check, epoch, incarnation] = asTuple(
    value,
    value.length === 5 ? 5 : 7,
    where,
    "producer.last",
  );
  const batch: LastBatch = {
    base: asVersion(asInteger(base, where, "last.base")),
    attempt: asInteger(attempt, where, "last.attempt"),
    extent: asInteger(extent, where, "last.extent"),
    size: asInteger(size, where, "last.size"),
    check: asInteger(check, where, "last.check"),
    epoch: epoch === undefined ? state.epoch : asEpoch(asInteger(epoch, where, "last.epoch")),
    incarnation: incarnation === undefined ? state.incarnation : asId(incarnation, where, "last.incarnation"),
    seq: asSeq(state.seq - 1),
  };
  return { kind: "batch", batch };
}

/** A silent producer in a sealed table: its state and a copy of its resume point. */
export interface SilentProducer {
  readonly state: ProducerState;
  readonly resumePoint: unknown;
}

/** Encodes a sealed table. */
export function encodeTable(namespace: string, producers: ReadonlyMap<string, SilentProducer>): Uint8Array {
  const entries = [...producers]
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([id, entry]) => [id, [encodeProducerState(entry.state), entry.resumePoint ?? null]]);
  return sealJson("table", namespace, { producers: Object.fromEntries(entries) });
}

/** Decodes a sealed table. */
export function decodeTable(bytes: Uint8Array, where: string, namespace: string): Map<string, SilentProducer> {
  const fields = openJson(bytes, where, "table", namespace);
  const producers = new Map<string, SilentProducer>();
  for (const [id, value] of Object.entries(asRecord(fields["producers"], where, "producers"))) {
    asName(id, where, "a producer id");
    const entry = asTuple(value, 2, where, `producers.${id}`);
    producers.set(id, { state: decodeProducerState(entry[0], where), resumePoint: entry[1] ?? undefined });
  }
  return producers;
}
