/** Creating, opening and deleting namespaces: where a URI becomes a store, a log and a handle. */
import { pathToFileURL } from "node:url";
import { type Env, systemEnv } from "../env/index.js";
import { BatchWeaveError } from "../errors.js";
import {
  assertNamespaceSpec,
  boundaryPrefix,
  decodeNamespace,
  encodeNamespace,
  type Grid,
  livesPrefix,
  type NamespaceSpec,
  namespaceKey,
  type Order,
  pulsePrefix,
  storedJsonBytesMax,
} from "../format/index.js";
import {
  commitDeletion,
  confirmPins,
  endLife,
  isEnded,
  livesWithObjects,
  mortalPrefixes,
  needsPins,
  type OpenLog,
  releasePins,
  removeBelow,
  removeLeftovers,
  removeNamespaceObject,
  removeObjects,
} from "../lifecycle/index.js";
import { Log } from "../log/index.js";
import { Metrics } from "../observe/index.js";
import {
  assertSafe,
  type CallOptions,
  type ObjectStore,
  openStore,
  pathOfFileUri,
  probePrefix,
  probeStore,
  type RetrySettings,
  type StoreSettings,
  withHedging,
  withMetrics,
  withRetry,
} from "../store/index.js";
import { Namespace, type Neighbours } from "./namespace.js";
import { storeMetrics } from "./store-metrics.js";

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
  /** `openNamespace`: how long to wait for a namespace that is not created yet, as ranks do that start first. Default 0. */
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
  /** What the creator says of it, stored with it for good: any small JSON. An existing namespace keeps its own. */
  readonly user?: unknown;
}

/** JSON of {@link NamespaceSettings.user} at most. */
const userBytesMax = 65_536;

/** Folders at a place that belong to its namespace. In version 1 of the format objects lie right in them. */
export const ownPrefixes: readonly string[] = [
  livesPrefix,
  probePrefix,
  boundaryPrefix,
  pulsePrefix,
  ...mortalPrefixes,
];
/** Pages of a thousand keys in which a creator looks for lives that were not deleted. */
const livesPagesMax = 1;

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
  readonly observer: ReturnType<typeof storeMetrics>;
  /** Before anything was read: what is read through it is at least as new. */
  readonly openedAtMs: number;
}

/** `observer`: that of the namespace on whose behalf another store is opened. */
async function openBackend(uri: string, options: NamespaceOptions, watching?: Backend["observer"]): Promise<Backend> {
  const env = options.env ?? systemEnv;
  const metrics = options.metrics ?? new Metrics();
  const openedAtMs = env.monotonic();
  const bare = options.store ?? (await openStore(uri, options.storeSettings, env));
  const labelled = metrics.with({ namespace: bare.uri });
  const observer = watching ?? storeMetrics(labelled, env, bare.uri);
  const counted = withMetrics(bare, env, observer);
  if (options.store) return { store: counted, env, metrics, observer, openedAtMs };
  const onRetry = (): void => labelled.count("batchweave_store_retries_total", "Requests that were sent again.");
  const retrying = withRetry(counted, env, { onRetry, ...options.retry });
  // A second read of the same disk or memory would only take turns with the first.
  const store = isEmbedded(uri) ? retrying : withHedging(retrying, env);
  return { store, env, metrics, observer, openedAtMs };
}

/** Opens an existing namespace; with `waitMs`, once it is created. */
export async function openNamespace(uri: string, options: NamespaceOptions = {}): Promise<Namespace> {
  const backend = await openBackend(uri, options);
  const bytes = await awaitNamespace(uri, backend, options);
  return await handle(uri, backend, decodeNamespace(bytes, `${uri}/${namespaceKey}`), options);
}

async function awaitNamespace(uri: string, { store, env }: Backend, options: NamespaceOptions): Promise<Uint8Array> {
  const { signal, waitMs = 0 } = options;
  const begunMs = env.monotonic();
  for (let lookMs = absentLookMs; ; lookMs = Math.min(2 * lookMs, absentLookMsMax)) {
    const bytes = await store.get(namespaceKey, { signal, bytesMax: storedJsonBytesMax });
    if (bytes) return bytes;
    const leftMs = begunMs + waitMs - env.monotonic();
    if (leftMs <= 0) break;
    if (lookMs === absentLookMs)
      options.onWait?.(
        `Waiting for a namespace at ${uri}, at most ${Math.round(waitMs / 1_000)} s: it is not created yet.`,
      );
    await env.sleep(Math.min(lookMs, leftMs), signal);
  }
  const waited = waitMs > 0 ? `, and none was created within ${Math.round(waitMs / 1_000)} s` : "";
  throw new BatchWeaveError(
    "NO_NAMESPACE",
    `There is no namespace at ${uri}${waited}. Create one with createNamespace() or \`batchweave create ${uri} --rows R --chunks C\`.`,
    { uri },
  );
}

/**
 * Creates a namespace, or opens it when it exists with the same grid and order: the process that loses the race adopts the winner's.
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
  const userBytes = Buffer.byteLength(JSON.stringify(settings.user ?? null));
  if (userBytes > userBytesMax)
    throw new BatchWeaveError(
      "LIMIT",
      `What is said of a namespace (user) takes ${userBytes} bytes; ${userBytesMax} are the most.`,
      { uri },
    );
  const backend = await openBackend(uri, options);
  const { store, env } = backend;
  const existing = await store.get(namespaceKey, { signal: options.signal, bytesMax: storedJsonBytesMax });
  if (!existing) {
    await assertEmpty(store, uri, { signal: options.signal });
    if (!options.store)
      await assertOutside(uri, async (other) => (await openBackend(other, options)).store, options.signal);
    if (!isEmbedded(uri) && !options.store)
      assertSafe(await probeStore(store, env, { rounds: 1 }, { signal: options.signal }));
    const spec: NamespaceSpec = {
      format: 2,
      uuid: env.uuid(),
      grid: { rows: settings.grid.rows, chunks: settings.grid.chunks },
      order,
      // One part is what every namespace has that does not say.
      ...((settings.parts ?? 1) === 1 ? {} : { parts: settings.parts }),
      created: Math.floor(env.now()),
      rest: settings.user === undefined ? {} : { user: settings.user },
    };
    await settleCreate(store, env, encodeNamespace(spec), options.signal);
  }
  const found = await store.get(namespaceKey, { signal: options.signal, bytesMax: storedJsonBytesMax });
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
async function settleCreate(
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

/**
 * Nothing here stands in the way of a new life. But what was left behind costs storage, and a life that was not deleted may be missed: its
 * `namespace.json` was removed by hand, or by a deleter that came back after a long time.
 */
async function assertEmpty(place: ObjectStore, uri: string, options: CallOptions = {}): Promise<void> {
  const refuse = async (key: string): Promise<void> => {
    // namespace.json may have been created by a racing process meanwhile: then these are its objects.
    if (await place.get(namespaceKey, options)) return;
    throw new BatchWeaveError(
      "NOT_EMPTY",
      `${uri} holds objects of an earlier namespace (${key}). Finish deleting it with \`batchweave delete ${uri}\`, or use another place.`,
      { uri, key },
    );
  };
  for (const prefix of mortalPrefixes) {
    const { objects } = await place.list(prefix, { ...options, limit: 1 });
    if (objects[0]) await refuse(objects[0].key);
  }
  for (const uuid of await livesWithObjects(place, livesPagesMax, options)) {
    // A process that woke up after the deletion may have left something; it belongs to no namespace.
    if (!(await isEnded({ place, spec: { format: 2, uuid } }, options))) await refuse(`${livesPrefix}${uuid}`);
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
  return new Namespace(uri, log, backend.metrics, neighbours, backend.observer.health);
}

/** How a handle reaches other namespaces: ancestors, and the places it is forked to. Same settings, stores of their own. */
function neighboursOf(backend: Backend, options: NamespaceOptions): Neighbours {
  const others = { ...options, store: undefined, metrics: backend.metrics };
  const openStore = async (uri: string): Promise<ObjectStore> =>
    (await openBackend(uri, others, backend.observer)).store;
  return {
    openStore,
    // The caller that opened this handle may stop waiting; the reports of its consumers live as long as those do.
    createReports: (uri) => createNamespace(uri, { grid: { rows: 1, chunks: 1 } }, { ...others, signal: undefined }),
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
      await assertEmpty(store, uri, call);
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
 * Deletes a namespace: a last version says so, which fences every process that has it open; a last boundary marker, which stays for good, tells
 * those who come later; then its objects go, a fork's pins in its ancestors, and `namespace.json` last. Nothing is acknowledged that was committed after
 * that version, and a namespace made here later shares no key with this one. Refused while forks share its batches. Goes on where an interrupted deletion stopped.
 */
export async function deleteNamespace(uri: string, options: DeleteOptions = {}): Promise<{ readonly deleted: number }> {
  const { signal, force = false } = options;
  const backend = await openBackend(uri, options);
  const { store: place, env } = backend;
  const spec = await specToDelete(uri, place, force, signal);
  let deleted = 0;
  if (spec) {
    const life = { place, spec };
    const { openLog, openStore: openOrigin } = neighboursOf(backend, { ...options, signal: undefined });
    // While this namespace is here no other process's probe is: what is listed now was left by one that died.
    deleted += await removeBelow(place, probePrefix, { signal });
    const tolerant = (error: unknown): void => {
      // A damaged namespace can be deleted with `force`.
      if (!force || signal?.aborted) throw error;
    };
    await commitDeletion(new Log({ store: place, env, spec, openOrigin }), force, { signal }).catch(tolerant);
    await endLife(life, env, { signal }).catch(tolerant);
    deleted += await removeObjects(life, { signal });
    // Before namespace.json goes: a crash must leave something to delete again.
    if (spec.fork) await releasePins(spec, spec.fork.origins, openLog, { signal, unconfirmed: false }).catch(tolerant);
    deleted += await removeNamespaceObject(life, { signal });
  } else {
    deleted += await removeLeftovers(place, env, { signal });
    deleted += await removeBelow(place, probePrefix, { signal });
    // Damaged beyond reading.
    if (force && (await place.getRange(namespaceKey, 0, 1, { signal }))) {
      await place.delete([namespaceKey], { signal });
      deleted++;
    }
  }
  if (deleted === 0)
    throw new BatchWeaveError("NO_NAMESPACE", `There is no namespace at ${uri}; nothing was deleted.`, { uri });
  return { deleted };
}

/** What is deleted; undefined when there is none, or with `force` when it cannot be read. */
async function specToDelete(
  uri: string,
  place: ObjectStore,
  force: boolean,
  signal: AbortSignal | undefined,
): Promise<NamespaceSpec | undefined> {
  const bytes = await place.get(namespaceKey, { signal });
  if (!bytes) return undefined;
  try {
    return decodeNamespace(bytes, `${uri}/${namespaceKey}`);
  } catch (error) {
    if (!force) throw error;
    return undefined;
  }
}
