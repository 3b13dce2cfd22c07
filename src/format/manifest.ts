/** The manifest: version N of the log's whole state, bounded in size. */
import { shown } from "../errors.js";
import { asRow, asStep, asVersion, type Row, type Step, type Version } from "./brand.js";
import { type Descriptor, decodeDescriptor, encodeDescriptor } from "./descriptor.js";
import {
  decodeLevels,
  decodeNodeRef,
  decodeRun,
  encodeLevels,
  encodeNodeRef,
  type IndexLevel,
  type NodeRef,
  type Run,
  runText,
} from "./index-node.js";
import { JsonText, openJson, remembered, sealJson } from "./json-object.js";
import { decodeProducerState, encodeProducerState, type ProducerState } from "./producer-state.js";
import {
  asFlag,
  asId,
  asInteger,
  asList,
  asName,
  asRecord,
  asText,
  asTuple,
  asUuid,
  corrupt,
  unknownFields,
} from "./shape.js";

/** A committed checkpoint: the next row and iteration. */
export interface CheckpointMark {
  readonly row: Row;
  readonly iteration: number;
  /** Version that registered it: after a rollback the newest checkpoint need not be the one furthest on. */
  readonly at: Version;
}

/** Checkpoints of one training run. */
export interface CheckpointGroup {
  readonly live: ReadonlyMap<string, CheckpointMark>;
  /** Ids released lately, oldest first; they cannot be registered again. */
  readonly released: readonly string[];
  readonly rest?: Readonly<Record<string, unknown>> | undefined;
}

/** What a fork holds in this namespace: steps `[from, to)`, reachable from `root`. */
export interface Pin {
  readonly fork: string;
  readonly uri: string;
  /** Wall clock in ms; for people. */
  readonly created: number;
  /** The fork's `namespace.json` existed after this pin was committed. False: the fork was never finished, or not yet. */
  readonly confirmed: boolean;
  readonly from: Step;
  readonly to: Step;
  readonly root: NodeRef;
  readonly rest?: Readonly<Record<string, unknown>> | undefined;
}

/** What may be changed about a namespace after it was created. */
export interface ManifestSettings {
  /** Steps that producers may be ahead of the slowest group's newest checkpoint. Absent: any number. */
  readonly maxLag?: number | undefined;
  readonly rest?: Readonly<Record<string, unknown>> | undefined;
}

/**
 * What a version was made for. Committers pace themselves by it, and nothing else depends on it. `carrier`: batches, by a producer that commits all producers'
 * and goes on doing so; `own`: batches of one producer that commits for itself; `leave`: the last of a carrier that closed.
 */
export type CommitKind =
  | "carrier"
  | "own"
  | "open"
  | "leave"
  | "checkpoint"
  | "release"
  | "reclaim"
  | "pin"
  | "settings"
  | "starvation"
  | "close"
  | "delete";

/** State of the log at one version. */
export interface Manifest {
  readonly namespace: string;
  readonly version: Version;
  /** Who made this version. `by` and `time` (wall clock, ms) are for people; `kind` is absent in old logs, and may be one that is not known here. */
  readonly commit: {
    readonly id: string;
    readonly by: string;
    readonly time: number;
    readonly kind?: CommitKind | (string & {}) | undefined;
  };
  /** `[trim, end)` is promised to readers. */
  readonly steps: { readonly trim: Step; readonly end: Step };
  readonly closed: boolean;
  /** True in the last version of a deleted namespace: a process that finds it stops. */
  readonly deleted?: true | undefined;
  readonly index: readonly IndexLevel[];
  readonly tail: Run;
  /** Lanes only: committed batches above `end`, by step. */
  readonly waiting: ReadonlyMap<Step, Descriptor>;
  readonly producers: ReadonlyMap<string, ProducerState>;
  /** Sealed tables of silent producers, oldest first. */
  readonly tables: readonly NodeRef[];
  readonly checkpoints: ReadonlyMap<string, CheckpointGroup>;
  readonly pins: ReadonlyMap<string, Pin>;
  readonly settings?: ManifestSettings | undefined;
  /** A rank waits for this step while producers wait for a checkpoint: means something only while it is the end. */
  readonly starving?: Step | undefined;
  /** Nothing whose base is below may be staged any more. */
  readonly orphanCutoff: Version;
  /** A hint: number of a boundary marker that existed. */
  readonly boundaryHint: number;
  /** Fields that this version does not know, kept by every writer of state. */
  readonly rest: Readonly<Record<string, unknown>>;
}

const knownFields: ReadonlySet<string> = new Set(
  "format kind namespace version commit steps closed deleted index tail waiting producers tables checkpoints pins settings starving orphanCutoff boundaryHint crc32".split(
    " ",
  ),
);

/** Encodes a manifest. */
export function encodeManifest(m: Manifest): Uint8Array {
  const fields = {
    version: m.version,
    commit: m.commit,
    steps: m.steps,
    closed: m.closed,
    ...(m.deleted ? { deleted: true } : {}),
    index: encodeLevels(m.index),
    tail: runText(m.tail),
    ...(m.waiting.size > 0 ? { waiting: [...m.waiting].map(([step, d]) => [step, encodeDescriptor(d)]) } : {}),
    producers: producersText(m.producers),
    tables: m.tables.map(encodeNodeRef),
    checkpoints: Object.fromEntries([...m.checkpoints].map(([name, group]) => [name, encodeGroup(group)])),
    pins: Object.fromEntries(
      [...m.pins].map(([id, { rest, root, ...pin }]) => [id, { ...pin, root: encodeNodeRef(root), ...rest }]),
    ),
    ...encodeSettings(m),
    orphanCutoff: m.orphanCutoff,
    boundaryHint: m.boundaryHint,
    ...m.rest,
  };
  // Who knows only the first version of the format must not take it for one more version of a log that goes on.
  return sealJson("manifest", m.namespace, fields, m.deleted ? 2 : 1);
}

const stateText = remembered(encodeProducerState);

/** In the order that an object would have (ids that are numbers first): what is read and written again is the same, byte for byte. */
function producersText(producers: Manifest["producers"]): JsonText {
  let text = "";
  for (const [id, state] of Object.entries(Object.fromEntries(producers)))
    text += `${text === "" ? "" : ","}${JSON.stringify(id)}:${stateText(state)}`;
  return new JsonText(`{${text}}`);
}

function encodeSettings({ settings, starving }: Manifest): Record<string, unknown> {
  const { rest, ...known } = settings ?? {};
  const all = { ...known, ...rest };
  return { ...(Object.keys(all).length > 0 ? { settings: all } : {}), ...(starving === undefined ? {} : { starving }) };
}

function encodeGroup(group: CheckpointGroup): Record<string, unknown> {
  const live = Object.fromEntries([...group.live].map(([id, mark]) => [id, [mark.row, mark.iteration, mark.at]]));
  return { live, released: group.released, ...group.rest };
}

/** Decodes and checks a manifest. `version` is the one its name says. */
export function decodeManifest(bytes: Uint8Array, where: string, namespace: string, version: Version): Manifest {
  const f = openJson(bytes, where, "manifest", namespace);
  if (f["version"] !== version) corrupt(where, `it says version ${shown(f["version"])}`);
  const commit = asRecord(f["commit"], where, "commit");
  const steps = asRecord(f["steps"], where, "steps");
  const manifest: Manifest = {
    namespace,
    version,
    commit: {
      id: asId(commit["id"], where, "commit.id"),
      by: asText(commit["by"], where, "commit.by"),
      time: asInteger(commit["time"], where, "commit.time"),
      ...(commit["kind"] === undefined ? {} : { kind: asText(commit["kind"], where, "commit.kind") }),
    },
    steps: {
      trim: asStep(asInteger(steps["trim"], where, "steps.trim")),
      end: asStep(asInteger(steps["end"], where, "steps.end")),
    },
    closed: asFlag(f["closed"], where, "closed"),
    ...(asFlag(f["deleted"] ?? false, where, "deleted") ? { deleted: true } : {}),
    index: decodeLevels(f["index"], where),
    tail: decodeRun(f["tail"], where),
    waiting: decodeWaiting(f["waiting"] === undefined ? [] : f["waiting"], where),
    producers: decodeNames(f["producers"], where, "producers", (value) => decodeProducerState(value, where)),
    tables: asList(f["tables"], where, "tables").map((ref) => decodeNodeRef(ref, where)),
    checkpoints: decodeNames(f["checkpoints"], where, "checkpoints", (value) => decodeGroup(value, where)),
    pins: decodeMap(f["pins"], where, "pins", (value) => decodePin(value, where)),
    ...decodeSettings(f, where),
    orphanCutoff: asVersion(asInteger(f["orphanCutoff"], where, "orphanCutoff")),
    boundaryHint: asInteger(f["boundaryHint"], where, "boundaryHint"),
    rest: unknownFields(f, knownFields, where),
  };
  if (manifest.tail.start + manifest.tail.batches.length !== manifest.steps.end)
    corrupt(where, "its tail does not reach its end step");
  if (manifest.steps.trim > manifest.steps.end) corrupt(where, "its trim lies above its end step");
  return manifest;
}

const settingsFields: ReadonlySet<string> = new Set(["maxLag"]);

function decodeSettings(f: Record<string, unknown>, where: string): Pick<Manifest, "settings" | "starving"> {
  const starving = f["starving"] === undefined ? {} : { starving: asStep(asInteger(f["starving"], where, "starving")) };
  if (f["settings"] === undefined) return starving;
  const record = asRecord(f["settings"], where, "settings");
  const maxLag =
    record["maxLag"] === undefined ? {} : { maxLag: asInteger(record["maxLag"], where, "settings.maxLag") };
  return { settings: { ...maxLag, rest: unknownFields(record, settingsFields, where) }, ...starving };
}

function decodeWaiting(value: unknown, where: string): Map<Step, Descriptor> {
  const waiting = new Map<Step, Descriptor>();
  for (const item of asList(value, where, "waiting")) {
    const [step, descriptor] = asTuple(item, 2, where, "waiting entry");
    waiting.set(asStep(asInteger(step, where, "waiting step")), decodeDescriptor(descriptor, where));
  }
  return waiting;
}

function decodeMap<T>(value: unknown, where: string, field: string, decode: (value: unknown) => T): Map<string, T> {
  const map = new Map<string, T>();
  for (const [key, item] of Object.entries(asRecord(value, where, field))) map.set(key, decode(item));
  return map;
}

/** The same, for what is named by a producer id, a checkpoint id or a group. */
function decodeNames<T>(value: unknown, where: string, field: string, decode: (value: unknown) => T): Map<string, T> {
  for (const name of Object.keys(asRecord(value, where, field))) asName(name, where, `a name in ${field}`);
  return decodeMap(value, where, field, decode);
}

const groupFields: ReadonlySet<string> = new Set(["live", "released"]);

function decodeGroup(value: unknown, where: string): CheckpointGroup {
  const record = asRecord(value, where, "checkpoint group");
  const live = decodeNames(record["live"], where, "live", (mark) => {
    const [row, iteration, at] = asTuple(mark, 3, where, "checkpoint");
    return {
      row: asRow(asInteger(row, where, "checkpoint row")),
      iteration: asInteger(iteration, where, "checkpoint iteration"),
      at: asVersion(asInteger(at, where, "checkpoint version")),
    };
  });
  const released = asList(record["released"], where, "released").map((id) => asName(id, where, "released id"));
  return { live, released, rest: unknownFields(record, groupFields, where) };
}

const pinFields: ReadonlySet<string> = new Set(["fork", "uri", "created", "confirmed", "from", "to", "root"]);

function decodePin(value: unknown, where: string): Pin {
  const record = asRecord(value, where, "pin");
  return {
    fork: asUuid(record["fork"], where, "pin.fork"),
    uri: asText(record["uri"], where, "pin.uri"),
    created: asInteger(record["created"], where, "pin.created"),
    confirmed: asFlag(record["confirmed"], where, "pin.confirmed"),
    from: asStep(asInteger(record["from"], where, "pin.from")),
    to: asStep(asInteger(record["to"], where, "pin.to")),
    root: decodeNodeRef(record["root"], where),
    rest: unknownFields(record, pinFields, where),
  };
}
