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
    // A namespace's folders are in the root, or in the folder of its life.
    const depth = key.startsWith("life/") ? 3 : 1;
    let end = key.indexOf("/");
    for (let i = 1; i <= depth && end >= 0; i++, end = key.indexOf("/", end + 1)) this.#look(key.slice(0, end));
  }

  #look(folder: string): void {
    if (this.#known.has(folder)) return;
    const path = `${this.#root}/${folder}`;
    const found = lookNow(path);
    if (found?.isDirectory()) this.#known.add(folder);
    // A file there is an object, and a call that goes through it is told so.
    else if (found && !found.isFile())
      throw new BatchWeaveError(
        "UNSAFE_STORE",
        `Cannot use ${path}: it is a link or a pipe where a folder must be; put the folder itself there.`,
        { path },
      );
  }
}
