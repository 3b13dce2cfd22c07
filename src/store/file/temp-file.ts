/** Temporary files: where objects are written before they get their name, and how the leftovers of killed processes go away. */
import { readFileSync, readlinkSync } from "node:fs";
import { join } from "node:path";
import type { Env } from "../../env/index.js";
import { closeFile, closeFileNow, isSameFileNow, readDirectory, statPath, unlinkFile } from "./calls.js";
import { tolerate } from "./file-failure.js";

/** Under the root. The `~` cannot occur in a key, so no key names it and no listing shows it, at whatever depth it lies. */
const tempDirectoryName = ".tmp~";

/** A leftover of another machine or container goes only at this age: whether its owner lives cannot be seen from here. */
const foreignAgeMaxMs = 24 * 60 * 60 * 1000;

/**
 * Which processes this one can tell dead from alive: those of the same boot and pid namespace. A folder may be shared by containers
 * or machines whose pids mean nothing here.
 */
function pidScope(instance: string): string {
  try {
    const boot = readFileSync("/proc/sys/kernel/random/boot_id", "utf8").slice(0, 8);
    const namespace = /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0];
    if (boot && namespace) return `${boot}_${namespace}`;
  } catch {
    // Not Linux, or /proc is hidden.
  }
  return `x${instance}`; // a scope of its own: no sweep judges these by pid
}

/** Names of temporary files of one opened store. */
export class TempFiles {
  readonly directory: string;
  readonly #scope: string;
  readonly #stem: string;
  #count = 0;

  constructor(root: string, env: Env) {
    const instance = env.id();
    this.directory = join(root, tempDirectoryName);
    this.#scope = pidScope(instance);
    this.#stem = `${this.directory}/${this.#scope}.${process.pid}.${instance}`;
  }

  /** A path that no other writer uses: the pid scope, the pid, a random part per opened store, a counter. */
  next(): string {
    return `${this.#stem}.${this.#count++}`;
  }

  /**
   * Removes what dead processes left behind: files whose owner was in our pid scope and is gone, and any that are older than a day.
   * Should a suspended owner wake up after that, its link(2) fails and nothing is written.
   */
  async sweep(now: number): Promise<number> {
    const entries = (await tolerate(readDirectory(this.directory), "ENOENT", "ENOTDIR", "EACCES")) ?? [];
    let removed = 0;
    for (const entry of entries) {
      const [scope, pid] = entry.name.split(".");
      const path = join(this.directory, entry.name);
      const ownerDead = scope === this.#scope && isDead(Number(pid));
      if (!ownerDead && !(await isOlder(path, now - foreignAgeMaxMs))) continue;
      // Sweeping is a courtesy: whatever cannot be removed stays, and stays invisible.
      await unlinkFile(path).then(
        () => removed++,
        () => {},
      );
    }
    return removed;
  }
}

/** A temporary file until it has its name or is dropped; or a file under its final name until it is whole. */
export class TempFile {
  readonly path: string;
  readonly #isInPlace: boolean;
  #fd: number | undefined;
  #isNamed = false;

  constructor(path: string, fd: number, isInPlace: boolean) {
    this.path = path;
    this.#fd = fd;
    this.#isInPlace = isInPlace;
  }

  async close(): Promise<void> {
    const fd = this.#fd;
    this.#fd = undefined;
    if (fd !== undefined) await closeFile(fd);
  }

  /** It was renamed: there is no temporary name left to remove. */
  named(): void {
    this.#isNamed = true;
  }

  /** Closes and unlinks. Never throws: a leftover is invisible, and a later sweep removes it. */
  async drop(): Promise<void> {
    const mustUnlink = !this.#isNamed && !(this.#isInPlace && this.#isReplaced());
    this.#isNamed = true;
    // Synced by now, or of no use any more.
    if (this.#fd !== undefined) closeFileNow(this.#fd);
    this.#fd = undefined;
    if (mustUnlink) await unlinkFile(this.path).catch(() => {});
  }

  /** Whether its name is another file's by now: a second put of the same object (hedging) was faster, and this one was given up. */
  #isReplaced(): boolean {
    return this.#fd !== undefined && !isSameFileNow(this.#fd, this.path);
  }
}

async function isOlder(path: string, thanMs: number): Promise<boolean> {
  const stats = await statPath(path).catch(() => undefined);
  return stats !== undefined && stats.mtimeMs < thanMs;
}

function isDead(pid: number): boolean {
  if (!Number.isInteger(pid) || pid <= 0) return false;
  try {
    process.kill(pid, 0);
    return false;
  } catch (e) {
    return (e as NodeJS.ErrnoException).code === "ESRCH";
  }
}
