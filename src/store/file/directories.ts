/** Directories of a file store: made when needed, remembered, and synced once for all who wait. */
import { dirname } from "node:path";
import { BatchWeaveError } from "../../errors.js";
import { closeFileNow, makeDirectory, openDirectoryNow, syncAll } from "./calls.js";
import { errno, tolerate } from "./file-failure.js";

/** Most directories remembered. Forgetting one costs a mkdir and an fsync, nothing else. */
const knownMax = 4096;

/** How often a parent may be pruned under us before it is taken for one in which no folder can be made. */
const vanishedMax = 32;

interface Known {
  /** The directory is there (it may be removed again by another process's clean-up; then the caller sees ENOENT and says so). */
  readonly exists: Promise<void>;
  /**
   * Resolves when its name, and those of all above it, survive power loss. Begun by the first who asks, after the bytes are written: syncing those has
   * written the journal by then, and with it the new name. Asked at once, it would have the journal written twice.
   */
  readonly durable: () => Promise<void>;
}

/** One fsync for all calls that came before it began; those who ask while it runs share the next one. */
class SharedSync {
  readonly #path: string;
  #running: Promise<void> | undefined;
  #next: Promise<void> | undefined;

  constructor(path: string) {
    this.#path = path;
  }

  get idle(): boolean {
    return this.#running === undefined;
  }

  /** Resolves after an fsync that began after this call. */
  sync(): Promise<void> {
    if (!this.#running) return this.#begin();
    this.#next ??= this.#running.then(
      () => this.#begin(),
      () => this.#begin(),
    );
    return this.#next;
  }

  #begin(): Promise<void> {
    this.#next = undefined;
    const running = syncDirectory(this.#path).finally(() => {
      if (this.#running === running) this.#running = undefined;
    });
    this.#running = running;
    return running;
  }
}

/** fsync of a directory. One that is gone has nothing left to keep; one on a file system without directory sync keeps what it can. */
async function syncDirectory(path: string): Promise<void> {
  const fd = openDirectoryNow(path);
  if (fd === undefined) return;
  try {
    await tolerate(syncAll(fd), "EINVAL", "ENOTSUP", "EBADF");
  } finally {
    closeFileNow(fd);
  }
}

/** What is known about the directories under (and of) one root. */
export class Directories {
  readonly #root: string;
  readonly #fleeting: string;
  readonly #durable: boolean;
  readonly #known = new Map<string, Known>();
  readonly #syncs = new Map<string, SharedSync>();
  /** The root and folders above it that this store made and whose names are not synced yet. What is known of them may be forgotten meanwhile. */
  readonly #made = new Set<string>();

  /** `fleeting`: a directory whose name need not survive power loss, because nothing in it does. */
  constructor(root: string, fleeting: string, durable: boolean) {
    this.#root = root;
    this.#fleeting = fleeting;
    this.#durable = durable;
  }

  /** Makes `path` and whatever is missing above it, unless it is known to be there. Runs beside the writing of the object's bytes. */
  ensure(path: string): Known {
    const known = this.#known.get(path);
    if (known) return known;
    const exists = this.#make(path);
    const forget = (): void => {
      if (this.#known.get(path) === entry) this.#known.delete(path);
    };
    let durable: Promise<void> | undefined;
    const keep = (): Promise<void> => {
      durable ??= exists.then(() => (this.#durable ? this.#keepName(path) : undefined));
      durable.catch(forget);
      return durable;
    };
    const entry: Known = { exists, durable: keep };
    this.#known.set(path, entry);
    if (this.#known.size > knownMax) this.#known.delete(this.#known.keys().next().value as string);
    exists.catch(forget);
    return entry;
  }

  /** Resolves when the names now in `path`, and `path` itself, survive power loss. At once when durability is traded away. */
  async sync(path: string): Promise<void> {
    if (!this.#durable) return;
    await Promise.all([this.#sync(path), this.ensure(path).durable()]);
  }

  /** As {@link sync}, for names that were removed: makes nothing, and the names above `path` are no concern. */
  async syncNames(path: string): Promise<void> {
    if (this.#durable) await this.#sync(path);
  }

  /** `path` is gone, or may be: nothing remembered about it or above it counts any longer. */
  forget(path: string): void {
    for (let at = path; ; at = dirname(at)) {
      this.#known.delete(at);
      if (at === this.#root || at === dirname(at)) return;
    }
  }

  #sync(path: string): Promise<void> {
    let shared = this.#syncs.get(path);
    if (!shared) {
      shared = new SharedSync(path);
      this.#syncs.set(path, shared);
    }
    return shared.sync().finally(() => {
      if (shared.idle && this.#syncs.get(path) === shared) this.#syncs.delete(path);
    });
  }

  async #make(path: string): Promise<void> {
    for (let tries = 0; ; tries++) {
      try {
        await makeDirectory(path);
        if (path.length <= this.#root.length) this.#made.add(path);
        return;
      } catch (e) {
        // EISDIR is what macOS answers for "/".
        if (errno(e) === "EEXIST" || errno(e) === "EISDIR") return;
        if (errno(e) !== "ENOENT" || path === dirname(path)) throw e;
        // A link to nowhere is there and holds nothing, and so it is with /proc: without an end this would spin.
        if (tries === vanishedMax) {
          throw new BatchWeaveError(
            "INVALID_ARGUMENT",
            `Cannot make the folder ${path}: ${dirname(path)} is a link to nowhere, or takes no folders; mount or make what it points to, or choose another folder.`,
            { path, errno: "ENOENT" },
            e,
          );
        }
        // The parent was missing, or was pruned a moment ago.
        this.#known.delete(dirname(path));
        await this.ensure(dirname(path)).exists;
      }
    }
  }

  /**
   * Syncs the parent, even when another process made the directory: it may have died before it did.
   * Above the root only what we made ourselves is our business; the root's own name is synced if its parent lets us.
   */
  async #keepName(path: string): Promise<void> {
    const parent = dirname(path);
    const isNew = this.#made.has(path);
    if (parent === path || path === this.#fleeting) return;
    if (path === this.#root && !isNew) return void (await tolerate(this.#sync(parent), "EACCES", "EPERM"));
    if (path.length < this.#root.length && !isNew) return;
    await Promise.all([this.#sync(parent), this.ensure(parent).durable()]);
    this.#made.delete(path);
  }
}
