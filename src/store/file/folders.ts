/** Finding folders by a file that they hold, whatever their names are: names of folders above a namespace need not be keys. */
import { readDirectory } from "./calls.js";
import { tolerate } from "./file-failure.js";

/**
 * Paths of the folders at or below `root` that hold a file `name`, in the order of their names. Of such a folder the ones in `closed` are not
 * entered. Links are never followed, and what cannot be read by us holds nothing for us.
 */
export async function* foldersHolding(
  root: string,
  name: string,
  closed: readonly string[],
  signal?: AbortSignal,
): AsyncGenerator<string> {
  const open = [root];
  for (let folder = open.pop(); folder !== undefined; folder = open.pop()) {
    signal?.throwIfAborted();
    const entries = (await tolerate(readDirectory(folder), "ENOENT", "ENOTDIR", "EACCES")) ?? [];
    const isHolding = entries.some((entry) => entry.name === name && entry.isFile());
    if (isHolding) yield folder;
    const below = entries
      .filter((entry) => entry.isDirectory() && !(isHolding && closed.includes(entry.name)))
      .map((entry) => entry.name)
      .sort();
    // A stack: the first of them is looked at next.
    for (const one of below.reverse()) open.push(folder === "/" ? `/${one}` : `${folder}/${one}`);
  }
}
