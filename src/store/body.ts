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

/**
 * The same bytes in as few parts as can be had without a copy: parts that lie one after another in the same memory are one. A producer that cuts a batch into
 * slices has it so, and every part costs a call into the hash and one into the socket.
 */
export function joinAdjacent(body: Body): Body {
  if (body instanceof Uint8Array || body.length < 2) return body;
  const joined: Uint8Array[] = [];
  let begun = 0;
  for (let i = 1; i <= body.length; i++) {
    const [last, next] = [body[i - 1] as Uint8Array, body[i]];
    if (next && last.buffer === next.buffer && last.byteOffset + last.byteLength === next.byteOffset) continue;
    const first = body[begun] as Uint8Array;
    const end = last.byteOffset + last.byteLength;
    joined.push(i - begun === 1 ? first : new Uint8Array(first.buffer, first.byteOffset, end - first.byteOffset));
    begun = i;
  }
  return joined;
}
