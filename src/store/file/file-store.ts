/**
 * Objects as files below one folder: the embedded default.
 *
 * An object is written whole to a temporary file, synced, and only then given its name: with link(2), which fails if the name is
 * taken, for a conditional create; with rename(2) for a put. Both are atomic across processes, so no reader sees part of an object
 * and exactly one of any number of creators wins. A crash before the name leaves an invisible temporary file; after it, the object.
 */
import { dirname } from "node:path";
import { pathToFileURL } from "node:url";
import type { Env } from "../../env/index.js";
import { BatchWeaveError, shown } from "../../errors.js";
import { Gate, mapParallel } from "../../flow/index.js";
import { assertBytesMax, assertRange, listLimit } from "../arguments.js";
import { bodyBytes, bodyParts } from "../body.js";
import { assertKey } from "../key.js";
import type {
  Body,
  CallOptions,
  CreateOutcome,
  GetOptions,
  ListedObject,
  ListOptions,
  ListPage,
  ObjectStore,
  WriteOptions,
} from "../object-store.js";
import { bulkWritesMax } from "./bulk-writes.js";
import {
  closeFileNow,
  durableWriteFlags,
  linkFile,
  openFile,
  readFlags,
  readFully,
  readOnce,
  removeDirectory,
  renameFile,
  statFile,
  statPath,
  syncData,
  touchFlags,
  unlinkFile,
  vectorsMax,
  writeBytesMax,
  writeFlags,
  writeFully,
} from "./calls.js";
import { DirectWrites, isOneWrite, writeRest } from "./direct-write.js";
import { Directories } from "./directories.js";
import { errno, fileError, tolerate } from "./file-failure.js";
import { QuietRemoval } from "./removal.js";
import { TempFile, TempFiles } from "./temp-file.js";
import { TopFolders } from "./top-folders.js";
import { collectKeys } from "./walk.js";

/**
 * What a returned write survives. `power-loss` (default): everything, by syncing file and directory. `process-crash`: the death of
 * any process, but not of the machine: after a power failure recent objects may be missing, empty or torn.
 */
export type Durability = "power-loss" | "process-crash";

/** Settings of {@link openFileStore}. */
export interface FileStoreSettings {
  durability?: Durability | undefined;
}

/** Bytes a whole-object read asks for before it knows the size; most manifests, segments and footers fit. */
const firstReadBytes = 128 * 1024;
/** Ranges longer than this are clipped to the object's size before memory is set aside for them. */
const unclippedBytesMax = 16 * 1024 * 1024;
/** Writes of this size and above are bulk: see {@link bulkWritesMax}. Manifests and index objects are smaller. */
const bulkBytesMin = 256 * 1024;
/** How often a directory may vanish under a write before we give up. */
const vanishedMax = 32;
/**
 * Deletes that are not urgent leave empty folders so near to the root: there are few, and writers go on using them. Without this, a reclaim
 * would take away what every producer has to make again a moment later, and sync.
 */
const keptLevels = 2;

/** System calls a listing or a delete keeps going at once; more would crowd out reads in Node's small thread pool. */
const parallelMax = 16;

/** Errnos of open(2) that say that there is no such object. */
const absences = ["ENOENT", "ENOTDIR", "ELOOP"];
/** Errnos of link(2) that say for certain that no link was made. Any other (a network file system timing out) says nothing. */
const refusals = [
  "ENOSPC",
  "EDQUOT",
  "EACCES",
  "EPERM",
  "EROFS",
  "ENOENT",
  "ENOTDIR",
  "ENAMETOOLONG",
  "EMLINK",
  "EXDEV",
  "ELOOP",
];

/** Opens the folder `path` (absolute) as a store. The folder is made by the first write, not before. */
export async function openFileStore(path: string, env: Env, settings: FileStoreSettings = {}): Promise<FileStore> {
  const durability = settings.durability ?? "power-loss";
  if (durability !== "power-loss" && durability !== "process-crash") {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `durability must be "power-loss" or "process-crash", not ${shown(durability)}.`,
      { durability },
    );
  }
  const root = path.replace(/(?<=.)\/+$/, "");
  try {
    // "/." follows a link in the last place: a root that is a link to a folder is fine.
    await tolerate(statPath(`${root}/.`), "ENOENT");
    const temps = new TempFiles(root, env);
    await temps.sweep(env.now());
    return new FileStore(root, temps, durability, () => env.monotonic());
  } catch (e) {
    if (errno(e) === "ENOTDIR")
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `${root} is not a folder; name a folder to keep objects in.`,
        { path: root },
        e,
      );
    throw fileError(e, "open", root);
  }
}

/** See the head of this file. Made by {@link openFileStore}. */
export class FileStore implements ObjectStore {
  readonly uri: string;
  readonly durability: Durability;
  readonly #root: string;
  readonly #temps: TempFiles;
  readonly #directories: Directories;
  readonly #bulk = new Gate(bulkWritesMax);
  readonly #direct = new DirectWrites(bulkWritesMax);
  readonly #scratch: Uint8Array[] = [];
  readonly #folders: TopFolders;
  readonly #monotonic: () => number;

  /** @internal */
  constructor(root: string, temps: TempFiles, durability: Durability, monotonic: () => number) {
    this.#monotonic = monotonic;
    this.#root = root;
    this.#folders = new TopFolders(root);
    this.#temps = temps;
    this.durability = durability;
    this.uri = pathToFileURL(root).href;
    this.#directories = new Directories(root, temps.directory, durability === "power-loss");
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    const path = this.#path(key);
    const signal = options?.signal;
    let temp: TempFile | undefined;
    let outcome: CreateOutcome;
    try {
      temp = await this.#writeTemp(this.#temps.next(), dirname(path), body, signal);
      // The commit point: before this the object does not exist, after it it does. Whatever fails later cannot be a plain failure.
      outcome = await this.#link(temp.path, path);
    } catch (e) {
      await temp?.drop();
      throw fileError(e, "create", path);
    }
    const tidied = temp.drop();
    const verdict = outcome;
    // Also a name that was there: its creator, an earlier try of this very create perhaps, may not have synced it.
    if (verdict !== "unknown")
      outcome = await this.#directories.sync(dirname(path)).then(
        () => verdict,
        () => "unknown" as const,
      );
    await tidied;
    return outcome;
  }

  async sync(key: string, options?: CallOptions): Promise<void> {
    const path = this.#path(key);
    options?.signal?.throwIfAborted();
    await this.#directories.sync(dirname(path)).catch((e) => {
      throw fileError(e, "sync", path);
    });
  }

  async put(key: string, body: Body, options?: WriteOptions): Promise<void> {
    const path = this.#path(key);
    const isHint = options?.hint === true;
    if (isHint && bodyBytes(body) === 0) return await this.#touch(path, options?.signal);
    // Only large ones: of small ones the rename is a small part, and temporary files of killed writers need no reclaim.
    const isInPlace = options?.unknownKey === true && bodyBytes(body) >= bulkBytesMin;
    if (isInPlace && (await this.#putInPlace(path, body, options.signal))) return;
    let temp: TempFile | undefined;
    try {
      temp = await this.#writeTemp(this.#temps.next(), dirname(path), body, options?.signal, { isHint });
      const from = temp.path;
      await this.#inDirectory(path, from, () => renameFile(from, path));
      temp.named();
      await Promise.all([isHint ? undefined : this.#directories.sync(dirname(path)), temp.drop()]);
    } catch (e) {
      await temp?.drop();
      throw fileError(e, "write", path);
    }
  }

  /** Without a temporary name: a folder less to change, and no rename. False: something is there already, an earlier attempt cut short. */
  async #putInPlace(path: string, body: Body, signal: AbortSignal | undefined): Promise<boolean> {
    try {
      await this.#directories.ensure(dirname(path)).exists;
      const file = await this.#writeTemp(path, dirname(path), body, signal, { isNamed: true });
      file.named();
      await file.drop();
      return true;
    } catch (e) {
      if (errno(e) === "EEXIST") return false;
      throw fileError(e, "write", path);
    }
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    return this.#read(key, options?.signal, async (fd) => {
      const scratch = this.#scratch.pop() ?? new Uint8Array(firstReadBytes);
      try {
        const first = await readOnce(fd, scratch, 0, firstReadBytes, 0);
        // Objects never change, so a short read of a regular file is its end.
        if (first < firstReadBytes) {
          assertBytesMax(`${this.#root}/${key}`, first, options?.bytesMax);
          return scratch.slice(0, first);
        }
        const { size } = await statFile(fd);
        assertBytesMax(`${this.#root}/${key}`, size, options?.bytesMax);
        const whole = uninitialised(size);
        whole.set(scratch);
        const rest = await readFully(fd, whole.subarray(first), first);
        return whole.subarray(0, first + rest);
      } finally {
        if (this.#scratch.length < 4) this.#scratch.push(scratch);
      }
    });
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    assertRange(key, start, length);
    return await this.#read(key, options?.signal, async (fd) => {
      const wanted =
        length <= unclippedBytesMax ? length : Math.max(0, Math.min(length, (await statFile(fd)).size - start));
      // At least one byte is read, or a folder would pass for an empty range.
      if (wanted === 0) await readOnce(fd, new Uint8Array(1), 0, 1, 0);
      const bytes = uninitialised(wanted);
      const read = await readFully(fd, bytes, start);
      return read === wanted ? bytes : bytes.slice(0, read);
    });
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const limit = listLimit(options);
    const signal = options?.signal;
    signal?.throwIfAborted();
    let startAfter = options?.startAfter ?? "";
    this.#folders.assert(prefix);
    try {
      for (;;) {
        const keys: string[] = [];
        await collectKeys(this.#root, { prefix, startAfter, signal }, limit + 1, keys);
        signal?.throwIfAborted();
        const more = keys.length > limit;
        if (more) keys.length = limit;
        if (options?.keysOnly === true) return { objects: keys.map((key) => ({ key, size: 0 })), more };
        const sizes = await mapParallel(keys, parallelMax, (key) =>
          tolerate(statPath(`${this.#root}/${key}`), "ENOENT", "ENOTDIR"),
        );
        signal?.throwIfAborted();
        const objects: ListedObject[] = [];
        for (const [i, key] of keys.entries()) {
          const stats = sizes[i];
          if (stats?.isFile()) objects.push({ key, size: stats.size }); // else deleted since it was read
        }
        // A page without a key would leave the caller nothing to go on from.
        if (objects.length > 0 || !more) return { objects, more };
        startAfter = keys[keys.length - 1] as string;
      }
    } catch (e) {
      throw fileError(e, "list", `${this.#root}/${prefix}`);
    }
  }

  async delete(keys: readonly string[], options?: WriteOptions): Promise<void> {
    const paths = keys.map((key) => this.#path(key));
    const signal = options?.signal;
    if (options?.hint === true) {
      await this.#deleteQuietly(paths, signal);
      return;
    }
    const folders = new Set<string>();
    const unlink = async (path: string): Promise<void> => {
      signal?.throwIfAborted();
      // EISDIR: a folder is not an object, so there is none under this key.
      await tolerate(unlinkFile(path), "ENOENT", "ENOTDIR", "EISDIR").catch((e) => {
        throw fileError(e, "delete", path);
      });
      folders.add(dirname(path));
    };
    await mapParallel(paths, parallelMax, unlink);
    signal?.throwIfAborted();
    try {
      const left = new Set(await mapParallel([...folders], parallelMax, (folder) => this.#prune(folder)));
      await Promise.all([...left].map((folder) => this.#directories.syncNames(folder)));
    } catch (e) {
      throw fileError(e, "delete from", this.#root);
    }
  }

  /** What nothing depends on is not urgent either: one at a time, it leaves the other cores and the journal to those who write. */
  async #deleteQuietly(paths: readonly string[], signal: AbortSignal | undefined): Promise<void> {
    const removal = new QuietRemoval(this.#monotonic);
    const deep = new Set<string>();
    for (const path of paths) {
      signal?.throwIfAborted();
      await removal.unlink(path).catch((e) => {
        throw fileError(e, "delete", path);
      });
      const folder = dirname(path);
      if (folder.slice(this.#root.length + 1).split("/").length > keptLevels) deep.add(folder);
    }
    for (const folder of deep) {
      signal?.throwIfAborted();
      if (await removal.removeDirectory(folder)) this.#directories.forget(folder);
    }
  }

  /** A hint that is all name: there is no content of which a reader could see a part. */
  async #touch(path: string, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted();
    try {
      await this.#directories.ensure(dirname(path)).exists;
      // Nothing was written through it: closing it takes less than a turn of the thread pool.
      closeFileNow(await this.#inDirectory(path, undefined, () => openFile(path, touchFlags)));
    } catch (e) {
      throw fileError(e, "write", path);
    }
  }

  #path(key: string): string {
    assertKey(key);
    this.#folders.assert(key);
    return `${this.#root}/${key}`;
  }

  /** Opens, reads, closes. Undefined when there is no such object: a folder or a link is none. */
  async #read(
    key: string,
    signal: AbortSignal | undefined,
    read: (fd: number) => Promise<Uint8Array>,
  ): Promise<Uint8Array | undefined> {
    const path = this.#path(key);
    signal?.throwIfAborted();
    let fd: number | undefined;
    try {
      fd = await openFile(path, readFlags);
      signal?.throwIfAborted();
      const bytes = await read(fd);
      signal?.throwIfAborted();
      return bytes;
    } catch (e) {
      if ((fd === undefined ? absences : ["EISDIR"]).includes(errno(e))) return undefined;
      throw fileError(e, "read", path);
    } finally {
      if (fd !== undefined) closeFileNow(fd);
    }
  }

  /**
   * Writes and syncs the bytes under a temporary name, and sees to the target's directory meanwhile; or under their own name, and syncs that too.
   * Leaves nothing when it throws.
   */
  async #writeTemp(
    path: string,
    directory: string,
    body: Body,
    signal: AbortSignal | undefined,
    {
      isHint = false,
      isNamed = false,
      isPlain = false,
    }: { isHint?: boolean; isNamed?: boolean; isPlain?: boolean } = {},
  ): Promise<TempFile> {
    signal?.throwIfAborted();
    const ready = this.#directories.ensure(directory).exists;
    const parts = bodyParts(body);
    const bytes = bodyBytes(body);
    const mustSync = this.durability === "power-loss" && !isHint;
    const isBulk = bytes >= bulkBytesMin;
    // Several writes would each wait for the disk: those are synced once, at their end.
    const syncsItself = mustSync && durableWriteFlags !== 0 && parts.length <= vectorsMax && bytes <= writeBytesMax;
    const flags = syncsItself ? durableWriteFlags : writeFlags;
    const open = (how: number): Promise<number> => this.#inDirectory(path, undefined, () => openFile(path, how));
    const mayBeDirect = isBulk && mustSync && !isPlain;
    const { fd, isDirect } = mayBeDirect
      ? await this.#direct.open(path, bytes, flags, open)
      : { fd: await open(flags), isDirect: false };
    const temp = new TempFile(path, fd, isNamed);
    try {
      const write = async (): Promise<void> => {
        const direct = isDirect ? await this.#direct.write(fd, parts) : 0;
        signal?.throwIfAborted();
        // No reader looks for the name before the call has returned: it need not wait for the bytes.
        const named = isNamed ? this.#directories.sync(directory) : ready;
        named.catch(() => {}); // told below, when nothing is being written any more
        let isDurable = syncsItself;
        if (!isDirect) await writeFully(fd, parts);
        else isDurable = direct === bytes ? isOneWrite(bytes) : await writeRest(fd, parts, direct);
        if (mustSync && !isDurable) await syncData(fd);
        await named;
        // Without a sync, only close(2) reports a write that a network file system or a quota refused late.
        if (!mustSync) await temp.close();
      };
      await (isBulk ? this.#bulk.pass(write) : write());
      signal?.throwIfAborted();
      return temp;
    } catch (e) {
      await temp.drop();
      // A direct write takes a second descriptor for its end. Where none is left, the one that was just given back will do for all of it.
      if (!isDirect || !["EMFILE", "ENFILE"].includes(errno(e))) throw e;
      return await this.#writeTemp(path, directory, body, signal, { isHint, isNamed, isPlain: true });
    }
  }

  /** link(2), with what its answers do not say. Throws only when no link was made. */
  async #link(temp: string, path: string): Promise<CreateOutcome> {
    try {
      await this.#inDirectory(path, temp, () => linkFile(temp, path));
      return "created";
    } catch (e) {
      if (refusals.includes(errno(e))) throw e;
      // Over NFS a repeated request can be answered EEXIST though the first one made the link: the link count tells (open(2), NOTES).
      const links = await statPath(temp).then(
        (stats) => stats.nlink,
        () => 0,
      );
      if (links > 1) return "created";
      if (errno(e) !== "EEXIST") return "unknown";
      const holder = await statPath(path).catch(() => undefined);
      if (holder === undefined || holder.isFile()) return "exists";
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `Cannot create ${path}: there is something other than a file under this name; choose a key that is not the folder of another object.`,
        { path },
      );
    }
  }

  /** Makes a name in the directory of `path`; makes the directory and tries again if it is missing or was pruned under us. */
  async #inDirectory<T>(path: string, temp: string | undefined, make: () => Promise<T>): Promise<T> {
    for (let tries = 0; ; tries++) {
      try {
        return await make();
      } catch (e) {
        if (errno(e) !== "ENOENT" || tries === vanishedMax) throw e;
        // Or is it the temporary file that is gone? Then no directory will help, and nothing has been written.
        if (temp !== undefined) await statPath(temp);
        this.#directories.forget(dirname(path));
        await this.#directories.ensure(dirname(path)).exists;
      }
    }
  }

  /**
   * Removes `folder` and those above it as long as they are empty; gives the first that stays. rmdir(2) refuses a folder with anything in
   * it, and a writer whose folder vanished between its mkdir and its link makes it again, so this races with nothing.
   */
  async #prune(folder: string): Promise<string> {
    let at = folder;
    for (; at !== this.#root; at = dirname(at)) {
      try {
        await removeDirectory(at);
      } catch (e) {
        if (errno(e) === "ENOENT") continue;
        return at; // not empty, or not ours to remove: an empty folder does no harm
      }
      this.#directories.forget(at);
    }
    return at;
  }
}

/** Memory that is about to be filled by read(2): clearing it first would cost as much as the read. */
function uninitialised(bytes: number): Uint8Array {
  return new Uint8Array(Buffer.allocUnsafeSlow(bytes).buffer);
}
