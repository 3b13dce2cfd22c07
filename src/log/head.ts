/** Finding, following and verifying manifests. No other file reads them. */

import type { Env } from "../env/index.js";
import { BatchWeaveError } from "../errors.js";
import {
  asVersion,
  corrupt,
  decodeManifest,
  genesisManifest,
  type Manifest,
  manifestKey,
  manifestPrefix,
  type NamespaceSpec,
  parseManifestKey,
  storedJsonBytesMax,
  type Version,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { BoundaryChain } from "./boundary-chain.js";
import { deletedError } from "./life.js";
import type { RoundTrip } from "./round-trip.js";

const listPageMax = 1_000;
const loadAttemptsMax = 100;
/** Listings in a row, two seconds of them, that show no manifest where there must be one. */
const absencesMax = 20;

/** What a head may be given. */
interface HeadParts {
  /** Replaced where thousands of simulated processes in one share what they decode. */
  readonly decode?: typeof decodeManifest | undefined;
  /** Told how long looks take. */
  readonly roundTrip?: RoundTrip | undefined;
}

/**
 * The one way to a manifest. *Verified* means: a look at the boundary, begun after the manifest was read, showed it above.
 * Verified is not newest; but a process never goes back behind the newest it verified.
 */
export class Head {
  readonly #store: ObjectStore;
  readonly #env: Env;
  readonly #spec: NamespaceSpec;
  readonly #decode: typeof decodeManifest;
  readonly #roundTrip: RoundTrip | undefined;
  readonly boundary: BoundaryChain;
  #newest: Manifest | undefined;
  #lookedAtMs = Number.NEGATIVE_INFINITY;
  /** Versions up to this one survive power loss. */
  #kept = 0;

  constructor(store: ObjectStore, env: Env, spec: NamespaceSpec, { decode, roundTrip }: HeadParts = {}) {
    this.#store = store;
    this.#env = env;
    this.#spec = spec;
    this.#decode = decode ?? decodeManifest;
    this.#roundTrip = roundTrip;
    this.boundary = new BoundaryChain(store, spec.uuid);
  }

  /** The newest manifest this process verified; loads the head the first time. */
  async newest(options?: CallOptions): Promise<Manifest> {
    return this.#newest ?? (await this.load(options));
  }

  /** The newest manifest this process verified, if it has loaded one. */
  get known(): Manifest | undefined {
    return this.#newest;
  }

  /** When the last look for a newer version began. A search that took long may have ended with a short look. */
  get lookedAtMs(): number {
    return this.#lookedAtMs;
  }

  /** Finds the head without any earlier knowledge: LIST finds a candidate, a look vouches for it, probing forward makes it the head. */
  async load(options?: CallOptions): Promise<Manifest> {
    await this.boundary.assertIntact(options);
    let absences = 0;
    for (let attempt = 0; attempt < loadAttemptsMax && absences < absencesMax; attempt++) {
      const { version: candidate, isListed } = await this.#candidate(options);
      const manifest = candidate === 0 ? genesisManifest(this.#spec) : await this.read(candidate, options);
      if (manifest) {
        await this.boundary.jump(manifest.boundaryHint, options);
        const upTo = await this.boundary.look(options);
        if (candidate === 0 ? upTo === 0 : upTo < candidate) {
          this.#adopt(manifest);
          return await this.#probeForward(options);
        }
      }
      // What is gone may have gone with everything else: only a look tells that the namespace was deleted.
      else await this.boundary.look(options);
      // Nothing at all above the boundary, where the head must be: a listing may be late, but not for long.
      if (!isListed) absences++;
      // Listed and then deleted, or a zombie below the boundary: list again.
      await this.#env.sleep(10 * attempt, options?.signal);
    }
    throw new BatchWeaveError(
      "MISSING_OBJECT",
      `No manifest above the boundary ${this.boundary.newest.upTo} can be found in ${this.#store.uri}; the head is never deleted by us. Restore ${manifestPrefix} as it was, and write nothing here before.`,
      { boundary: this.boundary.newest },
    );
  }

  /** One step forward if there is a next version; else the same manifest, checked against the boundary. */
  async advance(options?: CallOptions): Promise<Manifest> {
    const from = await this.newest(options);
    this.#lookedAtMs = this.#env.monotonic();
    return await this.#step(from, asVersion(from.version + 1), options);
  }

  /**
   * Walks on, version by version, until one is `enough`, there is no next, or `versionsMax` were read; one look vouches for the last. Cheaper than a
   * jump for a reader that is a version or two behind, above all where listing shows every manifest that there is.
   */
  async walk(enough: (manifest: Manifest) => boolean, versionsMax: number, options?: CallOptions): Promise<Manifest> {
    const from = await this.newest(options);
    this.#lookedAtMs = this.#env.monotonic();
    let last: Manifest | undefined;
    for (let read = 0; read < versionsMax && !(last && enough(last)); read++) {
      const next = await this.read(asVersion((last ?? from).version + 1), options);
      if (!next) break;
      last = next;
    }
    return await this.#verify(from, last, options);
  }

  /** Jumps to the newest version: after a lost commit, walking through every version would lose again. */
  async jump(options?: CallOptions): Promise<Manifest> {
    const from = this.#newest;
    if (!from) return await this.load(options);
    this.#lookedAtMs = this.#env.monotonic();
    const page = await this.#store.list(manifestPrefix, {
      ...options,
      keysOnly: true,
      startAfter: manifestKey(from.version),
      limit: listPageMax,
    });
    if (page.more) return await this.load(options);
    return await this.#step(from, lastVersion(page.objects), options);
  }

  /** Goes from a verified manifest to the version `to`, or stays when there is none, after a look either way. */
  async #step(from: Manifest, to: Version | undefined, options?: CallOptions): Promise<Manifest> {
    return await this.#verify(from, to === undefined ? undefined : await this.read(to, options), options);
  }

  /** What a look, begun after `next` was read or found absent, says of it. */
  async #verify(from: Manifest, next: Manifest | undefined, options?: CallOptions): Promise<Manifest> {
    const begun = this.#env.monotonic();
    const upTo = await this.boundary.look(options);
    this.#roundTrip?.guess(this.#env.monotonic() - begun);
    if (next && upTo < next.version) return this.#adopt(next);
    // An absent name proves nothing once the boundary has come this far: it may have been deleted.
    if (next || (upTo > 0 && upTo >= from.version)) return await this.load(options);
    return this.#newest ?? from;
  }

  /** Takes over a manifest that this process itself created, after a look begun after the verdict. False: unknown, load the head. */
  async vouch(created: Manifest, options?: CallOptions): Promise<boolean> {
    const upTo = await this.boundary.look(options);
    if (upTo >= created.version) return false;
    this.#adopt(created);
    // A create has resolved once its name was durable, and with it all names before.
    this.#kept = Math.max(this.#kept, created.version);
    return true;
  }

  /**
   * Resolves when a verified manifest survives power loss. Its creator may not have synced its name yet, or may have died before:
   * nothing is acknowledged on one that can still vanish.
   */
  async keep(manifest: Manifest, options?: CallOptions): Promise<void> {
    if (manifest.version <= this.#kept) return;
    await this.#store.sync?.(manifestKey(manifest.version), options);
    this.#kept = Math.max(this.#kept, manifest.version);
  }

  /** Reads a version without verifying it. For comparing commit ids and for people; conclude nothing else from it. */
  async read(version: Version, options?: CallOptions): Promise<Manifest | undefined> {
    const key = manifestKey(version);
    const bytes = await this.#store.get(key, { ...options, bytesMax: storedJsonBytesMax });
    const manifest = bytes && this.#decode(bytes, key, this.#spec.uuid, version);
    if (manifest && !Number.isSafeInteger(manifest.steps.end * this.#spec.grid.rows))
      corrupt(key, `it ends at step ${manifest.steps.end}, beyond the last row that can be counted`);
    return manifest;
  }

  #adopt(manifest: Manifest): Manifest {
    if (manifest.deleted) throw deletedError(this.#store.uri, this.#spec.uuid);
    if (!this.#newest || manifest.version > this.#newest.version) this.#newest = manifest;
    return this.#newest;
  }

  async #probeForward(options?: CallOptions): Promise<Manifest> {
    for (;;) {
      const before = this.#newest as Manifest;
      const after = await this.advance(options);
      if (after.version === before.version) return after;
    }
  }

  /** Highest listed version; when none is listed the newest known, or 0. A hint: it may be stale, deleted or a zombie. */
  async #candidate(options?: CallOptions): Promise<{ version: Version; isListed: boolean }> {
    const floor = asVersion(Math.max(this.boundary.newest.upTo, this.#newest?.version ?? 0));
    const page = await this.#store.list(manifestPrefix, {
      ...options,
      keysOnly: true,
      startAfter: manifestKey(floor),
      limit: listPageMax,
    });
    const listed = lastVersion(page.objects);
    const version = listed ?? this.#newest?.version ?? asVersion(0);
    return { version: page.more ? await this.#gallop(version, options) : version, isListed: listed !== undefined };
  }

  /**
   * Above the boundary versions are contiguous, so "exists" is monotone and can be searched: growing strides, halving,
   * and a last LIST of at most one page. A few dozen requests for ten million versions.
   */
  async #gallop(from: Version, options?: CallOptions): Promise<Version> {
    const exists = async (version: number): Promise<boolean> =>
      (await this.#store.getRange(manifestKey(asVersion(version)), 0, 1, options)) !== undefined;
    let low: number = from;
    let stride = 8 * listPageMax;
    while (Number.isSafeInteger(low + stride) && (await exists(low + stride))) {
      low += stride;
      stride *= 8;
    }
    let high = low + stride;
    while (high - low > listPageMax) {
      const middle = Math.floor((low + high) / 2);
      if (await exists(middle)) low = middle;
      else high = middle;
    }
    const page = await this.#store.list(manifestPrefix, {
      ...options,
      keysOnly: true,
      startAfter: manifestKey(asVersion(low)),
      limit: listPageMax,
    });
    return lastVersion(page.objects) ?? asVersion(low);
  }
}

function lastVersion(objects: readonly { key: string }[]): Version | undefined {
  let last: Version | undefined;
  for (const { key } of objects) {
    const version = parseManifestKey(key);
    if (version !== undefined && (last === undefined || version > last)) last = version;
  }
  return last;
}
