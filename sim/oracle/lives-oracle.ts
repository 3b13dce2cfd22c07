/**
 * Knows the true chain of every life: version N is the first object of that name, created while N - 1 was the head. It fails the run at the very write
 * that breaks the order of a deletion, and at an acknowledgement of what is not in its life's chain.
 */
import {
  decodeBoundary,
  decodeManifest,
  decodeNamespace,
  type Manifest,
  type NamespaceSpec,
  namespaceKey,
  parseManifestKey,
} from "../../src/format/index.js";
import type { Applied, SimStore } from "../store/sim-store.js";
import { Violation } from "./violation.js";

interface Life {
  readonly spec: NamespaceSpec;
  head: Manifest | undefined;
  boundary: number;
  /** The last marker is there. */
  isEnded: boolean;
}

const inLife = /^life\/([0-9a-f-]{36})\/(.*)$/;

/** Watches one place. */
export class LivesOracle {
  readonly #store: SimStore;
  readonly #lives = new Map<string, Life>();
  #newest: NamespaceSpec | undefined;
  readonly counts = { commits: 0, zombieManifests: 0, lateWrites: 0, acknowledged: 0, removed: 0 };

  constructor(store: SimStore) {
    this.#store = store;
    store.onApply = (applied) => this.#watch(applied);
  }

  /** The life that was created last and is not deleted. */
  get newest(): NamespaceSpec | undefined {
    return this.#newest;
  }

  /** A producer was told that a batch is in. */
  acknowledge(uuid: string, id: string, seq: number, version: number): void {
    const head = this.#lives.get(uuid)?.head;
    const known = head?.producers.get(id)?.seq ?? 0;
    if (known <= seq || version > (head?.version ?? 0))
      throw new Violation(
        "durability",
        `seq ${seq} of ${id} is acknowledged as of version ${version}; ${uuid} ends with ${known} in version ${head?.version}`,
      );
    this.counts.acknowledged++;
  }

  /** A newcomer found this. */
  requireHead(uuid: string, found: Manifest): void {
    const head = this.#lives.get(uuid)?.head;
    if (found.version !== (head?.version ?? 0) || (head && found.commit.id !== head.commit.id))
      throw new Violation("head", `a newcomer finds version ${found.version} of ${uuid}, the head is ${head?.version}`);
  }

  #watch({ kind, key, changed, same }: Applied): void {
    if (key.startsWith("probe/") || kind === "abort") return;
    if (kind === "put" && !same) throw new Violation("immutability", `${key} was overwritten with other bytes`);
    if (!changed) return;
    if (key === namespaceKey) {
      this.#onNamespace(kind === "delete");
      return;
    }
    const [, uuid = "", local = ""] = inLife.exec(key) ?? [];
    const life = this.#lives.get(uuid);
    if (life === undefined) throw new Violation("place", `${key} belongs to no life of this place`);
    if (kind === "delete") this.#onDelete(life, local);
    else if (local.startsWith("boundary/")) this.#onMarker(life, key, local);
    else if (parseManifestKey(local) !== undefined) this.#onManifest(life, key, local);
    else if (life.isEnded) this.counts.lateWrites++;
  }

  #onNamespace(isDeleted: boolean): void {
    if (!isDeleted) {
      const spec = decodeNamespace(this.#store.get(namespaceKey) as Uint8Array, namespaceKey);
      if (!this.#lives.has(spec.uuid))
        this.#lives.set(spec.uuid, { spec, head: undefined, boundary: 0, isEnded: false });
      if (!this.#lives.get(spec.uuid)?.isEnded) this.#newest = spec;
      return;
    }
    // A request that comes late takes the next life's: it is put back by whoever commits there.
    if ([...this.#lives.values()].every(({ isEnded }) => !isEnded))
      throw new Violation("deletion", "namespace.json is gone before any life has ended");
  }

  #onManifest(life: Life, key: string, local: string): void {
    const version = parseManifestKey(local) as Manifest["version"];
    const before = life.head;
    const next = (before?.version ?? 0) + 1;
    if (version < next || life.isEnded) {
      this.counts.zombieManifests++;
      if (version > life.boundary)
        throw new Violation("announcement", `${key} was free, the boundary is ${life.boundary}`);
      return;
    }
    if (version > next) throw new Violation("chain", `${key} was created while the head is ${next - 1}`);
    if (before?.deleted) throw new Violation("deleted", `${key} was committed after the version that says deleted`);
    life.head = decodeManifest(this.#store.get(key) as Uint8Array, key, life.spec.uuid, version);
    this.counts.commits++;
  }

  #onMarker(life: Life, key: string, local: string): void {
    const n = Number(local.slice("boundary/".length, -".json".length));
    const { upTo, deleted } = decodeBoundary(this.#store.get(key) as Uint8Array, key, life.spec.uuid, n);
    if (life.isEnded) throw new Violation("boundary", `${key} comes after the last one`);
    if (deleted && !life.head?.deleted)
      throw new Violation("deletion", `${key} is the last, and no version says deleted`);
    if (!deleted && upTo >= (life.head?.version ?? 0)) throw new Violation("boundary", `${key} announces ${upTo}`);
    life.boundary = upTo;
    life.isEnded = deleted === true;
  }

  #onDelete(life: Life, local: string): void {
    this.counts.removed++;
    if (local.startsWith("boundary/"))
      throw new Violation("deletion", `${local} of ${life.spec.uuid} is kept for ever`);
    const version = parseManifestKey(local);
    if (version !== undefined && version > life.boundary)
      throw new Violation("deletion", `${local} of ${life.spec.uuid} was deleted; its boundary is ${life.boundary}`);
    if (life.head === undefined && !life.isEnded)
      throw new Violation("deletion", `${local} of a life without a version`);
  }
}
