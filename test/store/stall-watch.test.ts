/**
 * Property: a watched call ends when nothing has come for its time, goes on as long as something does, and gives the caller's own reason.
 * Method: virtual time.
 */
import { expect, test } from "vitest";
import { NoAnswer, watched } from "../../src/store/cloud/stall-watch.js";
import { VirtualEnv } from "./virtual-env.js";

const never = new Promise<never>(() => {});

test("what makes no progress is ended, and its signal aborts", async () => {
  const env = new VirtualEnv();
  let signal: AbortSignal | undefined;
  const call = watched(env, 1_000, undefined, (its) => {
    signal = its;
    return never;
  });
  await expect(env.run(call)).rejects.toBeInstanceOf(NoAnswer);
  expect(env.monotonic()).toBe(1_000);
  expect(signal?.aborted).toBe(true);
});

test("what makes progress may take its time", async () => {
  const env = new VirtualEnv();
  const call = watched(env, 1_000, undefined, async (_, progress) => {
    for (let i = 0; i < 10; i++) {
      await env.sleep(900);
      progress();
    }
    return "done";
  });
  expect(await env.run(call)).toBe("done");
  expect(env.monotonic()).toBe(9_000);
});

test("the caller's abort comes through as it is, at once or in the middle", async () => {
  const env = new VirtualEnv();
  const reason = new Error("mine");
  await expect(watched(env, 1_000, { signal: AbortSignal.abort(reason) }, () => never)).rejects.toBe(reason);
  const controller = new AbortController();
  const call = watched(env, 1_000, { signal: controller.signal }, () => never);
  const ended = expect(env.run(call)).rejects.toBe(reason);
  controller.abort(reason);
  await ended;
});

test("a failure of the call is the call's own", async () => {
  const env = new VirtualEnv();
  await expect(env.run(watched(env, 1_000, undefined, () => Promise.reject(new TypeError("its"))))).rejects.toThrow(
    "its",
  );
});
