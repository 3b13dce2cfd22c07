/**
 * What a disk has not been told to keep. A file store syncs the bytes of an object before it gives them their name, and the name's folder before it
 * answers; hints and quiet deletes it does not sync at all. Until then a power cut takes the change back.
 *
 * Names of one folder reach the disk in the order in which they changed, as with every file system that keeps a journal; folders know nothing of each other.
 */
import type { Rng } from "../world/random.js";
import type { StoredObject } from "./sim-store.js";

interface Change {
  readonly key: string;
  /** What was there; undefined for nothing. */
  readonly before: StoredObject | undefined;
}

const folderOf = (key: string): string => key.slice(0, key.lastIndexOf("/") + 1);

/** Changes of names since their folder was synced. */
export class Unsynced {
  readonly #changes = new Map<string, Change[]>();

  /** A name comes, goes, or means another object. */
  note(key: string, before: StoredObject | undefined): void {
    const folder = folderOf(key);
    const changes = this.#changes.get(folder);
    if (changes === undefined) this.#changes.set(folder, [{ key, before }]);
    else changes.push({ key, before });
  }

  /** The folder of `key` is on the disk as it is now. */
  sync(key: string): void {
    this.#changes.delete(folderOf(key));
  }

  /** What becomes of each name that the disk did not keep. It wrote some by itself: a first part of each folder's changes, perhaps all. */
  cut(rng: Rng): Map<string, StoredObject | undefined> {
    const lost = new Map<string, StoredObject | undefined>();
    for (const changes of this.#changes.values()) {
      const kept = rng.chance(0.3) ? rng.below(changes.length + 1) : 0;
      for (const { key, before } of changes.slice(kept).reverse()) lost.set(key, before);
    }
    this.#changes.clear();
    return lost;
  }
}
