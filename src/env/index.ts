/**
 * env: time and chance.
 *
 * Owns: clock, calendar, timers, random numbers, ids, and the end of waits that are given up ({@link onAbort}). The only room that may touch `Date`, `performance`, `setTimeout`, `crypto`.
 * May import: nothing of ours.
 * Promises: everything else receives an {@link Env}; the simulator passes a virtual one and the very same code runs on it.
 */
import { randomBytes } from "node:crypto";
import { onAbort } from "./abort-listeners.js";

export { onAbort } from "./abort-listeners.js";
export { isoDate, parseDate } from "./calendar.js";

/** Time and chance, always passed in. */
export interface Env {
  /** Wall clock in ms. For people and for choosing candidates; never decides safety. */
  now(): number;
  /** Monotonic ms, for durations. */
  monotonic(): number;
  /** Resolves after `delayMs`; rejects with the signal's reason when aborted. */
  sleep(delayMs: number, signal?: AbortSignal): Promise<void>;
  /** Uniform in [0, 1). */
  random(): number;
  /** 60 random bits as 12 characters of `0-9a-v`: incarnations, commit ids. */
  id(): string;
  /** A random RFC 4122 version 4 uuid. */
  uuid(): string;
}

const alphabet = "0123456789abcdefghijklmnopqrstuv";

/** 12 characters of 5 bits from 12 bytes. */
export function idFromBytes(bytes: Uint8Array): string {
  let out = "";
  for (let i = 0; i < 12; i++) out += alphabet[(bytes[i] as number) & 31];
  return out;
}

/** A version 4 uuid from 16 bytes. */
export function uuidFromBytes(bytes: Uint8Array): string {
  const b = Uint8Array.from(bytes);
  b[6] = ((b[6] as number) & 0x0f) | 0x40;
  b[8] = ((b[8] as number) & 0x3f) | 0x80;
  const hex = Buffer.from(b).toString("hex");
  return `${hex.slice(0, 8)}-${hex.slice(8, 12)}-${hex.slice(12, 16)}-${hex.slice(16, 20)}-${hex.slice(20, 32)}`;
}

/** The machine's own clock and entropy. */
export const systemEnv: Env = {
  now: () => Date.now(),
  monotonic: () => performance.now(),
  sleep(delayMs, signal) {
    return new Promise((resolve, reject) => {
      if (signal?.aborted) return reject(signal.reason);
      // A timer takes a millisecond at least; a call that only lets others have their turn is not to wait for one.
      if (delayMs === 0) {
        setImmediate(resolve);
        return;
      }
      const timer = setTimeout(() => {
        unlisten?.();
        resolve();
      }, delayMs);
      const unlisten =
        signal &&
        onAbort(signal, () => {
          clearTimeout(timer);
          reject(signal.reason);
        });
    });
  },
  random: () => Math.random(),
  id: () => idFromBytes(randomBytes(12)),
  uuid: () => uuidFromBytes(randomBytes(16)),
};
