/**
 * System calls as promises on plain descriptors. `fs.promises` would wrap each descriptor in an object that the collector must watch,
 * which costs more than the call itself on small objects.
 */
import * as fs from "node:fs";

/** Read an existing regular file; a symbolic link in its place is not followed. */
export const readFlags: number =
  // Not blocking: to open a pipe for reading would wait for a writer. Of a file it means nothing.
  fs.constants.O_RDONLY | fs.constants.O_NOFOLLOW | fs.constants.O_NONBLOCK;
/** Make a new file and write it. */
export const writeFlags: number = fs.constants.O_WRONLY | fs.constants.O_CREAT | fs.constants.O_EXCL;
/**
 * As {@link writeFlags}, and a write returns when its bytes are durable: one call where a write and a sync would be two, each with a turn of
 * the event loop between. 0 elsewhere than on Linux: macOS means less by it than by a sync.
 */
export const durableWriteFlags: number = process.platform === "linux" ? writeFlags | fs.constants.O_DSYNC : 0;
/** As {@link writeFlags}, past the kernel's cache. 0 elsewhere than on Linux. */
export const directWriteFlags: number = process.platform === "linux" ? writeFlags | fs.constants.O_DIRECT : 0;
/** Both. */
export const durableDirectWriteFlags: number = directWriteFlags | durableWriteFlags;
/** Write more to an open file, through the cache; a write returns when its bytes are durable, or before. */
export const durableAppendFlags: number = fs.constants.O_WRONLY | (fs.constants.O_DSYNC ?? 0);
export const appendFlags: number = fs.constants.O_WRONLY;
/** Make a file unless it is there; a symbolic link in its place is not followed. */
export const touchFlags: number = fs.constants.O_WRONLY | fs.constants.O_CREAT | fs.constants.O_NOFOLLOW;
const directoryFlags = fs.constants.O_RDONLY | fs.constants.O_DIRECTORY;

/** Most buffers one writev(2) takes (IOV_MAX on Linux and macOS). */
export const vectorsMax = 1024;
/** Most bytes one write(2) takes on Linux, less a page. */
export const writeBytesMax = 0x7ffff000;

function settled(resolve: () => void, reject: (e: unknown) => void): (e: unknown) => void {
  return (e) => (e ? reject(e) : resolve());
}

/** open(2) */
export function openFile(path: string, flags: number): Promise<number> {
  return new Promise((resolve, reject) => fs.open(path, flags, 0o666, (e, fd) => (e ? reject(e) : resolve(fd))));
}

/** Whether {@link openAgainNow} can work: not where /proc is not mounted, as in a bare chroot. */
export function canOpenAgainNow(): boolean {
  return fs.existsSync("/proc/self/fd");
}

/** open(2) of a file that is open already, whatever its name is by now; so no thread is needed for it. */
export function openAgainNow(fd: number, flags: number): number {
  return fs.openSync(`/proc/self/fd/${fd}`, flags);
}

/** lstat(2), undefined when there is nothing, or nothing that we may see: the call that uses it says what is wrong. */
export function lookNow(path: string): fs.Stats | undefined {
  try {
    return fs.lstatSync(path, { throwIfNoEntry: false });
  } catch {
    return undefined;
  }
}

/** close(2) */
export function closeFile(fd: number): Promise<void> {
  return new Promise((resolve, reject) => fs.close(fd, settled(resolve, reject)));
}

/** open(2) of a directory, to sync it; undefined when there is none. Its name has just been used, so no thread is needed for it. */
export function openDirectoryNow(path: string): number | undefined {
  try {
    return fs.openSync(path, directoryFlags);
  } catch (e) {
    if ((e as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw e;
  }
}

/** close(2) of a file that holds nothing to write back: no thread is needed for it, and if it fails nothing is lost. */
export function closeFileNow(fd: number): void {
  try {
    fs.closeSync(fd);
  } catch {
    // The descriptor is gone all the same.
  }
}

/** fdatasync(2) */
export function syncData(fd: number): Promise<void> {
  return new Promise((resolve, reject) => fs.fdatasync(fd, settled(resolve, reject)));
}

/** fsync(2) */
export function syncAll(fd: number): Promise<void> {
  return new Promise((resolve, reject) => fs.fsync(fd, settled(resolve, reject)));
}

/** link(2) */
export function linkFile(from: string, to: string): Promise<void> {
  return new Promise((resolve, reject) => fs.link(from, to, settled(resolve, reject)));
}

/** rename(2) */
export function renameFile(from: string, to: string): Promise<void> {
  return new Promise((resolve, reject) => fs.rename(from, to, settled(resolve, reject)));
}

/** unlink(2) */
export function unlinkFile(path: string): Promise<void> {
  return new Promise((resolve, reject) => fs.unlink(path, settled(resolve, reject)));
}

/** unlink(2) without a thread: for those who know that it is short. */
export function unlinkFileNow(path: string): void {
  fs.unlinkSync(path);
}

/** mkdir(2) */
export function makeDirectory(path: string): Promise<void> {
  return new Promise((resolve, reject) => fs.mkdir(path, settled(resolve, reject)));
}

/** rmdir(2) */
export function removeDirectory(path: string): Promise<void> {
  return new Promise((resolve, reject) => fs.rmdir(path, settled(resolve, reject)));
}

/** rmdir(2) without a thread. */
export function removeDirectoryNow(path: string): void {
  fs.rmdirSync(path);
}

/** lstat(2) */
export function statPath(path: string): Promise<fs.Stats> {
  return new Promise((resolve, reject) => fs.lstat(path, (e, stats) => (e ? reject(e) : resolve(stats))));
}

/** fstat(2) */
export function statFile(fd: number): Promise<fs.Stats> {
  return new Promise((resolve, reject) => fs.fstat(fd, (e, stats) => (e ? reject(e) : resolve(stats))));
}

/** Whether `path` is the open file, without a thread. Not where it cannot be seen. */
export function isSameFileNow(fd: number, path: string): boolean {
  try {
    const found = fs.lstatSync(path);
    const own = fs.fstatSync(fd);
    return found.ino === own.ino && found.dev === own.dev;
  } catch {
    return false;
  }
}

/** The entries of a directory, in no order. */
export function readDirectory(path: string): Promise<fs.Dirent[]> {
  return new Promise((resolve, reject) =>
    fs.readdir(path, { withFileTypes: true }, (e, entries) => (e ? reject(e) : resolve(entries))),
  );
}

/** Reads into `target` from `position` until it is full or the file ends; resolves to the bytes read. */
export async function readFully(fd: number, target: Uint8Array, position: number): Promise<number> {
  let done = 0;
  while (done < target.byteLength) {
    const read = await readOnce(fd, target, done, target.byteLength - done, position + done);
    if (read === 0) break;
    done += read;
  }
  return done;
}

/** One read(2); may be short. */
export function readOnce(
  fd: number,
  target: Uint8Array,
  offset: number,
  length: number,
  position: number,
): Promise<number> {
  return new Promise((resolve, reject) =>
    fs.read(fd, target, offset, Math.min(length, 0x7ffff000), position, (e, read) => (e ? reject(e) : resolve(read))),
  );
}

/** Writes every part but their first `from` bytes, one after another and each where it belongs, without joining them; continues after short writes. */
export async function writeFully(fd: number, parts: readonly Uint8Array[], from = 0): Promise<void> {
  let position = from;
  let at = 0;
  /** Of `parts[at]`: how much of it is written. */
  let skip = from;
  for (;;) {
    while (at < parts.length && skip >= (parts[at] as Uint8Array).byteLength)
      skip -= (parts[at++] as Uint8Array).byteLength;
    if (at === parts.length) return;
    const vector = parts.slice(at, at + vectorsMax);
    if (skip > 0) vector[0] = (vector[0] as Uint8Array).subarray(skip);
    const written = await writeOnce(fd, vector, position);
    position += written;
    skip += written;
  }
}

/** One pwritev(2); may be short. */
export function writeOnce(fd: number, vector: Uint8Array[], position: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const done = (e: unknown, written: number): void => (e ? reject(e) : resolve(written));
    if (vector.length > 1) return fs.writev(fd, vector, position, done);
    const [only] = vector as [Uint8Array];
    fs.write(fd, only, 0, only.byteLength, position, done);
  });
}
