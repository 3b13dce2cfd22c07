/**
 * A disk whose power can be cut: an ext4 file system on a loop device over a file, which lies in another such file system. The kernel's own
 * shutdown call (as the file system tests of Linux use it) ends a file system at once and writes nothing more. Cut inside, the page cache is
 * lost: what was not synced. Cut outside, so is what the disk was sent and never told to flush. Then both are mounted again, which replays journals.
 */
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

/** What a cut takes: what was not written to the disk, or also what the disk had in its own cache. */
export type Cut = "page cache" | "disk cache";

/** FS_IOC_SHUTDOWN without a flush of the journal. */
const shutdown = `
import fcntl, os, struct, sys
fcntl.ioctl(os.open(sys.argv[1], os.O_RDONLY), 0x8004587D, struct.pack("I", 2))`;

const innerMb = 1_024;
const outerMb = 1_280;

/** Status of a run that this machine does not allow. */
export const skippedStatus = 77;

/** Why no disk can be cut here, in one sentence; undefined when one can. */
export function whyNoPower(): string | undefined {
  if (process.platform !== "linux") return "a power cut needs Linux";
  if (process.getuid?.() !== 0) return "a power cut needs root, to mount a disk of its own";
  for (const tool of ["mkfs.ext4", "mount", "umount", "unshare", "python3"])
    if (spawnSync("sh", ["-c", `command -v ${tool}`]).status !== 0) return `a power cut needs ${tool}`;
  if (spawnSync("unshare", ["--mount", "true"]).status !== 0) return "this machine allows no mounts of its own";
  return undefined;
}

/** A disk in `folder`. Mounts vanish with the last process of this mount namespace, however it ends. */
export class PowerDisk {
  /** Where its files are. */
  readonly path: string;
  readonly #folder: string;
  readonly #outer: string;

  constructor(folder: string) {
    this.#folder = folder;
    this.path = join(folder, "disk");
    this.#outer = join(folder, "outer");
    mkdirSync(this.path);
    mkdirSync(this.#outer);
    this.#make(join(folder, "outer.img"), outerMb);
    this.#mount(join(folder, "outer.img"), this.#outer);
    this.#make(this.#image, innerMb);
    // Whole, so that what a cut takes are the blocks that were written since, not the file.
    execFileSync("sync", ["-f", this.#outer]);
    this.#mount(this.#image, this.path);
  }

  /** Everything written so far survives. */
  sync(): void {
    execFileSync("sync", ["-f", this.path]);
  }

  /** From here on nothing reaches the disk. Everybody who has it open must be ended before {@link restore}. */
  cut(kind: Cut): void {
    execFileSync("python3", ["-c", shutdown, kind === "page cache" ? this.path : this.#outer]);
  }

  /** Mounts what is left. */
  async restore(): Promise<void> {
    await this.unmount();
    this.#mount(join(this.#folder, "outer.img"), this.#outer);
    this.#mount(this.#image, this.path);
  }

  /** A process that was just killed may hold it for a moment. */
  async unmount(): Promise<void> {
    for (const path of [this.path, this.#outer])
      for (let tries = 100; ; tries--) {
        const { status, stderr } = spawnSync("umount", [path], { encoding: "utf8" });
        if (status === 0 || stderr.includes("not mounted")) break;
        if (tries === 0) throw new Error(stderr.trim());
        await new Promise((resolve) => setTimeout(resolve, 100));
      }
  }

  get #image(): string {
    return join(this.#outer, "inner.img");
  }

  #make(image: string, mb: number): void {
    execFileSync("truncate", ["-s", `${mb}M`, image]);
    execFileSync("mkfs.ext4", ["-q", "-F", image]);
  }

  #mount(image: string, path: string): void {
    execFileSync("mount", ["-o", "loop", image, path]);
  }
}
