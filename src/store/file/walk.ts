/**
 * Keys of a directory tree in byte order of the whole key, reading no directory that cannot hold a wanted one.
 *
 * A directory sorts as its name with the slash: `a-` and `a.` come before everything in `a/`, `a0` after it, as in a flat store.
 */

import { isKeySegment } from "../key.js";
import { readDirectory } from "./calls.js";
import { tolerate } from "./file-failure.js";

/** How many sibling directories are read ahead. */
const readAheadMax = 8;

/** Which keys are wanted. */
interface KeyRange {
  readonly prefix: string;
  /** Only keys strictly after it. */
  readonly startAfter: string;
  readonly signal?: AbortSignal | undefined;
}

/** Appends to `keys`, in byte order, until it holds `count` or there are no more. */
export async function collectKeys(root: string, range: KeyRange, count: number, keys: string[]): Promise<void> {
  const folder = range.prefix.slice(0, range.prefix.lastIndexOf("/") + 1);
  // A prefix that goes through anything but valid segments matches no key, and must not lead out of the root.
  if (folder !== "" && !folder.slice(0, -1).split("/").every(isKeySegment)) return;
  await collectFrom(root, folder, await readEntries(root, folder, range), range, count, keys);
}

async function collectFrom(
  root: string,
  folder: string,
  entries: string[],
  range: KeyRange,
  count: number,
  keys: string[],
): Promise<void> {
  const ahead = new Map<string, Promise<string[]>>();
  const order = new SmallestFirst(entries, count);
  for (let entry = order.next(); entry !== undefined && keys.length < count; entry = order.next()) {
    if (!entry.endsWith("/")) {
      keys.push(folder + entry);
      continue;
    }
    range.signal?.throwIfAborted();
    for (const next of [entry, ...order.peek(Math.min(readAheadMax, count - keys.length) - 1)]) {
      if (!next.endsWith("/") || ahead.has(next)) continue;
      const read = readEntries(root, folder + next, range);
      read.catch(() => {}); // one that is never needed must not surface
      ahead.set(next, read);
    }
    const inside = await (ahead.get(entry) as Promise<string[]>);
    ahead.delete(entry);
    await collectFrom(root, folder + entry, inside, range, count, keys);
  }
}

/** The names in a folder that can lead to a wanted key, directories with a slash behind. A folder that is not there is empty. */
async function readEntries(root: string, folder: string, range: KeyRange): Promise<string[]> {
  const { prefix, startAfter } = range;
  const entries = (await tolerate(readDirectory(`${root}/${folder}`), "ENOENT", "ENOTDIR")) ?? [];
  const names: string[] = [];
  for (const entry of entries) {
    const isFolder = entry.isDirectory();
    // Temporary files, links, sockets and whatever else is no object of ours.
    if (!isKeySegment(entry.name) || !(isFolder || entry.isFile())) continue;
    const name = isFolder ? `${entry.name}/` : entry.name;
    const key = folder + name;
    if (!key.startsWith(prefix) && !(isFolder && prefix.startsWith(key))) continue;
    if (key <= startAfter && !(isFolder && startAfter.startsWith(key))) continue;
    names.push(name);
  }
  return names;
}

/** Gives strings in order, sorting only as many as are asked for: a page out of 100,000 names need not sort them all. */
class SmallestFirst {
  #rest: string[];
  #ready: string[] = [];
  #at = 0;
  readonly #count: number;

  constructor(all: string[], count: number) {
    this.#rest = all;
    this.#count = Math.max(64, count);
  }

  next(): string | undefined {
    this.#fill();
    return this.#ready[this.#at++];
  }

  /** Up to `count` of those that come next. */
  peek(count: number): string[] {
    this.#fill();
    return this.#ready.slice(this.#at, this.#at + Math.max(0, count));
  }

  #fill(): void {
    if (this.#at < this.#ready.length || this.#rest.length === 0) return;
    this.#at = 0;
    if (this.#rest.length <= 4 * this.#count) {
      this.#ready = this.#rest.sort();
      this.#rest = [];
      return;
    }
    let best: string[] = [];
    let bound: string | undefined;
    for (const text of this.#rest) {
      if (bound !== undefined && text > bound) continue;
      best.push(text);
      if (best.length < 4 * this.#count) continue;
      best = best.sort().slice(0, this.#count);
      bound = best[best.length - 1];
    }
    best = best.sort().slice(0, this.#count);
    const last = best[best.length - 1] as string;
    this.#ready = best;
    this.#rest = this.#rest.filter((text) => text > last);
  }
}
