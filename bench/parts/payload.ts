/** Seeded bytes that do not compress. */

/** `count` buffers of `bytes` each, the same for the same seed. */
export function makePayloads(count: number, bytes: number, seed: number): Uint8Array[] {
  let state = (seed * 2_654_435_761 + 1) >>> 0;
  return Array.from({ length: count }, () => {
    const payload = Buffer.allocUnsafeSlow(bytes);
    const words = new Uint32Array(payload.buffer, 0, bytes >>> 2);
    for (let i = 0; i < words.length; i++) {
      state ^= state << 13;
      state ^= state >>> 17;
      state ^= state << 5;
      words[i] = state;
    }
    payload.fill(0x5a, words.length * 4);
    return new Uint8Array(payload.buffer);
  });
}

/** Cuts a payload into `count` slices of nearly equal length, without copying. */
export function cut(payload: Uint8Array, count: number): Uint8Array[] {
  return Array.from({ length: count }, (_, i) =>
    payload.subarray(Math.floor((payload.length * i) / count), Math.floor((payload.length * (i + 1)) / count)),
  );
}
