/** Removing many names that nothing depends on, at the least cost to those who work beside it. */
import { removeDirectory, removeDirectoryNow, unlinkFile, unlinkFileNow } from "./calls.js";
import { errno } from "./file-failure.js";

/** So long the event loop may be held up at a time. */
const sliceMs = 2;
/** After a call that took longer than this one, so many go through the thread pool: a network file system, or very large files. */
const shortCallMs = 1;
const patientCalls = 64;

/**
 * Removes one after another. Going through Node's thread pool costs more processor time than unlink(2) of a batch itself, and with a reclaimer
 * that time is taken from producers on the same machine: so short calls are made right here, and every two milliseconds one goes through the
 * pool, which lets all other calls have their turn.
 */
export class QuietRemoval {
  readonly #monotonic: () => number;
  #sliceBegunMs = 0;
  #patient = 0;

  constructor(monotonic: () => number) {
    this.#monotonic = monotonic;
    this.#sliceBegunMs = monotonic();
  }

  /** unlink(2). A name that is not there, or no file, is as good. */
  async unlink(path: string): Promise<void> {
    await this.#call(path, unlinkFileNow, unlinkFile, ["ENOENT", "ENOTDIR", "EISDIR"]);
  }

  /** rmdir(2). False: it stays, because it is not empty or not ours to remove. */
  async removeDirectory(path: string): Promise<boolean> {
    try {
      await this.#call(path, removeDirectoryNow, removeDirectory, ["ENOENT"]);
      return true;
    } catch (e) {
      if (errno(e) === "") throw e;
      return false;
    }
  }

  async #call(
    path: string,
    now: (path: string) => void,
    later: (path: string) => Promise<void>,
    tolerated: readonly string[],
  ): Promise<void> {
    const begunMs = this.#monotonic();
    try {
      if (this.#patient > 0 || begunMs - this.#sliceBegunMs > sliceMs) {
        if (this.#patient > 0) this.#patient--;
        await later(path);
        this.#sliceBegunMs = this.#monotonic();
        return;
      }
      now(path);
      if (this.#monotonic() - begunMs > shortCallMs) this.#patient = patientCalls;
    } catch (e) {
      if (!tolerated.includes(errno(e))) throw e;
    }
  }
}
