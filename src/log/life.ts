/** A life: one namespace between its creation and its deletion, in a folder of the place that no other life shares. */
import { BatchWeaveError } from "../errors.js";
import { lifeFolder, livesPrefix } from "../format/index.js";
import { type ObjectStore, withPrefix } from "../store/index.js";

/** The objects of one life, where `place` is the store that its `namespace.json` is in. */
export function lifeStore(place: ObjectStore, life: { readonly format: 1 | 2; readonly uuid: string }): ObjectStore {
  return withPrefix(place, lifeFolder(life));
}

/** DELETED, for every handle of a namespace that was deleted. `uri` may be that of its life or its place. */
export function deletedError(uri: string, uuid: string): BatchWeaveError {
  const place = uri.replace(`/${livesPrefix}${uuid}`, "");
  return new BatchWeaveError(
    "DELETED",
    `The namespace ${uuid} at ${place} was deleted: nothing is read from it or committed to it any more. If the deletion was interrupted, finish it with \`batchweave delete ${place}\`; if another namespace was made there since, open that.`,
    { uri: place, namespace: uuid },
  );
}
