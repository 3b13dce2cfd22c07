/** Errno -> what happened, to what, what to do. */
import { BatchWeaveError, type ErrorCode } from "../../errors.js";

/** The errno name of a failed system call, or "" for any other value (abort reasons, our own errors). */
export function errno(e: unknown): string {
  if (!(e instanceof Error) || !("syscall" in e) || !("code" in e)) return "";
  return typeof e.code === "string" ? e.code : "";
}

/** A promise that tolerates some errnos: resolves to undefined for those. */
export function tolerate<T>(call: Promise<T>, ...codes: readonly string[]): Promise<T | undefined> {
  return call.catch((e: unknown) => {
    if (codes.includes(errno(e))) return undefined;
    throw e;
  });
}

const notAFile = [
  "it is a pipe or a socket, not a file",
  "let nothing but BatchWeave write below the root, and remove it",
] as const;

const table: Record<string, readonly [code: ErrorCode, what: string, remedy: string]> = {
  ESPIPE: ["UNSAFE_STORE", ...notAFile],
  ENXIO: ["UNSAFE_STORE", ...notAFile],
  ENOSPC: ["STORE_FULL", "the disk is full", "free space (or inodes) on that file system, then try again"],
  EDQUOT: ["STORE_FULL", "the disk quota is used up", "raise the quota or free space, then try again"],
  EFBIG: ["STORE_FULL", "the file would be larger than this process may write", "raise `ulimit -f`, then try again"],
  EACCES: [
    "STORE_DENIED",
    "permission denied",
    "give this user read, write and search permission on the folder and everything in it",
  ],
  EPERM: [
    "STORE_DENIED",
    "operation not permitted",
    "give this user permission on the folder, and check that its file system supports hard links",
  ],
  EROFS: ["STORE_DENIED", "the file system is read-only", "mount it read-write or choose another folder"],
  EMFILE: ["STORE_UNAVAILABLE", "this process has too many open files", "raise `ulimit -n` or lower the concurrency"],
  ENFILE: ["STORE_UNAVAILABLE", "this machine has too many open files", "raise fs.file-max"],
  ENOENT: [
    "STORE_UNAVAILABLE",
    "its folder or temporary file was removed meanwhile",
    "let nothing but BatchWeave delete below the root, then try again",
  ],
  ENOTDIR: [
    "INVALID_ARGUMENT",
    "part of the path is a file, not a folder",
    "choose a key that does not go through another object",
  ],
  EISDIR: [
    "INVALID_ARGUMENT",
    "there is a folder under this name",
    "choose a key that is not the folder of another object",
  ],
  ENOTEMPTY: [
    "INVALID_ARGUMENT",
    "there is a folder under this name",
    "choose a key that is not the folder of another object",
  ],
  ENAMETOOLONG: [
    "INVALID_ARGUMENT",
    "a name is longer than the file system allows",
    "keep every segment of a key within 255 bytes",
  ],
  EXDEV: [
    "STORE_UNAVAILABLE",
    "part of the root is on another file system",
    "keep the whole root on one file system (no mounts or links to other disks inside it)",
  ],
};

/**
 * Turns the failure of a system call into a {@link BatchWeaveError}; anything else (an abort reason, our own error) comes back as it is.
 */
export function fileError(e: unknown, doing: string, path: string): unknown {
  const code = errno(e);
  if (code === "") return e;
  const row =
    table[code] ??
    (["STORE_UNAVAILABLE", `the file system answered ${code}`, "check the disk or mount, then try again"] as const);
  return new BatchWeaveError(row[0], `Cannot ${doing} ${path}: ${row[1]}; ${row[2]}.`, { path, errno: code }, e);
}
