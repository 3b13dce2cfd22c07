/** A transform that takes its time without using a processor: threads are what it costs. */
import { setTimeout as sleep } from "node:timers/promises";

export async function wait<T>(value: T, { ms }: { readonly ms: number }): Promise<T> {
  if (ms > 0) await sleep(ms);
  return value;
}
