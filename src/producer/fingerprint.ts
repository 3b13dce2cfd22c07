/** Tells, almost for free, whether a buffer is still what it was. */

const windows = 3;
const windowBytes = 16;

/**
 * FNV-1a of a few windows spread evenly over `bytes`, its two ends among them. It is there to find a caller who fills a buffer again while it
 * is still being uploaded, which changes all of it. Every byte has a checksum from its acceptance on, but computing those once more after
 * each upload would cost as much as computing them did.
 */
export function fingerprint(bytes: Uint8Array): number {
  const step = Math.max(0, bytes.length - windowBytes) / (windows - 1);
  let hash = 0x811c9dc5;
  for (let window = 0; window < windows; window++) {
    const start = Math.floor(window * step);
    const end = Math.min(bytes.length, start + windowBytes);
    for (let i = start; i < end; i++) hash = Math.imul(hash ^ (bytes[i] as number), 0x01000193);
  }
  return hash;
}
