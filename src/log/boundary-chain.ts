/** The boundary chain: consecutive markers, each announcing that older manifest versions may be deleted. */
import { strict as assert } from "node:assert";
import type { Env } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import {
  asVersion,
  type BoundaryMarker,
  boundaryKey,
  decodeBoundary,
  encodeBoundary,
  everyVersion,
  storedJsonBytesMax,
  type Version,
} from "../format/index.js";
import type { CallOptions, ObjectStore } from "../store/index.js";
import { deletedError } from "./life.js";

/** Follows the chain. One process holds one; what it has seen never goes back. */
export class BoundaryChain {
  readonly #store: ObjectStore;
  readonly #namespace: string;
  #newest: BoundaryMarker = { n: 0, upTo: asVersion(0) };
  #kept = 0;

  constructor(store: ObjectStore, namespace: string) {
    this.#store = store;
    this.#namespace = namespace;
  }

  /** The newest marker seen so far; n = 0 means none. */
  get newest(): BoundaryMarker {
    return this.#newest;
  }

  /**
   * Number of the newest marker that is known to survive power loss, which a manifest may name. A marker that others can see and its writer has not
   * synced yet may vanish; a durable manifest that names it would stop every reader and writer.
   */
  get kept(): number {
    return this.#store.sync ? this.#kept : this.#newest.n;
  }

  /**
   * A look: reads on until the next number is absent (normally one request) and returns the highest version whose name may be gone.
   * Only a look *begun after* a manifest was read, or after the verdict of a PUT, vouches for it. Throws DELETED at the last marker.
   */
  async look(options?: CallOptions): Promise<Version> {
    let at = this.#newest;
    this.#assertNotLast(at);
    for (;;) {
      const next = await this.#read(at.n + 1, options);
      if (!next) return this.#newest.upTo;
      if (next.upTo <= at.upTo) {
        throw new BatchWeaveError(
          "CORRUPT",
          `${boundaryKey(next.n)} does not raise the boundary above ${at.upTo}: the chain is broken. Stop all reclaimers and report this.`,
          { marker: next, previous: at },
        );
      }
      at = next;
      if (at.n > this.#newest.n) this.#newest = at;
      this.#assertNotLast(at);
    }
  }

  /**
   * Ends the chain: from here on every name of this life means nothing, even when a late writer makes it again. Returns when the chain shows its last
   * marker, written by this process or another.
   */
  async end(env: Env, options?: CallOptions): Promise<void> {
    for (let delayMs = 50; ; delayMs = Math.min(2 * delayMs, 5_000)) {
      try {
        await this.look(options);
      } catch (error) {
        if (!isBatchWeaveError(error, "DELETED")) throw error;
        // As below: another deleter's marker may not be durable yet.
        await this.#store.sync?.(boundaryKey(this.#newest.n), options);
        return;
      }
      const marker: BoundaryMarker = { n: this.#newest.n + 1, upTo: everyVersion, deleted: true };
      const outcome = await this.#store.create(boundaryKey(marker.n), encodeBoundary(this.#namespace, marker), options);
      if (outcome === "unknown") await env.sleep(delayMs * (0.5 + env.random()), options?.signal);
    }
  }

  #assertNotLast(marker: BoundaryMarker): void {
    if (marker.deleted) throw deletedError(this.#store.uri, this.#namespace);
  }

  /**
   * Announces that versions up to `upTo` may be deleted. Returns when the chain shows at least that, from this process or another; only then may
   * anything be deleted. `head` is a verified version, which stays.
   */
  async announce(upTo: Version, head: Version, env: Env, options?: CallOptions): Promise<Version> {
    assert(upTo < head, "the head is never announced");
    for (let delayMs = 50; ; delayMs = Math.min(2 * delayMs, 5_000)) {
      const seen = await this.look(options);
      if (seen >= upTo) {
        // Another reclaimer's marker may not be durable yet; if it vanished after the deletions, deleted names would pass for new ones.
        const { n } = this.#newest;
        await this.#store.sync?.(boundaryKey(n), options);
        this.#kept = Math.max(this.#kept, n);
        return seen;
      }
      const marker: BoundaryMarker = { n: this.#newest.n + 1, upTo };
      const outcome = await this.#store.create(boundaryKey(marker.n), encodeBoundary(this.#namespace, marker), options);
      // Whatever the answer was, the chain itself is read again: another marker may have this number.
      if (outcome === "unknown") await env.sleep(delayMs * (0.5 + env.random()), options?.signal);
    }
  }

  /** Jumps to a marker that a manifest says exists. A hint saves requests; the chain is still read on from there. */
  async jump(hint: number, options?: CallOptions): Promise<void> {
    this.#kept = Math.max(this.#kept, hint);
    if (hint <= this.#newest.n) return;
    const marker = await this.#read(hint, options);
    if (!marker) throw missingMarker(hint);
    if (marker.n > this.#newest.n) this.#newest = marker;
    this.#assertNotLast(marker);
  }

  /** A boundary that was once seen and is gone stops everything: without it, deleted names could be taken for new ones. */
  async assertIntact(options?: CallOptions): Promise<void> {
    const { n } = this.#newest;
    if (n > 0 && !(await this.#read(n, options))) throw missingMarker(n);
  }

  async #read(n: number, options?: CallOptions): Promise<BoundaryMarker | undefined> {
    const key = boundaryKey(n);
    const bytes = await this.#store.get(key, { ...options, bytesMax: storedJsonBytesMax });
    return bytes && decodeBoundary(bytes, key, this.#namespace, n);
  }
}

function missingMarker(n: number): BatchWeaveError {
  return new BatchWeaveError(
    "MISSING_OBJECT",
    `${boundaryKey(n)} was there and is gone; boundary markers are never deleted. Stop every process on this namespace and restore it.`,
    { key: boundaryKey(n) },
  );
}
