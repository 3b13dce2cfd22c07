/**
 * Property: a wait ends when it is raised, when its time is over or when it is aborted, whichever comes first; a raise before it counts once; and nothing of it is left behind. Method: an env
 * whose sleeps are in the test's hands.
 */
import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { spreadMs } from "../../src/cadence/spread.js";
import { Wakeup } from "../../src/cadence/wakeup.js";
import type { Env } from "../../src/env/index.js";

function held(): { env: Env; sleeps: { delayMs: number; signal: AbortSignal | undefined; end: () => void }[] } {
  const sleeps: { delayMs: number; signal: AbortSignal | undefined; end: () => void }[] = [];
  const sleep = (delayMs: number, signal?: AbortSignal): Promise<void> =>
    new Promise((resolve, reject) => {
      sleeps.push({ delayMs, signal, end: resolve });
      signal?.addEventListener("abort", () => reject(signal.reason));
    });
  return { env: { sleep } as unknown as Env, sleeps };
}

const tick = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));

test("raised, over, or aborted", async () => {
  const { env, sleeps } = held();
  const wakeup = new Wakeup();
  const stop = new AbortController();
  const done: string[] = [];
  const wait = (name: string, delayMs: number): void =>
    void wakeup.wait(env, delayMs, stop.signal).then(
      () => done.push(name),
      (error) => done.push(`${name}: ${error.message}`),
    );
  wait("raised", 100);
  await tick();
  expect([done, sleeps.length]).toEqual([[], 1]);
  wakeup.raise();
  await tick();
  expect([done, sleeps[0]?.signal?.aborted]).toEqual([["raised"], true]);
  wait("over", 50);
  await tick();
  sleeps[1]?.end();
  await tick();
  expect([done.at(-1), sleeps[1]?.delayMs, sleeps[1]?.signal?.aborted]).toEqual(["over", 50, true]);
  wakeup.raise();
  wakeup.raise();
  wait("raised before", 100);
  await tick();
  expect([done.at(-1), sleeps.length]).toEqual(["raised before", 2]);
  wait("no time", 0);
  await tick();
  expect([done.at(-1), sleeps.length]).toEqual(["no time", 2]);
  wait("until raised", Number.POSITIVE_INFINITY);
  await tick();
  expect([done.length, sleeps.length]).toEqual([4, 2]);
  wakeup.raise();
  await tick();
  expect(done.at(-1)).toBe("until raised");
  expect(getEventListeners(stop.signal, "abort")).toHaveLength(0);
  wait("aborted", 100);
  await tick();
  stop.abort(new Error("enough"));
  await tick();
  expect([done.at(-1), sleeps[2]?.signal?.aborted]).toEqual(["aborted: enough", true]);
  wait("too late", 100);
  await tick();
  expect([done.at(-1), sleeps.length]).toEqual(["too late: enough", 3]);
});

test("a spread goes from nothing to its span, later and later the more there are", () => {
  expect([spreadMs(0, 100, 8), spreadMs(1, 100, 8), spreadMs(0.5, 100, 1), spreadMs(0.5, 100, 0)]).toEqual([
    0, 100, 0, 0,
  ]);
  expect(spreadMs(3 / 7, 90, 8)).toBeCloseTo(60);
  expect(spreadMs(1 / 3, 90, 4)).toBeCloseTo(45);
});
