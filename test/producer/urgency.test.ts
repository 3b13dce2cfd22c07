/**
 * Property: a caller that waits for a batch makes its publisher hurry, also when the wait began before the batch was uploaded. Method: a
 * publisher that writes down its nudges and, as the real ones do, forgets the hurry while nothing is pending.
 */

import { expect, test } from "vitest";
import { openProducer } from "../../src/cadence/index.js";
import { systemEnv } from "../../src/env/index.js";
import type { NamespaceSpec } from "../../src/format/index.js";
import { Log } from "../../src/log/index.js";
import { Producer } from "../../src/producer/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";

test("a flush that began during an upload is urgent when the upload is done", async () => {
  const inner = new MemoryStore();
  let release: () => void = () => {};
  const held = new Promise<void>((resolve) => {
    release = resolve;
  });
  const store: ObjectStore = {
    uri: inner.uri,
    create: (...call) => inner.create(...call),
    put: (...call) => held.then(() => inner.put(...call)),
    get: (...call) => inner.get(...call),
    getRange: (...call) => inner.getRange(...call),
    list: (...call) => inner.list(...call),
    delete: (...call) => inner.delete(...call),
  };
  const spec: NamespaceSpec = {
    format: 1,
    uuid: systemEnv.uuid(),
    grid: { rows: 1, chunks: 1 },
    order: { kind: "commit" },
    created: 0,
    rest: {},
  };
  const log = new Log({ store, env: systemEnv, spec, openOrigin: () => Promise.reject(new Error("no origins")) });
  const opening = await openProducer(log, "a");
  const nudges: { urgent: boolean; pending: number }[] = [];
  let pending = (): number => 0;
  const producer = new Producer({
    log,
    opening,
    publisher: {
      run: (outbox, signal) => {
        pending = () => outbox.pending().length;
        return new Promise((_, reject) => signal.addEventListener("abort", () => reject(signal.reason)));
      },
      leave: () => Promise.resolve(),
      nudge: (urgent) => nudges.push({ urgent, pending: pending() }),
    },
  });
  await producer.append([new Uint8Array(8)]);
  const stop = new AbortController();
  const flushed = producer.flush({ signal: stop.signal }).catch(() => "stopped");
  await systemEnv.sleep(1);
  expect(nudges.filter((nudge) => nudge.pending > 0)).toEqual([]);
  release();
  await systemEnv.sleep(5);
  expect(nudges.at(-1)).toEqual({ urgent: true, pending: 1 });
  stop.abort(new Error("enough"));
  expect(await flushed).toBe("stopped");
});
