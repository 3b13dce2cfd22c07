/** `namespace.json`: what a namespace is, fixed when it is created. */
import { BatchWeaveError, shown } from "../errors.js";
import { asStep, asVersion, type Step } from "./brand.js";
import { assertGrid, type Grid, isGrid } from "./grid.js";
import { decodeNodeRef, decodeRun, encodeNodeRef, encodeRun, type NodeRef, type Run } from "./index-node.js";
import { openJson, sealJson, unsupportedFormat } from "./json-object.js";
import { namespaceKey } from "./keys.js";
import type { Manifest } from "./manifest.js";
import { asInteger, asList, asRecord, asText, asTuple, asUuid, corrupt, unknownFields } from "./shape.js";

/** How a batch gets its step: by commit order, or by lane: `step = seq * lanes + lane`. */
export type Order = { readonly kind: "commit" } | { readonly kind: "lanes"; readonly lanes: number };

/** Steps `[at, at + count)` of a fork are steps `[from, from + count)` of an ancestor. */
export interface OriginRange {
  readonly at: Step;
  readonly count: number;
  readonly from: Step;
}

/** An ancestor whose batches a fork shares. */
export interface Origin {
  readonly uuid: string;
  readonly uri: string;
  /** The ancestor's own version of the format: where its objects are. */
  readonly format: 1 | 2;
  /** The pin's root in that ancestor. */
  readonly root: NodeRef;
  readonly ranges: readonly OriginRange[];
  /** The ancestor is a fork itself: an origin number in *its* descriptors is this position of our own origins. */
  readonly via?: readonly number[] | undefined;
}

/** How steps of one ancestor are numbered here, wherever their objects are: for cursors and for people. */
export interface Ancestor {
  readonly uuid: string;
  readonly uri: string;
  /** In ascending order. The first and the last have count 0: where what is shared begins and ends. */
  readonly ranges: readonly OriginRange[];
}

/** What a fork has from its ancestors. */
export interface ForkSpec {
  readonly origins: readonly Origin[];
  /** The last inherited descriptors, from a multiple of 64 on; those below `trim` mean nothing. */
  readonly tail: Run;
  /** The first step shared. Absent: the lowest of all ranges and the tail. */
  readonly trim?: Step | undefined;
  /** Direct parent first. */
  readonly ancestors?: readonly Ancestor[] | undefined;
  /** Tables of this namespace with the inherited producers' states. Absent: producers start afresh. */
  readonly tables?: readonly NodeRef[] | undefined;
}

/** The parsed `namespace.json`. */
export interface NamespaceSpec {
  /** 1: everything lies beside `namespace.json`, under names that an earlier namespace of the place may have had too. 2: in a folder of its own. */
  readonly format: 1 | 2;
  readonly uuid: string;
  readonly grid: Grid;
  readonly order: Order;
  /** Commit order: into how many parts the sources behind the log are divided, one producer (`part-<k>`) each. Absent: 1. Readers need not know. */
  readonly parts?: number | undefined;
  /** Wall clock in ms; for people. */
  readonly created: number;
  /** Set on forks: where steps before the fork live, and the descriptors that did not fill a segment there. */
  readonly fork?: ForkSpec | undefined;
  readonly rest: Readonly<Record<string, unknown>>;
}

/** Lanes of a namespace at most. */
export const lanesMax = 4_096;

const knownFields: ReadonlySet<string> = new Set(
  "format kind namespace grid order parts created fork crc32".split(" "),
);

export function encodeNamespace(spec: NamespaceSpec): Uint8Array {
  const fork = spec.fork && encodeFork(spec.fork);
  const { grid, order, parts, created, rest } = spec;
  const fields = {
    grid,
    order,
    ...(parts === undefined ? {} : { parts }),
    created,
    ...(fork ? { fork } : {}),
    ...rest,
  };
  return sealJson("namespace", spec.uuid, fields, spec.format);
}

function encodeFork(fork: ForkSpec): Record<string, unknown> {
  const encodeRanges = (ranges: readonly OriginRange[]): unknown[] => ranges.map((r) => [r.at, r.count, r.from]);
  return {
    origins: fork.origins.map((o) => ({
      uuid: o.uuid,
      uri: o.uri,
      ...(o.format === 1 ? {} : { format: o.format }),
      root: encodeNodeRef(o.root),
      ranges: encodeRanges(o.ranges),
      ...(o.via ? { via: o.via } : {}),
    })),
    tail: encodeRun(fork.tail),
    ...(fork.trim === undefined ? {} : { trim: fork.trim }),
    ...(fork.ancestors ? { ancestors: fork.ancestors.map((a) => ({ ...a, ranges: encodeRanges(a.ranges) })) } : {}),
    ...(fork.tables ? { tables: fork.tables.map(encodeNodeRef) } : {}),
  };
}

export function decodeNamespace(bytes: Uint8Array, where: string): NamespaceSpec {
  const f = openJson(bytes, where, "namespace");
  const grid = asRecord(f["grid"], where, "grid");
  const spec: NamespaceSpec = {
    format: asFormat(f["format"], where),
    uuid: asUuid(f["namespace"], where, "namespace"),
    grid: {
      rows: asInteger(grid["rows"], where, "grid.rows"),
      chunks: asInteger(grid["chunks"], where, "grid.chunks"),
    },
    order: decodeOrder(f["order"], where),
    ...(f["parts"] === undefined ? {} : { parts: asInteger(f["parts"], where, "parts") }),
    created: asInteger(f["created"], where, "created"),
    ...(f["fork"] === undefined ? {} : { fork: decodeFork(f["fork"], where) }),
    rest: unknownFields(f, knownFields, where),
  };
  if (!isGrid(spec.grid)) corrupt(where, `its grid of ${spec.grid.rows} x ${spec.grid.chunks} is empty or too large`);
  if (spec.order.kind === "lanes" && (spec.order.lanes < 1 || spec.order.lanes > lanesMax))
    corrupt(where, `it has ${spec.order.lanes} lanes, and 1 to ${lanesMax} are possible`);
  if (spec.parts !== undefined && (spec.parts < 1 || spec.parts > lanesMax))
    corrupt(where, `it has ${spec.parts} parts, and 1 to ${lanesMax} are possible`);
  return spec;
}

function decodeOrder(value: unknown, where: string): Order {
  const order = asRecord(value, where, "order");
  if (order["kind"] === "commit") return { kind: "commit" };
  if (order["kind"] === "lanes") return { kind: "lanes", lanes: asInteger(order["lanes"], where, "order.lanes") };
  throw new BatchWeaveError(
    "UNSUPPORTED_FORMAT",
    `${where} has an order ${shown(order["kind"])} that this BatchWeave does not know. Install a newer version.`,
    { key: where },
  );
}

function decodeFork(value: unknown, where: string): ForkSpec {
  const fork = asRecord(value, where, "fork");
  const origins = asList(fork["origins"], where, "fork.origins").map((item) => {
    const origin = asRecord(item, where, "origin");
    const via = origin["via"];
    return {
      uuid: asUuid(origin["uuid"], where, "origin.uuid"),
      uri: asText(origin["uri"], where, "origin.uri"),
      format: asFormat(origin["format"] ?? 1, where),
      root: decodeNodeRef(origin["root"], where),
      ranges: decodeRanges(origin["ranges"], where),
      ...(via === undefined ? {} : { via: asList(via, where, "via").map((n) => asInteger(n, where, "via")) }),
    };
  });
  const tail = decodeRun(fork["tail"], where);
  const { trim, ancestors, tables } = fork;
  const spec: ForkSpec = {
    origins,
    tail,
    ...(trim === undefined ? {} : { trim: asStep(asInteger(trim, where, "fork.trim")) }),
    ...(ancestors === undefined ? {} : { ancestors: decodeAncestors(ancestors, where) }),
    ...(tables === undefined
      ? {}
      : { tables: asList(tables, where, "fork.tables").map((ref) => decodeNodeRef(ref, where)) }),
  };
  if ((spec.trim ?? 0) > tail.start + tail.batches.length) corrupt(where, "its trim lies above its first own step");
  return spec;
}

function asFormat(value: unknown, where: string): 1 | 2 {
  const format = asInteger(value, where, "format");
  if (format === 1 || format === 2) return format;
  throw unsupportedFormat(where, format);
}

function decodeAncestors(value: unknown, where: string): Ancestor[] {
  return asList(value, where, "fork.ancestors").map((item) => {
    const ancestor = asRecord(item, where, "ancestor");
    return {
      uuid: asUuid(ancestor["uuid"], where, "ancestor.uuid"),
      uri: asText(ancestor["uri"], where, "ancestor.uri"),
      ranges: decodeRanges(ancestor["ranges"], where),
    };
  });
}

function decodeRanges(value: unknown, where: string): OriginRange[] {
  return asList(value, where, "ranges").map((r) => {
    const [at, count, from] = asTuple(r, 3, where, "range");
    return {
      at: asStep(asInteger(at, where, "range at")),
      count: asInteger(count, where, "range count"),
      from: asStep(asInteger(from, where, "range from")),
    };
  });
}

/** Refuses settings that cannot be a namespace. */
export function assertNamespaceSpec(spec: Pick<NamespaceSpec, "grid" | "order" | "parts">): void {
  assertGrid(spec.grid);
  const { parts = 1 } = spec;
  if (!Number.isSafeInteger(parts) || parts < 1 || parts > lanesMax || (parts > 1 && spec.order.kind !== "commit"))
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `parts must be a whole number from 1 to ${lanesMax}, and goes with order "commit"; with lanes, lanes are the parts.`,
      { parts },
    );
  if (spec.order.kind === "commit") return;
  if (
    spec.order.kind === "lanes" &&
    Number.isSafeInteger(spec.order.lanes) &&
    spec.order.lanes >= 1 &&
    spec.order.lanes <= lanesMax
  )
    return;
  throw new BatchWeaveError("INVALID_ARGUMENT", `order must be "commit", or "lanes" with 1 to ${lanesMax} lanes.`, {
    order: spec.order,
  });
}

/** Version 0: the state before the first commit. It is never stored; it follows from `namespace.json` alone. */
export function genesisManifest(spec: NamespaceSpec): Manifest {
  const tail: Run = spec.fork?.tail ?? { start: asStep(0), batches: [] };
  const end = asStep(tail.start + tail.batches.length);
  const lowest = spec.fork?.origins.flatMap((o) => o.ranges.map((r) => r.at)) ?? [];
  return {
    namespace: spec.uuid,
    version: asVersion(0),
    commit: { id: "genesis", by: namespaceKey, time: spec.created },
    steps: { trim: spec.fork?.trim ?? asStep(Math.min(tail.start, ...lowest)), end },
    closed: false,
    index: [],
    tail,
    waiting: new Map(),
    producers: new Map(),
    tables: spec.fork?.tables ?? [],
    checkpoints: new Map(),
    pins: new Map(),
    orphanCutoff: asVersion(0),
    boundaryHint: 0,
    rest: {},
  };
}
