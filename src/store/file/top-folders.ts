/** The folders of a root: a link in the place of one would show another folder's objects, or none at all, and is refused. */
import { BatchWeaveError } from "../../errors.js";
import { lookNow } from "./calls.js";

/** Looks at each folder once, when it is first used. A namespace has half a dozen. */
export class TopFolders {
  readonly #root: string;
  readonly #known = new Set<string>();

  constructor(root: string) {
    this.#root = root;
  }

  /** Refuses a key, or a prefix of keys, that leads through a link, a pipe or a socket. */
  assert(key: string): void {
    const segments = key.split("/").slice(0, -1);
    // A namespace's folders are in the root, or in the folder of its life.
    const depth = Math.min(segments.length, segments[0] === "life" ? 3 : 1);
    for (let i = 1; i <= depth; i++) this.#look(segments.slice(0, i).join("/"));
  }

  #look(folder: string): void {
    if (this.#known.has(folder)) return;
    const path = `${this.#root}/${folder}`;
    const found = lookNow(path);
    if (found?.isDirectory()) this.#known.add(folder);
    // A file there is an object, and whoever goes through it is told so.
    else if (found && !found.isFile())
      throw new BatchWeaveError(
        "UNSAFE_STORE",
        `Cannot use ${path}: it is a link or a pipe where a folder must be; put the folder itself there.`,
        { path },
      );
  }
}
