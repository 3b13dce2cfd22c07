/**
 * Large objects go past the kernel's cache. Copying them into it is most of what a durable write costs, for bytes that the next gigabytes push
 * out again: a training reads them on other machines, and once.
 *
 * O_DIRECT takes whole blocks from aligned memory only. So the bytes pass through an area of such memory, and what is left at the end goes through
 * the cache: batches end with a whole block, and have nothing left. Where the file system refuses direct writes, everything goes through the cache.
 */
import {
  appendFlags,
  canOpenAgainNow,
  closeFileNow,
  directWriteFlags,
  durableAppendFlags,
  durableDirectWriteFlags,
  openAgainNow,
  unlinkFile,
  vectorsMax,
  writeFully,
  writeOnce,
} from "./calls.js";
import { errno } from "./file-failure.js";

/** A multiple of what devices ask for. Where one asks for more, it refuses the first write. */
const blockBytes = 4096;
/** Bytes of one write at most. */
const areaBytes = 4 * 1024 * 1024;

/** Writes past the cache, as many at a time as there are areas. */
export class DirectWrites {
  readonly #atOnce: number;
  #areas: Uint8Array[] | undefined;
  #isRefused = false;

  constructor(atOnce: number) {
    this.#atOnce = atOnce;
  }

  /** How to open a new file of so many bytes; undefined where direct writes are refused. */
  flags(bytes: number): number | undefined {
    if (this.#areas === undefined) {
      // What one direct write does not take goes through a second descriptor.
      this.#areas = canOpenAgainNow() ? alignedAreas(this.#atOnce) : [];
      this.#isRefused ||= this.#areas.length === 0;
    }
    if (this.#isRefused) return undefined;
    return isOneWrite(bytes) ? durableDirectWriteFlags : directWriteFlags;
  }

  /** A new file of so many bytes, from `open`, for direct writes where they are possible and with `flags` elsewhere. */
  async open(
    path: string,
    bytes: number,
    flags: number,
    open: (flags: number) => Promise<number>,
  ): Promise<{ fd: number; isDirect: boolean }> {
    const direct = this.flags(bytes);
    if (direct === undefined) return { fd: await open(flags), isDirect: false };
    try {
      return { fd: await open(direct), isDirect: true };
    } catch (e) {
      if (errno(e) !== "EINVAL") throw e;
      // open(2): the file may be there all the same.
      this.#isRefused = true;
      await unlinkFile(path).catch(() => {});
      return { fd: await open(flags), isDirect: false };
    }
  }

  /**
   * Writes as much of `parts` as it can to the new file `target`, opened with {@link flags}; resolves to how much that was. All of it, at `bytes`, is
   * durable if {@link isOneWrite}.
   */
  async write(target: number, parts: readonly Uint8Array[]): Promise<number> {
    const area = this.#areas?.pop();
    if (!area) return 0;
    try {
      return await writeBlocks(target, parts, area);
    } catch (e) {
      // Whatever is wrong, the ordinary write that follows says it. EINVAL is a refusal of all direct writes.
      if (errno(e) === "EINVAL") this.#isRefused = true;
      return 0;
    } finally {
      this.#areas?.push(area);
    }
  }
}

/** Whether one write takes all of an object of so many bytes. */
export function isOneWrite(bytes: number): boolean {
  return bytes <= areaBytes && bytes % blockBytes === 0;
}

/** Writes all but the first `done` bytes of `parts` through the cache; resolves to whether they, and what was there before, are durable. */
export async function writeRest(target: number, parts: readonly Uint8Array[], done: number): Promise<boolean> {
  const rest = parts.reduce((sum, part) => sum + part.byteLength, -done);
  const isDurable = rest < areaBytes && parts.length <= vectorsMax;
  // The same file once more. Under its name there may be another by now, and that one must not be written.
  const fd = openAgainNow(target, isDurable ? durableAppendFlags : appendFlags);
  try {
    await writeFully(fd, parts, done);
    // open(2): a durable write ends as if fdatasync(2) followed, so it takes what was written directly along.
    return isDurable && rest > 0;
  } finally {
    closeFileNow(fd);
  }
}

/** Writes the whole blocks of `parts`; resolves to how many bytes that were, fewer when the disk took fewer. */
async function writeBlocks(fd: number, parts: readonly Uint8Array[], area: Uint8Array): Promise<number> {
  let done = 0;
  for (const filled of fill(area, parts)) {
    const blocks = filled - (filled % blockBytes);
    const written = blocks === 0 ? 0 : await writeOnce(fd, [area.subarray(0, blocks)], done);
    done += written - (written % blockBytes);
    if (written < area.byteLength) break;
  }
  return done;
}

/** Copies `parts` into `area`, as much as it holds at a time; yields how much it holds, each time to be taken out before the next. */
function* fill(area: Uint8Array, parts: readonly Uint8Array[]): Generator<number> {
  let filled = 0;
  for (const part of parts) {
    for (let at = 0; at < part.byteLength; ) {
      const took = Math.min(part.byteLength - at, area.byteLength - filled);
      area.set(at === 0 && took === part.byteLength ? part : part.subarray(at, at + took), filled);
      at += took;
      filled += took;
      if (filled < area.byteLength) continue;
      yield filled;
      filled = 0;
    }
  }
  if (filled > 0) yield filled;
}

/** Of what the platform has and its types here do not tell. */
declare const WebAssembly: { readonly Memory: new (size: { initial: number }) => { readonly buffer: ArrayBuffer } };

/** WebAssembly memory is the one kind in JavaScript that begins at a page. None where the process may not have so much address space. */
function alignedAreas(count: number): Uint8Array[] {
  if (directWriteFlags === 0) return [];
  try {
    const { buffer } = new WebAssembly.Memory({ initial: (count * areaBytes) / 65_536 });
    return Array.from({ length: count }, (_, i) => new Uint8Array(buffer, i * areaBytes, areaBytes));
  } catch {
    return [];
  }
}
