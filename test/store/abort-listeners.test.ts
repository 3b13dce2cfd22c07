/**
 * Property: however many calls are given one signal, it has one listener of ours at most, so that Node never warns of a leak in a user's process; when the calls
 * are over it has none, and an abort ends every call that is under way. Method: many calls at once, through each decorator, over a store that keeps them
 * waiting, looking at the signal's listeners.
 */
import { getEventListeners } from "node:events";
import { createServer, type Socket } from "node:net";
import { expect, test } from "vitest";
import { onAbort, systemEnv } from "../../src/env/index.js";
import { watched } from "../../src/store/cloud/stall-watch.js";
import { type ObjectStore, withHedging, withRetry } from "../../src/store/index.js";
import { openS3Store } from "../../src/store/s3/s3-store.js";
import { scriptedStore, unavailable } from "./scripted-store.js";

const count = 30;
const stop = new Error("stop");
const listeners = (signal: AbortSignal): number => getEventListeners(signal, "abort").length;

/** Begins `count` calls with one signal, and looks at it meanwhile, after the answers, and after an abort. */
async function expectOneListener(call: (at: number, signal: AbortSignal) => Promise<unknown>, answer?: () => void) {
  const { signal, abort } = controller();
  const begin = (): Promise<unknown>[] => Array.from({ length: count }, (_, at) => call(at, signal));
  if (answer) {
    const answered = begin();
    await systemEnv.sleep(20);
    expect(listeners(signal)).toBe(1);
    answer();
    await Promise.all(answered);
    expect(listeners(signal)).toBe(0);
  }
  const aborted = Promise.allSettled(begin());
  await systemEnv.sleep(20);
  expect(listeners(signal)).toBe(1);
  abort(stop);
  for (const result of await aborted) expect(result).toEqual({ status: "rejected", reason: stop });
  expect(listeners(signal)).toBe(0);
}

function controller(): { signal: AbortSignal; abort: (reason: unknown) => void } {
  const made = new AbortController();
  return { signal: made.signal, abort: (reason) => made.abort(reason) };
}

/** A store whose reads wait until they are answered or aborted; it has a listener on each signal that it is given. */
function waitingStore(): { store: ObjectStore; answer: () => void } {
  let waiting: (() => void)[] = [];
  const get: ObjectStore["get"] = (_key, options) =>
    new Promise((resolve, reject) => {
      const signal = options?.signal;
      const unlisten = signal && onAbort(signal, () => reject(signal.reason));
      waiting.push(() => {
        unlisten?.();
        resolve(new Uint8Array(1));
      });
    });
  const answer = (): void => {
    for (const one of waiting.splice(0)) one();
    waiting = [];
  };
  return { store: scriptedStore({ get }).store, answer };
}

const decorators: Record<string, (store: ObjectStore) => ObjectStore> = {
  withHedging: (store) => withHedging(store, systemEnv),
  withRetry: (store) => withRetry(store, systemEnv),
};

for (const [name, decorate] of Object.entries(decorators)) {
  test(`${name}: one signal for many calls has one listener`, async () => {
    const { store, answer } = waitingStore();
    const decorated = decorate(store);
    await expectOneListener((at, signal) => decorated.get(`k${at}`, { signal }), answer);
  });
}

test("withRetry: one signal for many calls that wait for their next try has one listener", async () => {
  const { store } = scriptedStore({
    get: async () => {
      throw unavailable({ retryAfterMs: 10_000 });
    },
  });
  const retried = withRetry(store, systemEnv);
  await expectOneListener((at, signal) => retried.get(`k${at}`, { signal }));
});

test("the watch over an SDK's calls: one signal has one listener", async () => {
  await expectOneListener((_, signal) => watched(systemEnv, 10_000, { signal }, () => new Promise(() => {})));
});

test("the S3 client: one signal for many requests has one listener", async () => {
  const sockets = new Set<Socket>();
  const server = createServer((socket) => {
    sockets.add(socket);
    socket.on("error", () => {});
    socket.resume(); // and never an answer
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as { port: number };
  try {
    const keys = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b", AWS_REGION: "r" };
    const endpoint = `http://127.0.0.1:${port}`;
    const store = await openS3Store("s3://bucket/prefix", systemEnv, { endpoint }, keys);
    await expectOneListener((at, signal) => store.get(`k${at}`, { signal }));
  } finally {
    for (const socket of sockets) socket.destroy();
    server.close();
  }
});

test("a listener is called once, at once for a signal that has aborted, and not after it was taken back", () => {
  const { signal, abort } = controller();
  const called: string[] = [];
  const same = (): void => void called.push("same");
  onAbort(signal, same);
  const takeBack = onAbort(signal, same);
  onAbort(signal, () => called.push("other"))();
  takeBack();
  takeBack();
  expect(listeners(signal)).toBe(1);
  abort(stop);
  expect(called).toEqual(["same"]);
  onAbort(signal, () => called.push("late"));
  expect(called).toEqual(["same", "late"]);
});
