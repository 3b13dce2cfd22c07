/**
 * Boundary markers: `boundary/n` says that manifest versions up to `upTo` may be gone. n = 1, 2, 3…, never deleted. The last one of a
 * namespace that was deleted is above every version and says so: the chain is what stays of it, for a process that comes back from a pause.
 */
import { shown } from "../errors.js";
import { asVersion, type Version } from "./brand.js";
import { openJson, sealJson } from "./json-object.js";
import { asFlag, asInteger, corrupt } from "./shape.js";

/** One marker of the boundary chain. */
export interface BoundaryMarker {
  readonly n: number;
  readonly upTo: Version;
  /** True in the last one of a deleted namespace. */
  readonly deleted?: true | undefined;
}

/** What the last marker of a deleted namespace announces: every version there can be. */
export const everyVersion: Version = asVersion(Number.MAX_SAFE_INTEGER);

export function encodeBoundary(namespace: string, marker: BoundaryMarker): Uint8Array {
  return sealJson("boundary", namespace, marker, marker.deleted ? 2 : 1);
}

export function decodeBoundary(bytes: Uint8Array, where: string, namespace: string, n: number): BoundaryMarker {
  const fields = openJson(bytes, where, "boundary", namespace);
  if (fields["n"] !== n) corrupt(where, `it says number ${shown(fields["n"])}`);
  const upTo = asVersion(asInteger(fields["upTo"], where, "upTo"));
  return asFlag(fields["deleted"] ?? false, where, "deleted") ? { n, upTo, deleted: true } : { n, upTo };
}
