/** The six calls of an object store, as the simulator counts, delays and breaks them. */

/** Every kind of call, in the order in which traces number them. */
export const callKinds = ["create", "put", "get", "getRange", "list", "delete"] as const;

/** One of {@link callKinds}. */
export type CallKind = (typeof callKinds)[number];

/** True for calls that change the store. */
export function isWrite(kind: CallKind): boolean {
  return kind === "create" || kind === "put" || kind === "delete";
}
