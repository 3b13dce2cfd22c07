/** Bodies: one buffer or several, never joined unless a backend must. */
import type { Body } from "./object-store.js";

/** The parts of a body. */
export function bodyParts(body: Body): readonly Uint8Array[] {
  return body instanceof Uint8Array ? [body] : body;
}

/** How many bytes a body holds. */
export function bodyBytes(body: Body): number {
  if (body instanceof Uint8Array) return body.byteLength;
  let bytes = 0;
  for (const part of body) bytes += part.byteLength;
  return bytes;
}

/** One fresh array with the body's bytes; the caller's buffers stay the caller's. */
export function copyBody(body: Body): Uint8Array {
  const joined = new Uint8Array(bodyBytes(body));
  let offset = 0;
  for (const part of bodyParts(body)) {
    joined.set(part, offset);
    offset += part.byteLength;
  }
  return joined;
}
