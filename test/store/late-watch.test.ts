/**
 * Property: a call that is watched is told once, when it is late and not before, whatever is watched beside it; one that is done in time never; and
 * nothing is left waiting when no call is watched. Method: virtual time, random delays and ends, and a plain model of who must be told when.
 */
import { expect, test } from "vitest";
import { LateWatch, type Watched } from "../../src/store/decorate/late-watch.js";
import { VirtualEnv } from "./virtual-env.js";

/** Counts its sleeps. */
class CountingEnv extends VirtualEnv {
  sleeping = 0;
  begun = 0;

  override sleep(delayMs: number, signal?: AbortSignal): Promise<void> {
    this.sleeping++;
    this.begun++;
    return super.sleep(delayMs, signal).finally(() => {
      this.sleeping--;
    });
  }
}

test("everybody who is late is told at the right time, nobody else is", async () => {
  const env = new CountingEnv();
  const watch = new LateWatch(env);
  const wrong: string[] = [];
  let told = 0;
  const one = async (): Promise<void> => {
    await env.sleep(1 + env.random() * 500);
    const begun = env.monotonic();
    const [delayMs, tookMs] = [1 + env.random() * 100, 1 + env.random() * 100];
    let lateAtMs: number | undefined;
    const watched: Watched = watch.add(delayMs, () => {
      if (lateAtMs !== undefined) wrong.push("told twice");
      lateAtMs = env.monotonic();
    });
    await env.sleep(tookMs);
    watch.delete(watched);
    await env.sleep(200);
    if (lateAtMs !== undefined) told++;
    const isLate = tookMs > delayMs;
    if (isLate !== (lateAtMs !== undefined)) wrong.push(`late: ${isLate}, told: ${lateAtMs}`);
    if (lateAtMs !== undefined && Math.abs(lateAtMs - begun - delayMs) > 1e-6) wrong.push("told at another time");
  };
  await env.run(Promise.all(Array.from({ length: 400 }, one)));
  expect(wrong).toEqual([]);
  expect(told).toBeGreaterThan(100);
  expect(env.sleeping).toBe(0);
});

test("many that are done in time share a few sleeps", async () => {
  const env = new CountingEnv();
  const watch = new LateWatch(env);
  let late = 0;
  const lane = async (): Promise<void> => {
    for (let i = 0; i < 1_000; i++) {
      const watched = watch.add(500, () => late++);
      await env.sleep(10);
      watch.delete(watched);
    }
  };
  const steady = watch.add(1_000_000, () => late++);
  await env.run(Promise.all([lane(), lane(), lane()]));
  watch.delete(steady);
  expect(late).toBe(0);
  expect(env.begun - 3_000).toBeLessThan(100);
});
