/**
 * Property: a producer accepts, uploads, hurries, acknowledges and fails at exactly the moments it is meant to: at each limit and not before it, once, in order. Method: a publisher that is driven by
 * hand and writes down its nudges, a store whose uploads are let go one by one; values at each limit and behind it.
 */
import { describe, expect, test } from "vitest";
import { type Outbox, openProducer } from "../../src/cadence/index.js";
import { BatchWeaveError } from "../../src/errors.js";
import {
  asEpoch,
  asSeq,
  batchKey,
  type Descriptor,
  type Manifest,
  type NamespaceSpec,
  type ProducerState,
} from "../../src/format/index.js";
import { Log } from "../../src/log/index.js";
import { assertBatch, assertSlice, checkResumePoint, flattenSlices } from "../../src/producer/batch-input.js";
import { Producer, type ProducerSettings } from "../../src/producer/index.js";
import { MemoryStore, type ObjectStore } from "../../src/store/index.js";
import { AutoEnv } from "../lifecycle/auto-env.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5",
  grid: { rows: 1, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};

/** Everything that is ready to run has run. */
async function settled(): Promise<void> {
  for (let i = 0; i < 20; i++) await new Promise((resolve) => setImmediate(resolve));
}

/** A producer whose publisher and uploads are in the test's hands. */
class Hand {
  readonly nudges: boolean[] = [];
  readonly events: string[] = [];
  readonly puts: { readonly key: string; go(): Promise<void>; fail(error: unknown): void }[] = [];
  outbox!: Outbox;
  producer!: Producer;
  log!: Log;
  left = 0;
  isHeld = false;
  crash!: (error: unknown) => void;

  static async open(
    settings: ProducerSettings = {},
    more: { gate?: never; of?: NamespaceSpec; env?: AutoEnv } = {},
  ): Promise<Hand> {
    const hand = new Hand();
    const inner = new MemoryStore();
    const store: ObjectStore = {
      uri: inner.uri,
      create: (...call) => inner.create(...call),
      put: (key, ...rest) => {
        if (!hand.isHeld) return inner.put(key, ...rest);
        return new Promise<void>((resolve, reject) => {
          hand.puts.push({ key, go: () => inner.put(key, ...rest).then(resolve), fail: reject });
        });
      },
      get: (...call) => inner.get(...call),
      getRange: (...call) => inner.getRange(...call),
      list: (...call) => inner.list(...call),
      delete: (...call) => inner.delete(...call),
    };
    const env = more.env ?? new AutoEnv();
    hand.log = new Log({ store, env, spec: more.of ?? spec, openOrigin: () => Promise.reject(new Error("no forks")) });
    const publisher = {
      run: (outbox: Outbox, signal: AbortSignal) => {
        hand.outbox = outbox;
        return new Promise<void>((_, reject) => {
          hand.crash = reject;
          signal.addEventListener("abort", () => reject(signal.reason));
        });
      },
      leave: async () => void hand.left++,
      nudge: (urgent: boolean) => void hand.nudges.push(urgent),
    };
    const observer = {
      onAccept: ({ seq, bytes }: { seq: number; bytes: number }) => hand.events.push(`accept ${seq} ${bytes}`),
      onUpload: ({ seq, bytes, attempt }: { seq: number; bytes: number; attempt: number }) =>
        hand.events.push(`upload ${seq} ${bytes} ${attempt}`),
      onCommit: ({ seq, version }: { seq: number; version: number }) => hand.events.push(`commit ${seq} ${version}`),
      onEnd: () => void hand.events.push("end"),
    };
    const opening = await openProducer(hand.log, "p");
    const { gate } = more;
    hand.producer = new Producer({ log: hand.log, opening, publisher, observer, ...(gate ? { gate } : {}) }, settings);
    hand.isHeld = true;
    return hand;
  }

  /** A manifest in which the producer stands at `seq`. */
  manifest(seq: number, more: Partial<ProducerState> = {}): Manifest {
    const known = this.log.head.known as Manifest;
    const state = { ...(known.producers.get("p") as ProducerState), seq: asSeq(seq), ...more };
    return { ...known, producers: new Map([["p", state]]) };
  }

  async go(): Promise<void> {
    await this.puts.shift()?.go();
    await settled();
  }

  async append(bytes: number): Promise<boolean> {
    let isIn = false;
    const before = this.producer.nextSeq;
    this.pendingAppend = this.producer.append([new Uint8Array(bytes)]).then((ticket) => {
      isIn = true;
      expect(ticket.seq).toBe(before);
      return ticket;
    });
    await settled();
    return isIn;
  }
  pendingAppend: Promise<unknown> = Promise.resolve();
}

describe("accepting", () => {
  test("bytes up to the limit and no more, but one batch however large", async () => {
    const hand = await Hand.open({ bufferedBytesMax: 100 });
    expect(await hand.append(500)).toBe(true);
    expect(await hand.append(1)).toBe(false);
    hand.nudges.length = 0;
    await hand.go();
    expect(hand.nudges).toEqual([true]);
    await hand.outbox.settle(hand.manifest(1));
    await settled();
    expect([hand.producer.pendingBatches, hand.producer.nextSeq]).toEqual([1, 2]);
    expect(await hand.append(99)).toBe(true);
    expect(await hand.append(1)).toBe(false);
    await hand.outbox.settle(hand.manifest(2));
    await settled();
    expect(hand.producer.nextSeq).toBe(4);
    expect(hand.events.filter((text) => text.startsWith("commit"))).toEqual(["commit 0 1", "commit 1 1"]);
  });

  test("as many batches as the limit says", async () => {
    const hand = await Hand.open({ bufferedBatchesMax: 2 });
    expect([await hand.append(1), await hand.append(1), await hand.append(1)]).toEqual([true, true, false]);
    await hand.outbox.settle(hand.manifest(1));
    await settled();
    expect(hand.producer.nextSeq).toBe(3);
    expect(hand.producer.pendingBatches).toBe(2);
  });

  test("so many uploads at a time, in the order of their seq", async () => {
    const hand = await Hand.open({ uploadsInFlightMax: 2 });
    for (let i = 0; i < 4; i++) await hand.append(i);
    const seqs = () => hand.puts.map(({ key }) => Number(/p-1-(\d+)-/.exec(key)?.[1]));
    expect(seqs()).toEqual([0, 1]);
    await hand.puts[1]?.go();
    await settled();
    hand.puts.splice(1, 1);
    expect([seqs(), hand.outbox.pending().length]).toEqual([[0, 2], 0]);
    await hand.go();
    expect(hand.outbox.pending().map(({ seq }) => seq)).toEqual([0, 1]);
    expect(hand.events.filter((text) => text.startsWith("upload"))).toEqual(["upload 1 1 0", "upload 0 0 0"]);
  });

  test("waits for its gate, hurries meanwhile, and looks again whether it is closed", async () => {
    let open: () => void = () => {};
    const asked: number[] = [];
    const gate = async (pending: () => number, { onWait, signal }: { onWait: () => void; signal: AbortSignal }) => {
      asked.push(pending());
      if (asked.length === 1) return;
      onWait();
      await new Promise<void>((resolve, reject) => {
        open = resolve;
        signal.addEventListener("abort", () => reject(signal.reason));
      });
    };
    const hand = await Hand.open({}, { gate: gate as never });
    expect(await hand.append(3)).toBe(true);
    hand.nudges.length = 0;
    expect(await hand.append(3)).toBe(false);
    expect([asked, hand.nudges]).toEqual([[0, 1], [false]]);
    await hand.go();
    expect(hand.nudges).toEqual([false, true]);
    open();
    await settled();
    expect(hand.producer.nextSeq).toBe(2);
    expect(await hand.append(3)).toBe(false);
    hand.crash(new BatchWeaveError("FENCED", "fenced", {}));
    await expect(hand.pendingAppend).rejects.toMatchObject({ code: "FENCED" });
  });

  test("what is no batch takes no seq", async () => {
    const hand = await Hand.open();
    for (const wrong of [undefined, 5, "x", [1], [new Uint8Array(1), new Uint8Array(1)]])
      await expect(hand.producer.append(wrong as never)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await expect(hand.producer.append([new Uint8Array(1)], { resumePoint: 1n })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
    await expect(hand.producer.append([new Uint8Array(1)], { user: new Map() })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
    expect([hand.producer.nextSeq, hand.puts]).toEqual([0, []]);
  });
});

describe("waiting", () => {
  test("a flush ends when all before it are in, and hurries once they are uploaded", async () => {
    const hand = await Hand.open();
    await hand.append(1);
    await hand.append(1);
    hand.nudges.length = 0;
    let isFlushed = false;
    const flushed = hand.producer.flush().then(() => {
      isFlushed = true;
    });
    await settled();
    expect(hand.nudges).toEqual([false]);
    await hand.go();
    await hand.go();
    expect(hand.nudges).toEqual([false, false, true]);
    await hand.append(1);
    await hand.outbox.settle(hand.manifest(1));
    await settled();
    expect([isFlushed, hand.nudges.slice(3)]).toEqual([false, [true, true]]);
    await hand.outbox.settle(hand.manifest(2));
    await flushed;
    expect(hand.producer.pendingBatches).toBe(1);
    const stop = new AbortController();
    const stopped = hand.producer.flush({ signal: stop.signal });
    stop.abort(new Error("enough"));
    await expect(stopped).rejects.toThrow("enough");
    await expect(hand.producer.flush({ signal: stop.signal })).rejects.toThrow("enough");
  });

  test("a ticket that is awaited is told once, when its batch is uploaded", async () => {
    const hand = await Hand.open();
    const first = await hand.producer.append([new Uint8Array(1)]);
    const second = await hand.producer.append([new Uint8Array(1)]);
    expect(hand.outbox.isAwaited()).toBe(false);
    hand.nudges.length = 0;
    const version = second.committed.then(({ version }) => version);
    expect([hand.nudges, hand.outbox.isAwaited()]).toEqual([[], false]);
    await hand.go();
    expect(hand.outbox.isAwaited()).toBe(false);
    await hand.go();
    expect([hand.nudges, hand.outbox.isAwaited()]).toEqual([[false, false], true]);
    void second.committed;
    expect(hand.nudges).toHaveLength(2);
    void first.committed;
    expect(hand.nudges).toHaveLength(3);
    await hand.outbox.settle(hand.manifest(2));
    expect([await version, hand.outbox.isAwaited()]).toEqual([1, false]);
    void first.committed;
    expect(hand.nudges).toHaveLength(3);
  });

  test("only a manifest of this very holder acknowledges, and each batch once", async () => {
    const hand = await Hand.open();
    await hand.append(1);
    await hand.go();
    for (const other of [{ epoch: asEpoch(2) }, { incarnation: "bbbbbbbbbbbb" }])
      await hand.outbox.settle(hand.manifest(1, other));
    await hand.outbox.settle({ ...hand.manifest(1), producers: new Map() });
    await hand.outbox.settle(hand.manifest(0));
    expect(hand.producer.pendingBatches).toBe(1);
    await hand.outbox.settle(hand.manifest(1));
    await hand.outbox.settle(hand.manifest(1));
    expect(hand.events).toEqual(["accept 0 1", "upload 0 1 0", "commit 0 1"]);
  });

  test("what expired is uploaded again under a new name, and is pending only then", async () => {
    const hand = await Hand.open();
    await hand.append(1);
    await hand.append(1);
    await hand.go();
    await hand.go();
    const [first, second] = hand.outbox.pending() as [Descriptor, Descriptor];
    hand.outbox.expire([first, { ...first, seq: asSeq(77) }]);
    expect(hand.outbox.pending()).toEqual([]);
    await settled();
    expect(hand.puts.map(({ key }) => key)).toEqual([batchKey({ ...first, attempt: 1 }, 0)]);
    hand.outbox.expire([first]);
    await settled();
    expect(hand.puts).toHaveLength(1);
    await hand.go();
    expect(hand.outbox.pending()).toEqual([{ ...first, attempt: 1 }, second]);
  });
});

describe("an end", () => {
  test("a failure is thrown by all that wait and all that come, and not again by leaving", async () => {
    const hand = await Hand.open();
    const ticket = await hand.producer.append([new Uint8Array(1)]);
    const flushed = hand.producer.flush();
    const error = new BatchWeaveError("FENCED", "fenced", {});
    expect(hand.producer.failure).toBeUndefined();
    hand.crash(error);
    await expect(flushed).rejects.toBe(error);
    await expect(ticket.committed).rejects.toBe(error);
    await expect(hand.producer.append([new Uint8Array(1)])).rejects.toBe(error);
    expect([hand.producer.failure, hand.events.filter((text) => text === "end")]).toEqual([error, ["end"]]);
    await hand.producer[Symbol.asyncDispose]();
    await hand.producer.close();
    expect(hand.left).toBe(0);
  });

  test("a failure with nothing pending is thrown by a flush as well", async () => {
    const hand = await Hand.open();
    hand.crash(new BatchWeaveError("FENCED", "fenced", {}));
    await settled();
    await expect(hand.producer.flush()).rejects.toMatchObject({ code: "FENCED" });
  });

  test("a failure that was not thrown yet is thrown by leaving", async () => {
    const hand = await Hand.open();
    await hand.append(1);
    hand.puts[0]?.fail(new BatchWeaveError("STORE_DENIED", "denied", {}));
    await settled();
    await expect(hand.producer[Symbol.asyncDispose]()).rejects.toMatchObject({ code: "STORE_DENIED" });
    expect(hand.left).toBe(0);
  });

  test("closed means flushed, said, and over", async () => {
    const hand = await Hand.open();
    await hand.append(1);
    let isClosed = false;
    const closed = hand.producer.close().then(() => {
      isClosed = true;
    });
    await hand.go();
    expect(isClosed).toBe(false);
    await hand.outbox.settle(hand.manifest(1));
    await closed;
    expect([hand.left, hand.events.at(-1)]).toEqual([1, "end"]);
    await expect(hand.producer.append([new Uint8Array(1)])).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    await hand.producer.close();
    await hand.producer[Symbol.asyncDispose]();
    expect([hand.left, hand.events.filter((text) => text === "end").length]).toEqual([1, 1]);
  });
});

describe("streams", () => {
  const wide: NamespaceSpec = { ...spec, grid: { rows: 3, chunks: 1 } };
  async function* of(...sizes: readonly unknown[]) {
    for (const size of sizes) yield (typeof size === "number" ? new Uint8Array(size) : size) as Uint8Array;
  }

  test("are cut into objects at the limit, and have exactly the slices of a batch", async () => {
    const hand = await Hand.open({ extentBytesMax: 100 }, { of: wide });
    hand.isHeld = false;
    const cells = async (...sizes: readonly number[]): Promise<number[] | undefined> => {
      await hand.producer.append(of(...sizes));
      return hand.outbox
        .pending()
        .at(-1)
        ?.extents.map((extent) => extent.cells);
    };
    expect(await cells(60, 40, 1)).toEqual([2, 1]);
    expect(await cells(60, 41, 1)).toEqual([1, 2]);
    expect(await cells(500, 1, 500)).toEqual([1, 1, 1]);
    expect(await cells(0, 0, 0)).toEqual([3]);
    for (const wrong of [of(1, 1), of(1, 1, 1, 1), of(1, "x", 1), of(1, 1, null)])
      await expect(hand.producer.append(wrong)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    let pulled = 0;
    async function* endless() {
      for (;;) {
        pulled++;
        yield new Uint8Array(1);
      }
    }
    await expect(hand.producer.append(endless())).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect([pulled, hand.producer.nextSeq]).toEqual([4, 4]);
    const plain = async (...sizes: readonly number[]): Promise<number[] | undefined> => {
      await hand.producer.append(sizes.map((size) => new Uint8Array(size)));
      await settled();
      return hand.outbox
        .pending()
        .at(-1)
        ?.extents.map((extent) => extent.cells);
    };
    expect([await plain(60, 40, 1), await plain(60, 41, 1), await plain(500, 1, 500)]).toEqual([
      [2, 1],
      [1, 2],
      [1, 1, 1],
    ]);
  });

  test("come one at a time; a batch between takes the seq, and the stream fails", async () => {
    const hand = await Hand.open({}, { of: wide });
    hand.isHeld = false;
    const order: number[] = [];
    async function* noted(n: number) {
      order.push(n);
      yield* of(1, 1, 1);
    }
    await Promise.all([hand.producer.append(noted(1)), hand.producer.append(noted(2))]);
    expect([order, hand.producer.nextSeq]).toEqual([[1, 2], 2]);
    async function* rude() {
      yield* of(1, 1);
      await hand.producer.append([new Uint8Array(1), new Uint8Array(1), new Uint8Array(1)]);
      yield* of(1);
    }
    await expect(hand.producer.append(rude())).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(hand.producer.nextSeq).toBe(3);
    await hand.producer.append(of(1, 1, 1));
    // What is streamed is not kept: it cannot be uploaded again.
    const last = hand.outbox.pending().at(-1) as Descriptor;
    hand.outbox.expire([last]);
    await settled();
    expect(hand.producer.failure).toMatchObject({ code: "UPLOAD_EXPIRED" });
  });
});

describe("what is handed over", () => {
  test("a resume point is JSON that reads back as it was", () => {
    for (const same of [null, "", "x", true, false, 0, -1.5, [], [1, [null, "a"]], {}, { a: { b: [] } }])
      expect(checkResumePoint(same)).toEqual(same);
    expect(checkResumePoint(undefined)).toBeUndefined();
    expect(checkResumePoint({ a: undefined, b: 1 })).toEqual({ b: 1 });
    expect(checkResumePoint(Object.assign(Object.create(null), { a: 1 }))).toEqual({ a: 1 });
    const round: Record<string, unknown> = {};
    round["self"] = round;
    const other = Object.create({ inherited: 1 });
    for (const wrong of [
      1n,
      Number.NaN,
      Number.POSITIVE_INFINITY,
      () => 1,
      Symbol("x"),
      new Map(),
      new Date(0),
      [undefined],
      [() => 1],
      { a: () => 1 },
      { a: [Number.NaN] },
      round,
      other,
    ])
      expect(() => checkResumePoint(wrong)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    expect(checkResumePoint("x".repeat(1_048_574))).toHaveLength(1_048_574);
    expect(() => checkResumePoint("x".repeat(1_048_575))).toThrow(expect.objectContaining({ code: "LIMIT" }));
    expect(() => checkResumePoint("é".repeat(524_288))).toThrow(expect.objectContaining({ code: "LIMIT" }));
  });

  test("slices are bytes that are there, flat or by row, and as many as the grid has", () => {
    const grid = { rows: 2, chunks: 2 };
    const [a, b, c, d] = [1, 2, 3, 4].map((n) => new Uint8Array(n)) as [Uint8Array, Uint8Array, Uint8Array, Uint8Array];
    expect(flattenSlices([a, b, c, d], grid)).toEqual([a, b, c, d]);
    expect(
      flattenSlices(
        [
          [a, b],
          [c, d],
        ],
        grid,
      ),
    ).toEqual([a, b, c, d]);
    expect(() => flattenSlices([a, b, c], grid)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    const gone = new Uint8Array(8);
    structuredClone(gone.buffer, { transfer: [gone.buffer] });
    expect(() => assertSlice(gone, 3)).toThrow(/slice 3 was transferred/);
    expect(() => assertSlice([1], 3)).toThrow(/Slice 3 is not/);
    assertSlice(new Uint8Array(0), 0);
    assertSlice(new Uint8Array(1), 0);
    for (const wrong of [null, undefined, {}, "ab", 5])
      expect(() => assertBatch(wrong)).toThrow(expect.objectContaining({ code: "INVALID_ARGUMENT" }));
    assertBatch([]);
    assertBatch({ async *[Symbol.asyncIterator]() {} });
  });
});
