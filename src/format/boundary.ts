/** Boundary markers: `boundary/n` says that manifest versions up to `upTo` may be gone. n = 1, 2, 3…, never deleted. */
import { shown } from "../errors.js";
import { asVersion, type Version } from "./brand.js";
import { openJson, sealJson } from "./json-object.js";
import { asInteger, corrupt } from "./shape.js";

/** One marker of the boundary chain. */
export interface BoundaryMarker {
  readonly n: number;
  readonly upTo: Version;
}

export function encodeBoundary(namespace: string, marker: BoundaryMarker): Uint8Array {
  return sealJson("boundary", namespace, marker);
}

export function decodeBoundary(bytes: Uint8Array, where: string, namespace: string, n: number): BoundaryMarker {
  const fields = openJson(bytes, where, "boundary", namespace);
  if (fields["n"] !== n) corrupt(where, `it says number ${shown(fields["n"])}`);
  return { n, upTo: asVersion(asInteger(fields["upTo"], where, "upTo")) };
}
