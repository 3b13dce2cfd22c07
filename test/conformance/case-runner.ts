/** Runs one language-neutral case with the TypeScript code and gives its result as plain JSON: a value, or the code it was refused with. */
import { createHash } from "node:crypto";
import { openConsumer, type Projection, placeRank, planIteration, resolveMesh } from "../../src/consumer/index.js";
import { assertProjection } from "../../src/consumer/projection.js";
import { systemEnv } from "../../src/env/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import {
  asStep,
  asVersion,
  batchIntents,
  batchKey,
  type Descriptor,
  decodeBoundary,
  decodeDescriptor,
  decodeFooter,
  decodeLineage,
  decodeManifest,
  decodeMetadata,
  decodeNamespace,
  decodeNode,
  decodeNodeRef,
  decodeProducerState,
  decodeRoot,
  decodeSafetensors,
  decodeSampleTable,
  decodeSegment,
  decodeTable,
  encodeDescriptor,
  encodeManifest,
  encodeNamespace,
  encodeNode,
  encodeRoot,
  encodeSampleBlock,
  encodeSegment,
  encodeTable,
  genesisManifest,
  joinRows,
  joinTensors,
  leavingIntentKey,
  namespaceKey,
  type OpeningIntent,
  openingIntentKey,
  parseCursor,
  parseIntentKey,
  type Tensor,
} from "../../src/format/index.js";
import { translateCursor } from "../../src/lifecycle/index.js";
import { Draft } from "../../src/log/draft.js";
import { Log, newestFirst, stageCheckpoint, stageRelease, stageSettings } from "../../src/log/index.js";
import { type Intents, noIntents, stageIntents } from "../../src/log/intents.js";
import {
  type SilentFinding,
  stageBatches,
  stageClosing,
  stageLeaving,
  stageOpening,
  stageReturn,
} from "../../src/log/stage.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { sealText } from "./codec-cases.js";
import { runHeadCase } from "./head-runner.js";

type Json = ReturnType<typeof JSON.parse>;

/** One case: `op` says what is done with the other fields. */
export interface ConformanceCase {
  readonly name: string;
  readonly op: string;
  readonly [field: string]: Json;
}

/** A value, or the code of the error. */
export type ConformanceResult = { readonly value: Json } | { readonly code: string };

/** Runs a case. Anything but a BatchWeaveError passes through: it is a defect. */
export async function runCase(given: ConformanceCase): Promise<ConformanceResult> {
  const run = operations[given.op];
  if (!run) throw new Error(`there is no operation ${given.op}`);
  return await resultOf(() => run(given));
}

async function resultOf(run: () => Json): Promise<ConformanceResult> {
  try {
    // Through JSON, so that undefined and typed arrays compare as what the other language sees.
    return { value: JSON.parse(JSON.stringify((await run()) ?? null)) };
  } catch (error) {
    if (isBatchWeaveError(error)) return { code: error.code };
    throw error;
  }
}

const bytesOf = (base64: string): Uint8Array => new Uint8Array(Buffer.from(base64, "base64"));

/** A stored object as the JSON it holds, without its checksum. */
function fieldsOf(bytes: Uint8Array): Json {
  const { crc32: _, ...fields } = JSON.parse(Buffer.from(bytes).toString("utf8"));
  return fields;
}

const where = "case";
const decoders: Record<string, (c: ConformanceCase, bytes: Uint8Array) => Json> = {
  namespace: (_, b) => fieldsOf(encodeNamespace(decodeNamespace(b, where))),
  manifest: (c, b) => fieldsOf(encodeManifest(decodeManifest(b, where, c["namespace"], asVersion(c["version"])))),
  boundary: (c, b) => decodeBoundary(b, where, c["namespace"], c["n"]),
  segment: (c, b) => fieldsOf(encodeSegment(c["namespace"], decodeSegment(b, where, c["namespace"]))),
  node: (c, b) => fieldsOf(encodeNode(c["namespace"], decodeNode(b, where, c["namespace"]))),
  root: (c, b) => fieldsOf(encodeRoot(c["namespace"], decodeRoot(b, where, c["namespace"]))),
  table: (c, b) => fieldsOf(encodeTable(c["namespace"], decodeTable(b, where, c["namespace"]))),
  lineage: (_, b) => decodeLineage(b, where),
  samples: (c, b) => decodeSampleTable(b, c["payloadBytes"], where) as unknown as Json,
  batch: (c, b) => batchOf(c, b),
  safetensors: (_, b) => {
    const { tensors, metadata } = decodeSafetensors(b, where);
    const shown = [...tensors].map(([name, { dtype, shape, data }]) => [
      name,
      [dtype, shape, Buffer.from(data.buffer, data.byteOffset, data.byteLength).toString("base64")],
    ]);
    return { tensors: Object.fromEntries(shown), metadata };
  },
};

/** A whole batch object of one extent: its table, its metadata, its slices. */
function batchOf(c: ConformanceCase, bytes: Uint8Array): Json {
  const descriptor = decodeDescriptor(c["descriptor"], where);
  const extent = descriptor.extents[0] as Descriptor["extents"][number];
  const place = { extent: 0, firstCell: 0 };
  const footer = decodeFooter(bytes.subarray(extent.table), where, c["namespace"], descriptor, place, extent);
  const entries = Array.from({ length: footer.cells }, (_, i) => footer.entry(i));
  const { offset, length } = footer.metadata;
  return {
    key: batchKey(descriptor, 0),
    entries: entries.map((e) => [e.offset, e.length, e.crc, e.rawLength, e.encoding]),
    metadata: decodeMetadata(bytes.subarray(offset, offset + length), where, footer.metadata),
  };
}

function project(c: ConformanceCase): Json {
  const place = placeRank(c["mesh"], c["rank"]);
  const projection: Projection = {
    grid: c["grid"],
    policy: c["policy"],
    layout: c["layout"],
    rowsPerRank: c["rowsPerRank"],
    place,
  };
  assertProjection(projection);
  const plan = planIteration(projection, c["row"], c["iteration"]);
  return { ...plan, cells: plan.cells.map((cell) => [cell.step, cell.row, cell.chunk]) };
}

function resolve(c: ConformanceCase): Json {
  const { place } = resolveMesh({ mesh: c["mesh"] ?? undefined, rank: c["rank"] ?? undefined }, c["environment"]);
  const { rank, worldSize, dataRanks, d, chunkRanks, c: chunk, coordinates } = place;
  return { rank, worldSize, dataRanks, d, chunkRanks, c: chunk, coordinates };
}

function intent(c: ConformanceCase): Json {
  const found = parseIntentKey(c["namespace"], c["key"]);
  if (!found) return null;
  if (found.kind === "opening") return { opening: found.opening, key: openingIntentKey(c["namespace"], found.opening) };
  if (found.kind === "leaving") return { leaving: found.leaving, key: leavingIntentKey(c["namespace"], found.leaving) };
  return { batches: found.batches.map(encodeDescriptor), keys: batchIntents(c["namespace"], found.batches).keys };
}

function silentOf(value: Json): SilentFinding | undefined {
  if (!value) return undefined;
  const { state, table, hasResumePoint } = value;
  return { state: decodeProducerState(state, where), table: decodeNodeRef(table, where), hasResumePoint };
}

type Staged = { readonly done: boolean; readonly result: Json };
const changes: Record<string, (draft: Draft, c: Json, spec: Log["spec"]) => Staged> = {
  batches: (draft, c, spec) => {
    const returned = stageReturn(draft, c.holder, silentOf(c.silent));
    const batches = c.batches.map((d: Json) => decodeDescriptor(d, where));
    const verdicts = stageBatches(draft, spec, c.holder, batches);
    return { done: !returned && !verdicts.includes("staged"), result: verdicts };
  },
  open: (draft, c) => ({ done: stageOpening(draft, c.producer, c.incarnation, silentOf(c.silent)), result: null }),
  leave: (draft, c) => ({ done: !stageLeaving(draft, c.holder), result: null }),
  close: (draft, c) => ({ done: stageClosing(draft, c.dropWaiting), result: null }),
  checkpoint: (draft, c, spec) => ({ done: stageCheckpoint(draft, spec.grid.rows, c), result: null }),
  maxLag: (draft, c) => ({ done: stageSettings(draft, { maxLag: c.maxLag }), result: null }),
  release: (draft, c) => ({ done: stageRelease(draft, c.group, c.id), result: null }),
  intents: (draft, c, spec) => {
    const openings: OpeningIntent[] = c.openings;
    const batches = new Map<string, Descriptor[]>();
    for (const d of c.batches.map((b: Json) => decodeDescriptor(b, where)) as Descriptor[]) {
      const owner = `${d.producer}/${d.epoch}/${d.incarnation}`;
      batches.set(owner, [...(batches.get(owner) ?? []), d]);
    }
    for (const list of batches.values()) list.sort((a, b) => a.seq - b.seq || b.attempt - a.attempt);
    const intents: Intents = { ...noIntents, batches, openings, leavings: c.leavings ?? [] };
    const silent = Object.entries(c.silent ?? {}).map(([id, value]) => [id, silentOf(value)] as const);
    const carried = stageIntents(draft, spec, intents, new Map(silent as [string, SilentFinding][]));
    return { done: carried === 0, result: carried };
  },
};

function stage(c: ConformanceCase): Json {
  const spec = decodeNamespace(bytesOf(c["spec"]), where);
  const base = c["base"]
    ? decodeManifest(bytesOf(c["base"].bytes), where, spec.uuid, asVersion(c["base"].version))
    : genesisManifest(spec);
  const draft = new Draft(base, c["stamp"]);
  const change = changes[c["change"].kind];
  if (!change) throw new Error(`there is no change ${c["change"].kind}`);
  const { done, result } = change(draft, c["change"], spec);
  if (done) return { done, result };
  const manifest = fieldsOf(encodeManifest(draft.finish()));
  const sealed = draft.sealed.map(({ key, bytes }) => [key, Buffer.from(bytes).toString("utf8")]);
  return { done, result, manifest, sealed: Object.fromEntries(sealed) };
}

async function storeOf(objects: Record<string, string>, uri: string): Promise<ObjectStore> {
  const store = new MemoryStore(uri);
  for (const [key, base64] of Object.entries(objects)) await store.put(key, bytesOf(base64));
  return store;
}

/** A whole namespace, looked at in several ways, each on its own. */
async function namespace(c: ConformanceCase): Promise<Json> {
  const results: Record<string, ConformanceResult> = {};
  for (const [name, view] of Object.entries(c["views"] as Json)) results[name] = await resultOf(() => viewOf(c, view));
  return results;
}

/** Its head, where a step is, a resume point, or what a rank reads. */
async function viewOf(c: ConformanceCase, view: Json): Promise<Json> {
  const store = await storeOf(c["objects"], "memory:case");
  const spec = decodeNamespace((await store.get(namespaceKey)) as Uint8Array, where);
  const openOrigin = (uri: string): Promise<ObjectStore> => storeOf(c["origins"]?.[uri] ?? {}, uri);
  const log = new Log({ store, env: systemEnv, spec, openOrigin });
  const manifest = await log.head.load();
  if (view.kind === "head") {
    const groups = [...manifest.checkpoints].map(([group, { live }]) => [group, newestFirst(live).map(([id]) => id)]);
    return {
      version: manifest.version,
      steps: manifest.steps,
      closed: manifest.closed,
      checkpoints: Object.fromEntries(groups),
    };
  }
  if (view.kind === "step") {
    const place = await log.locate(manifest, asStep(view.step));
    return { namespace: place.namespace, key: batchKey(place.descriptor, 0) };
  }
  if (view.kind === "resume") {
    const state = manifest.producers.get(view.producer);
    return { found: state !== undefined, resumePoint: state ? await log.readResumePoint(view.producer, state) : null };
  }
  const lines: Json[] = [];
  await using consumer = await openConsumer(log, view.settings, { environment: {} });
  for await (const share of consumer) {
    const hash = createHash("sha256");
    for (const { bytes } of share.slices) hash.update(bytes);
    lines.push([share.iteration, hash.digest("hex"), share.next.row]);
    if (lines.length === view.iterations) break;
  }
  return { lines, leftoverRows: consumer.leftoverRows ?? null };
}

/** The tensors of a share, joined; and its rows, where they are kept apart. */
function join(c: ConformanceCase): Json {
  const files = (c["slices"] as string[]).map((slice) => decodeSafetensors(bytesOf(slice), where));
  const options = { fields: c["fields"] };
  const shown = (t: Tensor | undefined): Json =>
    t && [t.dtype, t.shape, Buffer.from(t.data.buffer, t.data.byteOffset, t.data.byteLength).toString("base64")];
  if (c["apart"])
    return Object.fromEntries(
      [...joinRows(files, c["rows"], options)].map(([name, list]) => [name, list.map((t) => shown(t) ?? null)]),
    );
  return Object.fromEntries([...joinTensors(files, c["rows"], options)].map(([name, t]) => [name, shown(t)]));
}

/** What each change of a stored object's fields is refused with; "ok" where it is not. */
async function fields(c: ConformanceCase): Promise<Json> {
  const found: string[] = [];
  for (const [path, value] of c["changes"]) {
    const whole = structuredClone(c["fields"]);
    const last = path.at(-1);
    const holder = path.slice(0, -1).reduce((at: Json, key: string | number) => at[key], whole);
    if (value !== "<gone>") holder[last] = value;
    else if (Array.isArray(holder)) holder.splice(last, 1);
    else delete holder[last];
    const result = await resultOf(() => decoders[c["what"]]?.(c, sealText(JSON.stringify(whole))));
    found.push("code" in result ? result.code : "ok");
  }
  return found;
}

const operations: Record<string, (c: ConformanceCase) => Json> = {
  fields,
  decode: (c) => decoders[c["what"]]?.(c, bytesOf(c["input"])),
  project,
  resolve,
  cursor: (c) => parseCursor(c["input"]),
  translate: (c) => {
    const found = translateCursor(decodeNamespace(bytesOf(c["spec"]), where), parseCursor(c["input"]));
    return found && parseCursor(found);
  },
  intent,
  block: (c) => {
    const samples = c["samples"].map((sample: Json) => ({ ...sample, bytes: bytesOf(sample.bytes) }));
    const { table, payload } = encodeSampleBlock(c["source"], samples, c["faults"]);
    return { table: Buffer.from(table).toString("base64"), payload: Buffer.from(payload).toString("base64") };
  },
  join,
  stage,
  namespace,
  head: runHeadCase,
};
