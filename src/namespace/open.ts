/** Creating, opening and deleting namespaces: where a URI becomes a store, a log and a handle. */
import { pathToFileURL } from "node:url";
import { type Env, systemEnv } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  assertNamespaceSpec,
  batchPrefix,
  boundaryPrefix,
  decodeNamespace,
  encodeNamespace,
  type Grid,
  indexPrefix,
  intentPrefix,
  manifestPrefix,
  type NamespaceSpec,
  namespaceKey,
  type Order,
} from "../format/index.js";
import { confirmPins, needsPins, type OpenLog, releasePins } from "../lifecycle/index.js";
import { Log } from "../log/index.js";
import { Metrics } from "../observe/index.js";
import {
  assertSafe,
  type ObjectStore,
  openStore,
  pathOfFileUri,
  probeStore,
  type RetrySettings,
  type StoreObserver,
  type StoreSettings,
  withHedging,
  withMetrics,
  withRetry,
} from "../store/index.js";
import { Namespace, type Neighbours } from "./namespace.js";

/** Components and settings of a namespace handle. All optional: a URI is enough. */
export interface NamespaceOptions {
  /** Time and chance. Default: the system's. */
  readonly env?: Env | undefined;
  /** A store of your own; the URI is then only a name. It is used as it is, without our retries. */
  readonly store?: ObjectStore | undefined;
  /** Settings of the store's backend. */
  readonly storeSettings?: StoreSettings | undefined;
  /** How failing requests are retried. Never applies to conditional creates. */
  readonly retry?: RetrySettings | undefined;
  /** Where numbers go. Default: a registry of the handle's own. */
  readonly metrics?: Metrics | undefined;
  /** `openNamespace`: how long to wait for a namespace that nobody has created yet, as ranks do that start first. Default 0. */
  readonly waitMs?: number | undefined;
  /** Told that it waits, and for what. */
  readonly onWait?: ((message: string) => void) | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** How often a namespace that is not there yet is looked for: at first, and at most. */
const absentLookMs = 100;
const absentLookMsMax = 2_000;

/** What a new namespace is. */
export interface NamespaceSettings {
  readonly grid: Grid;
  /** "commit" (default): steps in commit order. "lanes": `lanes` producers whose order is fixed. */
  readonly order?: "commit" | "lanes" | undefined;
  readonly lanes?: number | undefined;
  /** Commit order: into how many parts the sources are divided, with a producer `part-<k>` each. Fixed, like the grid. Default 1, or as an existing one has it. */
  readonly parts?: number | undefined;
}

/** Manifests last: until they go, a producer that is still running finds the closed head and stops. */
export const ownPrefixes: readonly string[] = [
  "probe/",
  intentPrefix,
  indexPrefix,
  batchPrefix,
  manifestPrefix,
  boundaryPrefix,
];

const hex = (n: number, digits: number): string => n.toString(16).padStart(digits, "0");
const hashFolders = [
  ...Array.from({ length: 256 }, (_, i) => `${batchPrefix}${hex(i, 2)}/`),
  ...Array.from({ length: 16 }, (_, i) => `${intentPrefix}${hex(i, 1)}/`),
];

/** Refuses a place among another namespace's own objects: deleting that one would delete this one. Below it but beside them is fine. */
async function assertOutside(
  uri: string,
  openOther: (uri: string) => Promise<ObjectStore>,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (const outer of outerPlaces(uri)) {
    const bytes = await (await openOther(outer)).get(namespaceKey, { signal });
    if (!bytes) continue;
    throw new BatchWeaveError(
      "NOT_EMPTY",
      `${uri} lies among the objects of the namespace at ${outer}. Choose a place beside it.`,
      { uri, outer },
    );
  }
}

/** Places above `uri` in whose own folders it would lie, were they namespaces. Of a folder its path decides, however it is written. */
function outerPlaces(uri: string): string[] {
  const isFile = /^file:/i.test(uri);
  const segments = isFile ? pathOfFileUri(uri).split("/") : uri.split("/");
  return segments.flatMap((segment, i) => {
    // The first ones are the root, or the scheme and the bucket.
    if (i < (isFile ? 2 : 3) || !ownPrefixes.includes(`${segment}/`)) return [];
    const outer = segments.slice(0, i).join("/");
    return [isFile ? pathToFileURL(outer).href : outer];
  });
}

interface Backend {
  readonly store: ObjectStore;
  readonly env: Env;
  readonly metrics: Metrics;
  /** Before anything was read: what is read through it is at least as new. */
  readonly openedAtMs: number;
}

async function openBackend(uri: string, options: NamespaceOptions): Promise<Backend> {
  const env = options.env ?? systemEnv;
  const metrics = options.metrics ?? new Metrics();
  const openedAtMs = env.monotonic();
  const bare = options.store ?? (await openStore(uri, options.storeSettings, env));
  const counted = withMetrics(bare, env, storeMetrics(metrics));
  if (options.store) return { store: counted, env, metrics, openedAtMs };
  const retrying = withRetry(counted, env, options.retry);
  // A second read of the same disk or memory would only take turns with the first.
  return { store: isEmbedded(uri) ? retrying : withHedging(retrying, env), env, metrics, openedAtMs };
}

function storeMetrics(metrics: Metrics): StoreObserver {
  return {
    onCall({ op, bytesIn, bytesOut, durationMs, outcome }) {
      metrics.count("batchweave_store_requests_total", "Requests to the object store.", 1, { op, outcome });
      metrics.count("batchweave_store_sent_bytes_total", "Bytes sent to the object store.", bytesOut);
      metrics.count("batchweave_store_received_bytes_total", "Bytes received from the object store.", bytesIn);
      metrics.observeMs("batchweave_store_request_seconds", "Time per request.", durationMs, { op });
    },
  };
}

/** Opens an existing namespace; with `waitMs`, once somebody has created it. */
export async function openNamespace(uri: string, options: NamespaceOptions = {}): Promise<Namespace> {
  const backend = await openBackend(uri, options);
  const bytes = await awaitNamespace(uri, backend, options);
  return await handle(uri, backend, decodeNamespace(bytes, `${uri}/${namespaceKey}`), options);
}

async function awaitNamespace(uri: string, { store, env }: Backend, options: NamespaceOptions): Promise<Uint8Array> {
  const { signal, waitMs = 0 } = options;
  const begunMs = env.monotonic();
  for (let lookMs = absentLookMs; ; lookMs = Math.min(2 * lookMs, absentLookMsMax)) {
    const bytes = await store.get(namespaceKey, { signal });
    if (bytes) return bytes;
    const leftMs = begunMs + waitMs - env.monotonic();
    if (leftMs <= 0) break;
    if (lookMs === absentLookMs)
      options.onWait?.(
        `Waiting for a namespace at ${uri}, at most ${Math.round(waitMs / 1_000)} s: nobody has created it yet.`,
      );
    await env.sleep(Math.min(lookMs, leftMs), signal);
  }
  const waited = waitMs > 0 ? `, and nobody created one within ${Math.round(waitMs / 1_000)} s` : "";
  throw new BatchWeaveError(
    "NO_NAMESPACE",
    `There is no namespace at ${uri}${waited}. Create one with createNamespace() or \`batchweave create ${uri} --rows R --chunks C\`.`,
    { uri },
  );
}

/**
 * Creates a namespace, or opens it when it exists with the same grid and order: whoever loses the race adopts the winner's.
 * A store that breaks our rules is refused before anything is written to it for good.
 */
export async function createNamespace(
  uri: string,
  settings: NamespaceSettings,
  options: NamespaceOptions = {},
): Promise<Namespace> {
  const order: Order = settings.order === "lanes" ? { kind: "lanes", lanes: settings.lanes ?? 1 } : { kind: "commit" };
  if (settings.order !== undefined && settings.order !== "commit" && settings.order !== "lanes") {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `order must be "commit" or "lanes", not ${JSON.stringify(settings.order)}.`,
    );
  }
  assertNamespaceSpec({ grid: settings.grid, order, parts: settings.parts });
  const backend = await openBackend(uri, options);
  const { store, env } = backend;
  const existing = await store.get(namespaceKey, { signal: options.signal });
  if (!existing) {
    await assertEmpty(uri, store, options.signal);
    if (!options.store)
      await assertOutside(uri, async (other) => (await openBackend(other, options)).store, options.signal);
    if (!isEmbedded(uri) && !options.store)
      assertSafe(await probeStore(store, env, { rounds: 1 }, { signal: options.signal }));
    const spec: NamespaceSpec = {
      uuid: env.uuid(),
      grid: { rows: settings.grid.rows, chunks: settings.grid.chunks },
      order,
      // One part is what every namespace has that does not say.
      ...((settings.parts ?? 1) === 1 ? {} : { parts: settings.parts }),
      created: Math.floor(env.now()),
      rest: {},
    };
    await settleCreate(store, env, encodeNamespace(spec), options.signal);
  }
  const found = await store.get(namespaceKey, { signal: options.signal });
  if (!found)
    throw new BatchWeaveError(
      "NO_NAMESPACE",
      `The namespace at ${uri} was deleted while it was being created. Try again.`,
      { uri },
    );
  const spec = decodeNamespace(found, `${uri}/${namespaceKey}`);
  assertSameShape(uri, spec, settings.grid, order);
  assertSameParts(uri, spec, settings.parts);
  return await handle(uri, backend, spec, options);
}

/** Creates `namespace.json`, re-PUTting the same bytes until there is a verdict. Whose it is then, is read back. */
export async function settleCreate(
  store: ObjectStore,
  env: Env,
  bytes: Uint8Array,
  signal: AbortSignal | undefined,
): Promise<void> {
  for (let delayMs = 50; ; delayMs = Math.min(2 * delayMs, 5_000)) {
    if ((await store.create(namespaceKey, bytes, { signal })) !== "unknown") return;
    await env.sleep(delayMs, signal);
  }
}

async function assertEmpty(uri: string, store: ObjectStore, signal: AbortSignal | undefined): Promise<void> {
  for (const prefix of ownPrefixes.slice(1)) {
    const { objects } = await store.list(prefix, { limit: 1, signal });
    const leftover = objects[0];
    if (!leftover) continue;
    // namespace.json may have been created by a racing process meanwhile: then these are its objects.
    if (await store.get(namespaceKey, { signal })) return;
    throw new BatchWeaveError(
      "NOT_EMPTY",
      `${uri} holds objects of an earlier namespace (${leftover.key}). Finish deleting it with \`batchweave delete ${uri}\`, or use another place.`,
      { uri, key: leftover.key },
    );
  }
}

function assertSameShape(uri: string, spec: NamespaceSpec, grid: Grid, order: Order): void {
  if (
    spec.grid.rows === grid.rows &&
    spec.grid.chunks === grid.chunks &&
    JSON.stringify(spec.order) === JSON.stringify(order)
  )
    return;
  const text = (g: Grid, o: Order): string =>
    `${g.rows} rows x ${g.chunks} chunks, order ${o.kind}${o.kind === "lanes" ? ` with ${o.lanes} lanes` : ""}`;
  throw new BatchWeaveError(
    "GRID_MISMATCH",
    `${uri} exists with ${text(spec.grid, spec.order)}, not ${text(grid, order)}; both are fixed when a namespace is created. Open it as it is, or create another.`,
    {
      uri,
      found: { grid: spec.grid, order: spec.order },
      wanted: { grid, order },
    },
  );
}

/** Producers that divide the sources in different ways would take samples twice and leave others out. */
function assertSameParts(uri: string, { parts = 1 }: NamespaceSpec, wanted: number | undefined): void {
  if (wanted === undefined || wanted === parts) return;
  const known = parts === 1 ? "one part" : `${parts} parts, 0/${parts} to ${parts - 1}/${parts}`;
  throw new BatchWeaveError(
    "GRID_MISMATCH",
    `${uri} divides its sources into ${known}, not ${wanted}: samples would be in it twice. The number of parts is fixed when a namespace is created. Use it as it is, or create another.`,
    { uri, parts, wanted },
  );
}

function isEmbedded(uri: string): boolean {
  return uri.startsWith("file:") || uri.startsWith("memory:");
}

async function handle(
  uri: string,
  backend: Backend,
  spec: NamespaceSpec,
  options: NamespaceOptions,
): Promise<Namespace> {
  const { env, openedAtMs } = backend;
  const neighbours = neighboursOf(backend, options);
  const log = new Log({ store: backend.store, env, spec, specReadAtMs: openedAtMs, openOrigin: neighbours.openStore });
  const { steps } = await log.head.newest({ signal: options.signal });
  // A fork whose pins are gone may lose its data any time: better refused now than in the middle of a training run.
  if (needsPins(spec, steps.trim)) await confirmPins(spec, neighbours.openLog, { signal: options.signal });
  return new Namespace(uri, log, backend.metrics, neighbours);
}

/** How a handle reaches other namespaces: ancestors, and the places it is forked to. Same settings, stores of their own. */
function neighboursOf(backend: Backend, options: NamespaceOptions): Neighbours {
  const others = { ...options, store: undefined, metrics: backend.metrics };
  const openStore = async (uri: string): Promise<ObjectStore> => (await openBackend(uri, others)).store;
  return {
    openStore,
    openLog: openLogWith(backend.env, openStore),
    find: async (uri, call) => {
      const bytes = await (await openStore(uri)).get(namespaceKey, call);
      return bytes && decodeNamespace(bytes, `${uri}/${namespaceKey}`).uuid;
    },
    prepareTarget: async (uri, call) => {
      const store = await openStore(uri);
      if (await store.get(namespaceKey, call)) {
        throw new BatchWeaveError("NOT_EMPTY", `There is a namespace at ${uri} already. Fork to another place.`, {
          uri,
        });
      }
      await assertEmpty(uri, store, call?.signal);
      await assertOutside(uri, openStore, call?.signal);
      if (!isEmbedded(uri)) assertSafe(await probeStore(store, backend.env, { rounds: 1 }, { signal: call?.signal }));
      return store;
    },
    open: (uri, call) => openNamespace(uri, { ...others, signal: call?.signal }),
  };
}

function openLogWith(env: Env, openStore: (uri: string) => Promise<ObjectStore>): OpenLog {
  return async (uri, uuid, call) => {
    const store = await openStore(uri);
    const specReadAtMs = env.monotonic();
    const bytes = await store.get(namespaceKey, call);
    const spec = bytes && decodeNamespace(bytes, `${uri}/${namespaceKey}`);
    if (spec?.uuid === uuid) return new Log({ store, env, spec, specReadAtMs, openOrigin: openStore });
    throw new BatchWeaveError(
      spec ? "WRONG_NAMESPACE" : "NO_NAMESPACE",
      spec
        ? `The namespace at ${uri} is ${spec.uuid}, and ${uuid} is expected there: it was deleted and made again. Forks of the old one have lost their batches.`
        : `There is no namespace at ${uri}, where the ancestor ${uuid} of a fork should be. Make it reachable under that address.`,
      { uri, found: spec?.uuid, expected: uuid },
    );
  };
}

/** Options of {@link deleteNamespace}. */
export interface DeleteOptions extends NamespaceOptions {
  /** Delete it although forks share its batches, or although that cannot be found out: they lose them. */
  readonly force?: boolean | undefined;
}

/**
 * Deletes every object of a namespace: first the log is closed, so that producers still running stop and say so; then `namespace.json`, so
 * that nobody opens half of one; then the rest. Stop producers first and wait for them: what one that still runs commits within the next 30 s may be acknowledged and lost. A fork's pins in its ancestors go last. Refused while forks share its batches. Goes on where an interrupted deletion stopped.
 */
export async function deleteNamespace(uri: string, options: DeleteOptions = {}): Promise<{ readonly deleted: number }> {
  const backend = await openBackend(uri, options);
  const { store } = backend;
  const { signal } = options;
  const spec = await specToDelete(uri, backend, options);
  let deleted = (await store.getRange(namespaceKey, 0, 1, { signal })) ? 1 : 0;
  await store.delete([namespaceKey], { signal });
  for (const prefix of ownPrefixes) {
    for (;;) {
      const page = await store.list(prefix, { signal });
      if (page.objects.length === 0) break;
      await store.delete(
        page.objects.map((o) => o.key),
        { signal },
      );
      deleted += page.objects.length;
    }
  }
  // For writers a folder keeps the empty folders of hashes; deleting anything in them takes them along.
  if (store.uri.startsWith("file:"))
    await store.delete(
      hashFolders.map((folder) => `${folder}none`),
      { signal },
    );
  // Nobody would look for these later. Without the right to list them a lifecycle rule of the bucket must do.
  await store.abortUploads?.(batchPrefix, 0, { signal }).catch((error) => {
    if (!isBatchWeaveError(error, "STORE_DENIED")) throw error;
  });
  if (deleted === 0)
    throw new BatchWeaveError("NO_NAMESPACE", `There is no namespace at ${uri}; nothing was deleted.`, { uri });
  // A crash before this leaves pins of a fork that is gone; the ancestor's verify names them.
  if (spec?.fork)
    await releasePins(spec, spec.fork.origins, neighboursOf(backend, options).openLog, { signal, unconfirmed: false });
  return { deleted };
}

/** What is deleted: needed for its pins, and to see who depends on it. A damaged namespace can be deleted with `force`. */
async function specToDelete(
  uri: string,
  backend: Backend,
  { force, signal, ...options }: DeleteOptions,
): Promise<NamespaceSpec | undefined> {
  try {
    const bytes = await backend.store.get(namespaceKey, { signal });
    if (!bytes) return undefined;
    const spec = decodeNamespace(bytes, `${uri}/${namespaceKey}`);
    const openOrigin = neighboursOf(backend, options).openStore;
    const log = new Log({ store: backend.store, env: backend.env, spec, openOrigin });
    const forks = [...(await log.head.load({ signal })).pins.values()].map((pin) => pin.uri);
    if (forks.length === 0 || force) {
      await log.close({ signal, dropWaiting: true });
      return spec;
    }
    throw new BatchWeaveError(
      "NOT_EMPTY",
      `${uri} holds batches that ${forks.length} forks share: ${forks.slice(0, 5).join(", ")}. Delete the forks first, or force it: they lose those batches.`,
      { uri, forks },
    );
  } catch (error) {
    if (force && !signal?.aborted) return undefined;
    throw error;
  }
}
