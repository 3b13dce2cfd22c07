/** Fork: a new namespace that shares the batches of another up to a step, without copying them. */
import type { Env } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  asStep,
  type Descriptor,
  decodeNamespace,
  encodeNamespace,
  type ForkSpec,
  type Grid,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  namespaceKey,
  type Origin,
  type Run,
} from "../format/index.js";
import { type Log, lifeStore } from "../log/index.js";
import type { ObjectStore } from "../store/index.js";
import { endLife, removeNamespaceObject } from "./deletion.js";
import { type ForkPlan, parentStep, planAncestors, planFork } from "./fork-plan.js";
import { producersAt, writeTables } from "./fork-producers.js";
import { commitPin, commitPinCopy, commitUnpin, confirmPins, type OpenLog, releasePins } from "./pins.js";
import { normalizeSkip, type SkipRange } from "./skip.js";

/** Settings of {@link forkLog}. */
export interface ForkSettings {
  /** The first step that is not shared. Default: the end of the log. */
  readonly at?: number | undefined;
  /** Steps to leave out; the others close ranks. */
  readonly skip?: readonly SkipRange[] | undefined;
  /** "fresh" (default): producers start anew. "inherit": from their state at the fork step, refused when a resume point is gone. */
  readonly producers?: "fresh" | "inherit" | undefined;
  /** For refusing it with the reason: a fork has its parent's grid. */
  readonly grid?: Grid | undefined;
}

/** What a fork is made of. */
interface ForkParts {
  readonly parent: { readonly log: Log; readonly uri: string };
  /** Empty: the caller has checked that. */
  readonly target: { readonly store: ObjectStore; readonly uri: string };
  readonly env: Env;
  readonly openLog: OpenLog;
  readonly signal?: AbortSignal | undefined;
}

/** Ancestors of one namespace at most. */
const originsMax = 64;
const planAttemptsMax = 10;

/**
 * Forks. Pins first, in every ancestor whose objects the fork references; then `namespace.json`, whose creation makes the fork; then the
 * pins are confirmed. A crash before the creation leaves pins that {@link releaseAbandonedPin} removes, one after it a fork that
 * confirms its own pins when it is opened.
 */
export async function forkLog(parts: ForkParts, settings: ForkSettings = {}): Promise<NamespaceSpec> {
  const { parent, target, env, signal } = parts;
  assertSameGrid(parent.log.spec.grid, settings.grid);
  const openLog: OpenLog = async (uri, of, options) =>
    of === parent.log.spec.uuid ? parent.log : await parts.openLog(uri, of, options);
  const uuid = env.uuid();
  const pinned: { uri: string; uuid: string }[] = [];
  const undo = async (): Promise<void> => {
    // What an aborted or failing process cannot undo is reported by verify.
    if (!signal?.aborted) await releasePins({ uuid }, pinned, openLog, { unconfirmed: true }).catch(() => {});
  };
  let spec: NamespaceSpec;
  try {
    spec = await pinAncestors(parts, settings, uuid, pinned);
  } catch (error) {
    await undo();
    throw error;
  }
  await createOwn(target, env, spec, undo, signal);
  try {
    await confirmPins(spec, openLog, { signal });
  } catch (error) {
    // A reclaimer took the pins away before the fork existed: it must not be used. Anything else heals when the fork is opened.
    if (isBatchWeaveError(error, "RECLAIMED")) {
      await endLife({ place: target.store, spec }, env, { signal });
      await removeNamespaceObject({ place: target.store, spec }, { signal });
      await releasePins({ uuid }, pinned, openLog, { unconfirmed: false }).catch(() => {});
    }
    throw error;
  }
  return spec;
}

/** Commits a pin in every ancestor whose objects the fork references, and says what the fork is. */
async function pinAncestors(
  parts: ForkParts,
  settings: ForkSettings,
  uuid: string,
  pinned: { uri: string; uuid: string }[],
): Promise<NamespaceSpec> {
  const { parent, target, env, openLog, signal } = parts;
  const { log } = parent;
  const { grid, order, parts: divided } = log.spec;
  const { manifest, plan, at, root } = await pinParent(parts, settings, uuid, pinned);
  const builder = new OriginBuilder(log.spec, parent.uri, plan, root);
  const tail = await readTail(log, manifest, plan, builder, signal);
  const origins = builder.origins();
  for (const origin of origins) {
    if (origin.uuid === log.spec.uuid) continue;
    const ancestor = await openLog(origin.uri, origin.uuid, { signal });
    pinned.push(origin);
    const pin = { fork: uuid, uri: target.uri, created: Math.floor(env.now()) };
    await commitPinCopy(ancestor, log.spec.uuid, origin, pin, { signal });
  }
  // The parent's index may turn out to hold nothing but descriptors that are copied anyway.
  if (root && !origins.some((origin) => origin.uuid === log.spec.uuid)) await commitUnpin(log, uuid, true, { signal });
  const fork: ForkSpec = {
    origins,
    tail,
    trim: plan.trim,
    ancestors: planAncestors(log.spec, parent.uri, plan, at),
    ...(settings.producers === "inherit" ? { tables: await inheritTables(parts, manifest, at, uuid) } : {}),
  };
  const parted = divided === undefined ? {} : { parts: divided };
  return { format: 2, uuid, grid, order, ...parted, created: Math.floor(env.now()), fork, rest: {} };
}

interface PinnedParent {
  readonly manifest: Manifest;
  readonly plan: ForkPlan;
  readonly at: number;
  /** Undefined when nothing of the parent's own index is shared. */
  readonly root: NodeRef | undefined;
}

/** Plans on the newest version and pins what the plan needs; when the trim overtakes the plan, again. */
async function pinParent(
  parts: ForkParts,
  settings: ForkSettings,
  uuid: string,
  pinned: { uri: string; uuid: string }[],
): Promise<PinnedParent> {
  const { parent, target, env, signal } = parts;
  const { log } = parent;
  for (let attempt = 0; attempt < planAttemptsMax; attempt++) {
    const manifest = await log.head.jump({ signal });
    const { trim, end } = manifest.steps;
    const at = settings.at ?? end;
    assertStep(at, trim, end, log.place.uri);
    const plan = planFork(log.spec, trim, at, normalizeSkip(settings.skip ?? [], at));
    const from = Math.max(trim, log.spec.fork?.tail.start ?? 0);
    // All that is shared lies in ancestors: this namespace need not hold anything.
    if (from >= at) return { manifest, plan, at, root: undefined };
    const created = Math.floor(env.now());
    const pin = { fork: uuid, uri: target.uri, created, from: asStep(from), to: asStep(at) };
    if (pinned.length === 0) pinned.push({ uri: parent.uri, uuid: log.spec.uuid });
    const root = await commitPin(log, pin, { signal });
    // Steps never change and the pin holds them, so the version that was planned on can still be read below `at`.
    if (root) return { manifest, plan, at, root };
  }
  throw new BatchWeaveError(
    "CONTENDED",
    `The trim of ${log.place.uri} overtook the fork ${planAttemptsMax} times. Register a checkpoint at its first step, or try again.`,
    { attempts: planAttemptsMax },
  );
}

/** The fork's origins: the parent's own, with their ranges composed, and the parent itself. Only those that are used stay. */
class OriginBuilder {
  readonly #all: Origin[];
  readonly #used: Set<number>;
  /** Position of the parent among all. */
  readonly parent: number;

  constructor(parent: NamespaceSpec, uri: string, plan: ForkPlan, root: NodeRef | undefined) {
    const inherited = parent.fork?.origins ?? [];
    this.parent = inherited.length;
    this.#all = inherited.map((origin, i) => ({ ...origin, ranges: plan.inherited[i] ?? [] }));
    if (root) {
      const via = inherited.length > 0 ? { via: inherited.map((_, i) => i) } : {};
      this.#all.push({ uuid: parent.uuid, uri, format: parent.format, root, ranges: plan.own, ...via });
    }
    this.#used = new Set(this.#all.flatMap((origin, i) => (origin.ranges.length > 0 ? [i] : [])));
    // Whatever has its descriptors in an ancestor's index may lead to that one's own origins.
    for (const i of [...this.#used].sort((a, b) => b - a)) for (const n of this.#all[i]?.via ?? []) this.#used.add(n);
    if (this.#all.length > originsMax) {
      throw new BatchWeaveError(
        "LIMIT",
        `A fork can have ${originsMax} ancestors. Copy the data into a new namespace instead of forking again.`,
        { originsMax },
      );
    }
  }

  /** Notes that a tail descriptor needs this origin (a position among all), before positions are final. */
  use(origin: number): void {
    this.#used.add(origin);
  }

  /** Final position of an origin. */
  position(origin: number): number {
    return [...this.#used].filter((i) => i < origin).length;
  }

  origins(): Origin[] {
    return this.#all.flatMap((origin, i) => {
      if (!this.#used.has(i)) return [];
      // An origin that was dropped is one that nothing shared leads to; its number must stay a hole.
      const via = origin.via?.map((n) => (this.#used.has(n) ? this.position(n) : Number.MAX_SAFE_INTEGER));
      return [{ ...origin, ...(via ? { via } : {}) }];
    });
  }
}

/** The last shared descriptors, up to 63, with the origin that holds their objects. */
async function readTail(
  log: Log,
  manifest: Manifest,
  plan: ForkPlan,
  builder: OriginBuilder,
  signal: AbortSignal | undefined,
): Promise<Run> {
  const found: { descriptor: Descriptor; origin: number | undefined }[] = [];
  for (let step = plan.tailStart as number; step < plan.firstOwn; step++) {
    const from = parentStep(plan, step);
    if (from === undefined) {
      found.push({ descriptor: trimmedDescriptor, origin: undefined });
      continue;
    }
    const place = await log.locate(manifest, from, { signal });
    const origin = place.origin ?? builder.parent;
    builder.use(origin);
    found.push({ descriptor: place.descriptor, origin });
  }
  const batches = found.map(({ descriptor: { origin: _, ...descriptor }, origin }) => ({
    ...descriptor,
    ...(origin === undefined ? {} : { origin: builder.position(origin) }),
  }));
  return { start: plan.tailStart, batches };
}

/** Stands where the parent had trimmed already: a step below the fork's trim, which no rank can read. */
const trimmedDescriptor = {
  producer: "trimmed",
  epoch: 0,
  incarnation: "",
  seq: 0,
  base: 0,
  attempt: 0,
  extents: [],
} as unknown as Descriptor;

async function inheritTables(parts: ForkParts, manifest: Manifest, at: number, uuid: string): Promise<NodeRef[]> {
  const { parent, target, env, signal } = parts;
  const producers = await producersAt(parent.log, manifest, at, { signal });
  return await writeTables(lifeStore(target.store, { format: 2, uuid }), uuid, env.id(), producers, { signal });
}

/** Creates `namespace.json`, re-PUTting the same bytes until there is a verdict, and reads back whose it is. */
async function createOwn(
  target: ForkParts["target"],
  env: Env,
  spec: NamespaceSpec,
  undo: () => Promise<void>,
  signal: AbortSignal | undefined,
): Promise<void> {
  const bytes = encodeNamespace(spec);
  let isUnknown = false;
  try {
    for (let delayMs = 50; ; delayMs = Math.min(2 * delayMs, 5_000)) {
      if ((await target.store.create(namespaceKey, bytes, { signal })) !== "unknown") break;
      isUnknown = true;
      await env.sleep(delayMs, signal);
    }
    if (await ownsTarget(target.store, spec.uuid, signal)) return;
  } catch (error) {
    // A request without an answer may still create the fork, and then it needs its pins.
    if (!isUnknown && !(await ownsTarget(target.store, spec.uuid).catch(() => true))) await undo();
    throw error;
  }
  if (!isUnknown) await undo();
  throw new BatchWeaveError(
    "NOT_EMPTY",
    `Another namespace was created at ${target.uri} at the same time. Fork to another place.`,
    { uri: target.uri },
  );
}

async function ownsTarget(store: ObjectStore, uuid: string, signal?: AbortSignal): Promise<boolean> {
  const bytes = await store.get(namespaceKey, { signal });
  return bytes !== undefined && decodeNamespace(bytes, namespaceKey).uuid === uuid;
}

function assertSameGrid(found: Grid, wanted: Grid | undefined): void {
  if (!wanted || (wanted.rows === found.rows && wanted.chunks === found.chunks)) return;
  throw new BatchWeaveError(
    "GRID_MISMATCH",
    `A fork shares the stored batches of its parent, whose slices are ${found.rows} rows x ${found.chunks} chunks; they cannot be cut into ${wanted.rows} x ${wanted.chunks}. Keep the grid (any mesh can read it), or write the data anew into a namespace with the other grid.`,
    { found, wanted },
  );
}

function assertStep(at: number, trim: number, end: number, uri: string): void {
  if (Number.isSafeInteger(at) && at >= trim && at <= end) return;
  throw new BatchWeaveError(
    at < trim ? "RECLAIMED" : "INVALID_ARGUMENT",
    `${uri} cannot be forked at step ${at}: it holds ${trim < end ? `steps ${trim} to ${end - 1}` : "no step now"}. Fork at ${trim < end ? `a step from ${trim} to ${end}` : `step ${end}`}.`,
    { at, trim, end },
  );
}
