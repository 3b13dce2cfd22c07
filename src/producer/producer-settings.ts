/** Settings of a producer, and their defaults. */
import { type SliceEncoding, sliceBytesMax } from "../format/index.js";

/** Settings of a producer; all bounded, all JSON-safe. */
export interface ProducerSettings {
  /**
   * Bytes accepted and not yet committed at most; `append` waits beyond. Default 256 MiB: a quarter of a second at 1 GB/s, about what it takes on a
   * busy disk until a batch is committed. A producer that writes as fast wants more.
   */
  readonly bufferedBytesMax?: number | undefined;
  /** Batches accepted and not yet committed at most. Default 1,024. */
  readonly bufferedBatchesMax?: number | undefined;
  /** Uploads at a time. Default 8. */
  readonly uploadsInFlightMax?: number | undefined;
  /** Larger batches are split into several objects. Default 512 MiB. */
  readonly extentBytesMax?: number | undefined;
  /** How slices are stored. Default "none". */
  readonly encoding?: SliceEncoding | undefined;
}

/** Every limit, filled in. */
export type ProducerLimits = { readonly [K in keyof ProducerSettings]-?: NonNullable<ProducerSettings[K]> };

/** Fills in the defaults. */
export function producerLimits(settings: ProducerSettings): ProducerLimits {
  return {
    bufferedBytesMax: settings.bufferedBytesMax ?? 268_435_456,
    bufferedBatchesMax: settings.bufferedBatchesMax ?? 1_024,
    uploadsInFlightMax: settings.uploadsInFlightMax ?? 8,
    extentBytesMax: Math.min(settings.extentBytesMax ?? 536_870_912, sliceBytesMax),
    encoding: settings.encoding ?? "none",
  };
}
