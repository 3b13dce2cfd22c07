/** How long a store takes: distributions per kind of call, and the time that bytes need. */
import { type CallKind, callKinds } from "./call-kind.js";
import type { Rng } from "./random.js";

/** A way to draw durations in ms from one uniform number. */
export type Distribution = (uniform: number) => number;

/** What the simulated store asks. */
export interface LatencyModel {
  readonly name: string;
  /** Duration of one call without its bytes; Infinity for a request that is never answered. Always one draw. */
  sampleMs(kind: CallKind, rng: Rng): number;
  /** Bytes a ms that one connection moves. */
  readonly connectionBytesPerMs: number;
  /** Bytes a ms that one process moves over all its connections. */
  readonly processBytesPerMs: number;
}

/** Options of {@link latencyModel}. */
export interface LatencyOptions {
  readonly name: string;
  readonly read: Distribution;
  readonly write: Distribution;
  readonly list?: Distribution | undefined;
  /** Share of calls that take `tailMs` instead. */
  readonly tailRate?: number | undefined;
  readonly tailMs?: readonly [number, number] | undefined;
  /** Share of calls that are never answered. */
  readonly silentRate?: number | undefined;
  readonly connectionBytesPerMs?: number | undefined;
  readonly processBytesPerMs?: number | undefined;
}

/** Puts a model together. */
export function latencyModel(options: LatencyOptions): LatencyModel {
  const { read, write, list = read, tailRate = 0, tailMs = [1000, 5000], silentRate = 0 } = options;
  const byKind = new Map<CallKind, Distribution>(
    callKinds.map((kind) => [kind, kind === "list" ? list : kind === "get" || kind === "getRange" ? read : write]),
  );
  const special = tailRate + silentRate;
  return {
    name: options.name,
    // 90 MB/s is what one S3 connection gives; 10 Gbit/s what a modest machine has.
    connectionBytesPerMs: options.connectionBytesPerMs ?? 90_000,
    processBytesPerMs: options.processBytesPerMs ?? 1_250_000,
    sampleMs(kind, rng) {
      const u = rng.next();
      if (u >= special) return (byKind.get(kind) as Distribution)((u - special) / (1 - special));
      if (u < silentRate) return Number.POSITIVE_INFINITY;
      return tailMs[0] + ((u - silentRate) / tailRate) * (tailMs[1] - tailMs[0]);
    },
  };
}

/** Always the same. */
export function constant(ms: number): Distribution {
  return () => ms;
}

/** Lognormal by median and sigma. */
export function lognormal(medianMs: number, sigma: number): Distribution {
  return tabulated((z) => medianMs * Math.exp(sigma * z));
}

/** Through three measured percentiles: straight in (normal score, log ms), and on along the last line beyond p999. */
export function percentiles(p50Ms: number, p99Ms: number, p999Ms: number): Distribution {
  const body = Math.log(p99Ms / p50Ms) / z99;
  const tail = Math.log(p999Ms / p99Ms) / (z999 - z99);
  return tabulated((z) => (z <= z99 ? p50Ms * Math.exp(body * z) : p99Ms * Math.exp(tail * (z - z99))));
}

const z99 = 2.3263478740408408;
const z999 = 3.090232306167813;
const cells = 2048;
/** Beyond this the curve is too steep to interpolate. */
const tableEnd = 0.985;

/** A table of the quantile function: drawing then costs one multiplication instead of a logarithm and an exponential. */
function tabulated(atScore: (z: number) => number): Distribution {
  const table = new Float64Array(cells + 2);
  for (let i = 0; i <= cells + 1; i++) table[i] = atScore(normalScore(Math.min(Math.max(i / cells, 1e-4), 1 - 1e-9)));
  return (u) => {
    if (u > tableEnd) return atScore(normalScore(Math.min(u, 1 - 1e-9)));
    const position = u * cells;
    const cell = position | 0;
    const low = table[cell] as number;
    return low + ((table[cell + 1] as number) - low) * (position - cell);
  };
}

/** Inverse of the standard normal distribution function (Acklam; relative error below 1.2e-9). */
export function normalScore(p: number): number {
  if (p > 0.5) return -normalScore(1 - p);
  if (p >= 0.02425) {
    const q = p - 0.5;
    const r = q * q;
    const top =
      ((((-3.969683028665376e1 * r + 2.209460984245205e2) * r - 2.759285104469687e2) * r + 1.38357751867269e2) * r -
        3.066479806614716e1) *
        r +
      2.506628277459239;
    const bottom =
      ((((-5.447609879822406e1 * r + 1.615858368580409e2) * r - 1.556989798598866e2) * r + 6.680131188771972e1) * r -
        1.328068155288572e1) *
        r +
      1;
    return (top * q) / bottom;
  }
  const q = Math.sqrt(-2 * Math.log(p));
  const top =
    ((((-7.784894002430293e-3 * q - 3.223964580411365e-1) * q - 2.400758277161838) * q - 2.549732539343734) * q +
      4.374664141464968) *
      q +
    2.938163982698783;
  const bottom =
    (((7.784695709041462e-3 * q + 3.224671290700398e-1) * q + 2.445134137142996) * q + 3.754408661907416) * q + 1;
  return top / bottom;
}

/** About 0.1 % of 1 to 5 s, and a rare request that is never answered. */
const measuredTail = { tailRate: 0.001, tailMs: [1000, 5000], silentRate: 0.00001 } as const;

/** Name of a ready-made model. */
export type LatencyName = "constant" | "wide" | "s3" | "express";

/** The models by name. GET and PUT of S3 are measured; LIST is taken to be as fast as GET, DELETE as PUT. */
export const latencyModels: Readonly<Record<LatencyName, LatencyModel>> = {
  /** For tests that want round numbers: 10 ms for everything. */
  constant: latencyModel({ name: "constant", read: constant(10), write: constant(10) }),
  /** A generic store with a wide spread, which mixes up the order of requests well. */
  wide: latencyModel({ name: "wide", read: lognormal(20, 0.8), write: lognormal(30, 0.8), tailRate: 0.002 }),
  s3: latencyModel({
    name: "s3",
    read: percentiles(63, 78, 118),
    write: percentiles(100, 195, 274),
    ...measuredTail,
  }),
  /** Only the conditional PUT, about 20 ms, is measured; the spread is that of S3 Standard and reads are taken as half a write. */
  express: latencyModel({
    name: "express",
    read: percentiles(10, 12.4, 18.7),
    write: percentiles(20, 39, 55),
    ...measuredTail,
  }),
};
