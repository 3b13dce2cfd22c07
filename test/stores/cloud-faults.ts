/**
 * What a store behind a provider's SDK must do when the network or the server has a bad day: the same verdicts as our own client gives.
 * Registered by the tests of each such store, with a fault proxy in front of its server.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { badDay, type Fault, FaultProxy } from "../../harness/fault-proxy.js";
import { systemEnv } from "../../src/env/index.js";
import { type ObjectStore, withRetry } from "../../src/store/index.js";
import { bytes, noise, same } from "../store/conformance.js";

/** How to open a store of this kind through another address. */
export interface CloudFaultSubject {
  /** The server itself. */
  readonly endpoint: string;
  /** A fresh, empty store; `endpoint` takes the server's place. */
  open(endpoint: string, timeoutMs: number): Promise<ObjectStore>;
  /** A store in a bucket or container that does not exist. */
  openMissing(): Promise<ObjectStore>;
  /** What a denial must name. */
  readonly permission: RegExp;
  /** Must be in no message. */
  readonly secret: string;
}

const status = (code: number, isApplied: boolean): Fault => ({ kind: "status", status: code, code: "X", isApplied });

/** Registers the suite. */
export function describeCloudFaults(name: string, subject: CloudFaultSubject): void {
  describe(`${name}: faults`, () => {
    let proxy: FaultProxy;
    beforeAll(async () => {
      proxy = await FaultProxy.start(subject.endpoint);
    });
    afterAll(() => proxy.stop());
    afterEach(() => {
      proxy.plan = () => undefined;
    });

    /** Plans faults for the next requests that write or read, one after another; gives how many were seen. */
    const plan = (methods: readonly string[], ...faults: readonly Fault[]): { seen: number } => {
      const left = [...faults];
      const tally = { seen: 0 };
      proxy.plan = ({ method }) => {
        if (!methods.includes(method)) return undefined;
        tally.seen++;
        return left.shift();
      };
      return tally;
    };
    const writes = ["PUT", "POST"];

    const unknown: [string, Fault, boolean][] = [
      ["hazard 1: the answer is lost after it was applied", { kind: "lose answer" }, true],
      ["hazard 2: it lands after its client gave up", { kind: "apply late", ms: 100 }, true],
      ["hazard 4: a 5xx though the object was stored", status(500, true), true],
      ["a 503 that stored nothing", status(503, false), false],
      ["hazard 5: a 409 of an unknown kind is no verdict", status(409, false), false],
      ["hazard 5: 429 is no verdict", status(429, false), false],
      ["a portal's page under status 200", { kind: "html", status: 200 }, false],
      ["a connection that breaks", { kind: "reset" }, false],
      ["no answer within the timeout", { kind: "hang" }, false],
    ];
    test.each(unknown)("%s: a create is unknown, and was sent once", async (_name, fault, isStored) => {
      const store = await subject.open(proxy.endpoint, fault.kind === "hang" ? 800 : 10_000);
      const tally = plan(writes, fault);
      expect(await store.create("m/1", bytes("mine"))).toBe("unknown");
      expect(tally.seen).toBe(1);
      await systemEnv.sleep(200);
      expect((await store.get("m/1")) !== undefined).toBe(isStored);
      expect(await store.create("m/1", bytes("mine"))).toBe(isStored ? "exists" : "created");
    });

    test("nobody there: a create throws, for certainly nothing was written", async () => {
      const store = await subject.open("http://127.0.0.1:9", 2_000);
      await expect(store.create("k", bytes("x"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      await expect(store.get("k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    });

    const calls = (store: ObjectStore): (() => Promise<unknown>)[] => [
      () => store.create("k", bytes("x")),
      () => store.put("k", bytes("x")),
      () => store.get("k"),
      () => store.list(""),
      () => store.delete(["k"]),
    ];

    test("a bucket or container that is not there", async () => {
      for (const [i, call] of calls(await subject.openMissing()).entries()) {
        const e = await call().catch((caught: unknown) => caught);
        // Google tells by its text alone whether a bucket or an object is missing, and its stand-in has another text.
        if (e === undefined && i >= 2) continue;
        expect(e).toMatchObject({
          code: "INVALID_ARGUMENT",
          message: expect.stringMatching(/there is no .*create it/),
        });
      }
    });

    test("a page where the store should answer, and nothing is concluded from it", async () => {
      const store = await subject.open(proxy.endpoint, 10_000);
      proxy.plan = () => ({ kind: "html", status: 404 });
      expect(await store.create("k", bytes("x")).catch((e: unknown) => e)).not.toBe("exists");
      await expect(store.list("")).rejects.toMatchObject({ name: "BatchWeaveError" });
    });

    test("a denial names the right it takes, and no secret", async () => {
      const store = await subject.open(proxy.endpoint, 10_000);
      proxy.plan = () => ({ kind: "status", status: 403, code: "Forbidden", isApplied: false });
      for (const call of calls(store)) {
        const e = await call().catch((caught: unknown) => caught);
        expect(e).toMatchObject({ code: "STORE_DENIED", message: expect.stringMatching(subject.permission) });
        expect(`${e} ${JSON.stringify((e as { details: unknown }).details)}`).not.toContain(subject.secret);
      }
    });

    test("hazard 29: a read that breaks off is whole or an error, never short", async () => {
      const store = await subject.open(proxy.endpoint, 1_500);
      const body = noise(300_000, 5);
      await withRetry(store, systemEnv).put("r", body); // the connection may be one that an earlier fault broke
      for (const read of [() => store.get("r"), () => store.getRange("r", 0, 300_000)]) {
        plan(["GET"], { kind: "truncate", share: 0.5 });
        const got = await read().catch((e: unknown) => e);
        if (got instanceof Uint8Array) expect(same(got, body)).toBe(true);
        else expect(got).toMatchObject({ code: "STORE_UNAVAILABLE" });
      }
    });

    test("a read that is not answered ends within the timeout", async () => {
      const store = await subject.open(proxy.endpoint, 800);
      await withRetry(store, systemEnv).put("t", bytes("x"));
      plan(["GET"], { kind: "hang" });
      // Without its timeout it would wait for ever.
      await expect(store.get("t")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    });

    test("on a bad day a retrying store still reads and writes what it should", async () => {
      let state = 11;
      const random = (): number => {
        state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
        return state / 2 ** 31;
      };
      const patient = { firstDelayMs: 5, delayMaxMs: 50, attemptsMax: 30, budgetMax: 1_000 };
      const store = withRetry(await subject.open(proxy.endpoint, 1_500), systemEnv, patient);
      proxy.plan = badDay(random, 0.1);
      for (let i = 0; i < 20; i++) {
        const body = noise(5_000 + i, i + 1);
        await store.put(`d/${i}`, body);
        expect(same(await store.get(`d/${i}`), body)).toBe(true);
        expect(same(await store.getRange(`d/${i}`, 100, 3_000), body.subarray(100, 3_100))).toBe(true);
      }
      expect(Object.keys(proxy.counts).length).toBeGreaterThan(5);
    });
  });
}
