/** Folders for tests, gone afterwards. */
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export function makeFolder(): string {
  return mkdtempSync(join(tmpdir(), "batchweave-store-"));
}

export function removeFolder(path: string): void {
  rmSync(path, { recursive: true, force: true });
}

/** Why this process cannot mount a file system, or undefined when it can. */
export function whyNoMounts(): string | undefined {
  if (process.platform !== "linux") return "mounting a small tmpfs needs Linux";
  if (process.getuid?.() !== 0) return "mounting a small tmpfs needs root";
  const folder = makeFolder();
  try {
    mountTmpfs(folder, "size=64k");
    unmount(folder);
    return undefined;
  } catch (e) {
    return `this machine refuses to mount a tmpfs (${(e as Error).message.split("\n")[0]})`;
  } finally {
    removeFolder(folder);
  }
}

export function mountTmpfs(folder: string, options: string): void {
  execFileSync("mount", ["-t", "tmpfs", "-o", options, "tmpfs", folder], { stdio: "pipe" });
}

export function remount(folder: string, options: string): void {
  execFileSync("mount", ["-o", `remount,${options}`, folder], { stdio: "pipe" });
}

export function unmount(folder: string): void {
  execFileSync("umount", [folder], { stdio: "pipe" });
}
