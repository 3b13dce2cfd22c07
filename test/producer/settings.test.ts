/** Property: what is not set is what the documentation says, and what cannot work is refused. Method: the limits themselves, at each border. */
import { expect, test } from "vitest";
import { consumerLimits } from "../../src/consumer/consumer-settings.js";
import { producerLimits } from "../../src/producer/producer-settings.js";

test("what is not set is what the documentation says", () => {
  expect(producerLimits({})).toEqual({
    ...{ bufferedBytesMax: 256 * 1024 ** 2, bufferedBatchesMax: 1_024, uploadsInFlightMax: 8 },
    ...{ extentBytesMax: 512 * 1024 ** 2, encoding: "none" },
  });
  expect(producerLimits({ extentBytesMax: 2 ** 40 }).extentBytesMax).toBe(2 ** 32 - 1);
  const own = {
    bufferedBytesMax: 1,
    bufferedBatchesMax: 2,
    uploadsInFlightMax: 3,
    extentBytesMax: 4,
    encoding: "zstd" as const,
  };
  expect(producerLimits(own)).toEqual(own);
  expect(consumerLimits({})).toEqual({
    ...{ prefetchBytesMax: 256 * 1024 ** 2, prefetchIterationsMax: 32, readsInFlightMax: 16 },
    ...{ footerBytesMax: 16 * 1024 ** 2, pollDelayMs: 50, pollDelayMsMax: 1_000, waitTimeoutMs: 600_000 },
  });
  expect(consumerLimits({ pollDelayMs: 5_000 }).pollDelayMsMax).toBe(5_000);
  expect([
    consumerLimits({ waitTimeoutMs: 0 }).waitTimeoutMs,
    consumerLimits({ footerBytesMax: 0 }).footerBytesMax,
  ]).toEqual([0, 0]);
  for (const wrong of [
    { waitTimeoutMs: -1 },
    { readsInFlightMax: 0 },
    { prefetchBytesMax: 0.5 },
    { pollDelayMs: "5" },
    { pollDelayMs: Number.NaN },
  ])
    expect(() => consumerLimits(wrong as never)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
});
