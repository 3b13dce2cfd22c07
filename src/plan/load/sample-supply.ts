/** Where a lane's samples of one source come from: the source itself, or its log. Planning sees only this. */
import type { Fault } from "./fault.js";
import type { PreparedSample } from "./prepared-sample.js";
import type { SampleMeta } from "./sample-meta.js";

/** A place in a supply, as small JSON: good for the same source, seed and number of lanes. */
export type SupplyPlace = readonly unknown[];

/** Where a supply stands: a place, and how many pieces of the document that comes next were used. */
export interface SupplyPosition {
  readonly at: SupplyPlace;
  readonly used: number;
}

/** Where a supply begins: a position, or the beginning. */
export interface SupplyStart {
  readonly at?: SupplyPlace | undefined;
  readonly used?: number | undefined;
}

/** A sample that can be planned, with what was left out since the one before it. */
export interface SuppliedSample {
  readonly meta: SampleMeta;
  readonly faults: readonly Fault[];
  /** The supply's position past it. */
  readonly after: SupplyPosition;
  /** By which its supply finds its payload. */
  readonly handle: unknown;
}

/** The end of a source, with what was left out before it. */
export interface SupplyEnd {
  readonly meta?: undefined;
  readonly faults: readonly Fault[];
  readonly after: SupplyPosition;
}

/** A sample with its payload. */
export interface LoadedSample extends SuppliedSample {
  readonly value: PreparedSample;
}

/** One source, as one lane sees it: its samples in order. What it holds decides nothing. */
export interface SampleSupply {
  /** Samples that are at hand. */
  readonly buffered: number;
  /** The next sample, which stays until {@link take}; or the end. Nothing is opened before the first call. */
  peek(signal?: AbortSignal | undefined): Promise<SuppliedSample | SupplyEnd>;
  /** Uses what {@link peek} showed: the sample, or at the end the faults before it, which are then told only once. */
  take(): void;
  /** Payloads of samples that were taken. */
  fetch(samples: readonly SuppliedSample[], signal?: AbortSignal | undefined): Promise<PreparedSample[]>;
}
