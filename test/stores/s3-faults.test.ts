/**
 * Property: an S3 store says what it knows and nothing else. A create whose answer was lost, late or no verdict is `unknown` and is sent once;
 * it throws only when certainly nothing was written. A range that breaks off goes on where it broke. Nothing waits longer than its timeout.
 * Method: a fault proxy in front of a small server that keeps the rules; each fault planned for one request.
 */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { badDay, type Fault, FaultProxy } from "../../harness/fault-proxy.js";
import { s3Access } from "../../harness/s3-servers.js";
import { startTinyS3, type TinyS3 } from "../../harness/tiny-s3.js";
import { systemEnv } from "../../src/env/index.js";
import { createNamespace, openStore } from "../../src/index.js";
import { assertSafe, type ObjectStore, probeStore, type S3StoreSettings, withRetry } from "../../src/store/index.js";
import { bytes, noise, same } from "../store/conformance.js";

let server: TinyS3;
let proxy: FaultProxy;

beforeAll(async () => {
  server = await startTinyS3();
  proxy = await FaultProxy.start(server.endpoint);
});
afterAll(async () => {
  await proxy.stop();
  await server.stop();
});
afterEach(() => {
  proxy.plan = () => undefined;
});

async function open(settings: S3StoreSettings = {}, endpoint = proxy.endpoint): Promise<ObjectStore> {
  const access = s3Access(endpoint).settings;
  return openStore(`s3://bucket/${systemEnv.id()}`, { s3: { ...access, ...settings } });
}

const impatient = { connectTimeoutMs: 600, responseTimeoutMs: 600, stallTimeoutMs: 600 };

/** Plans faults for the next requests of a method, one after another. */
function plan(method: string, ...faults: readonly Fault[]): void {
  const left = [...faults];
  proxy.plan = (seen) => (seen.method === method ? left.shift() : undefined);
}

const status = (code: number, isApplied: boolean): Fault => ({ kind: "status", status: code, code: "X", isApplied });

describe("a conditional create", () => {
  const unknown: [string, Fault, boolean][] = [
    ["hazard 1: the answer is lost after the PUT landed", { kind: "lose answer" }, true],
    ["hazard 2: a PUT that lands after its client gave up", { kind: "apply late", ms: 100 }, true],
    ["hazard 4: a 5xx though the object was stored", status(500, true), true],
    ["a 503 that stored nothing", status(503, false), false],
    ["hazard 5: 409 is no verdict, stored", status(409, true), true],
    ["hazard 5: 409 is no verdict, not stored", status(409, false), false],
    ["hazard 5: 429 is no verdict", status(429, false), false],
    ["an error body under status 200", { kind: "error under 200" }, false],
    ["a portal's page under status 200", { kind: "html", status: 200 }, false],
    ["a proxy's 404 page", { kind: "html", status: 404 }, false],
    ["a connection that breaks", { kind: "reset" }, false],
    ["no answer within the timeout", { kind: "hang" }, false],
  ];
  test.each(unknown)("%s: unknown, sent once", async (_name, fault, isStored) => {
    const store = await open(fault.kind === "hang" ? impatient : {});
    plan("PUT", fault);
    const before = server.requests.length;
    expect(await store.create("m/1", bytes("mine"))).toBe("unknown");
    await systemEnv.sleep(150);
    expect((await store.get("m/1")) !== undefined).toBe(isStored);
    const puts = server.requests.slice(before).filter(({ method }) => method === "PUT");
    expect(puts.length).toBe(isStored ? 1 : 0);
    // Settling: the same bytes again give a verdict.
    expect(await store.create("m/1", bytes("mine"))).toBe(isStored ? "exists" : "created");
  });

  test("hazard 3: is not sent again by a retrying store either", async () => {
    const store = withRetry(await open(), systemEnv);
    plan("PUT", { kind: "lose answer" }, { kind: "lose answer" });
    expect(await store.create("once", bytes("x"))).toBe("unknown");
  });

  test("throws when certainly nothing was written: refused connection, denial", async () => {
    const closed = await open({}, "http://127.0.0.1:9");
    await expect(closed.create("k", bytes("x"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    const store = await open();
    plan("PUT", { kind: "status", status: 403, code: "AccessDenied", isApplied: false });
    await expect(store.create("k", bytes("x"))).rejects.toMatchObject({ code: "STORE_DENIED" });
    plan("PUT", { kind: "status", status: 501, code: "NotImplemented", isApplied: false });
    await expect(store.create("k", bytes("x"))).rejects.toMatchObject({ code: "UNSAFE_STORE" });
    expect(await store.get("k")).toBeUndefined();
  });

  test("that waited for a connection of another request and was sent over it is unknown too", async () => {
    const store = await open({ connectionsMax: 1 });
    await store.put("warm", bytes("x"));
    plan("PUT", { kind: "delay", ms: 50 }, { kind: "lose answer" }, { kind: "lose answer" });
    const calls = ["a", "b", "c"].map((key) => store.create(key, bytes(key)));
    expect(await Promise.all(calls)).toEqual(["created", "unknown", "unknown"]);
  });

  test("denied where writes were allowed before is unknown at first (MinIO denies a write whose folder is being emptied), and a denial in the end", async () => {
    const store = await open();
    await store.put("before", bytes("x"));
    const denied: Fault = { kind: "status", status: 403, code: "AccessDenied", isApplied: false };
    plan("PUT", denied, denied);
    expect(await store.create("k", bytes("x"))).toBe("unknown");
    await expect(store.put("k", bytes("x"))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(await store.create("k", bytes("x"))).toBe("created");
    proxy.plan = ({ method }) => (method === "PUT" ? denied : undefined);
    const settle = async (): Promise<void> => {
      for (let i = 0; i < 10; i++) expect(await store.create("l", bytes("x"))).toBe("unknown");
    };
    await expect(settle()).rejects.toMatchObject({ code: "STORE_DENIED" });
  });

  test("aborted while the answer is awaited is unknown, aborted before is the reason", async () => {
    const store = await open({ responseTimeoutMs: 5_000 });
    const [reason, controller] = [new Error("mine"), new AbortController()];
    plan("PUT", { kind: "hang" });
    const call = store.create("k", bytes("x"), { signal: controller.signal });
    setTimeout(() => controller.abort(reason), 100);
    expect(await call).toBe("unknown");
    await expect(store.create("k", bytes("x"), { signal: controller.signal })).rejects.toBe(reason);
  });
});

describe("reads", () => {
  test("hazard 29: a range that breaks off goes on where it broke", async () => {
    const store = await open();
    const body = noise(300_000, 5);
    await store.put("r", body);
    plan("GET", { kind: "truncate", share: 0.5 }, { kind: "truncate", share: 0.25 });
    const before = server.requests.length;
    expect(same(await store.getRange("r", 1000, 200_000), body.subarray(1000, 201_000))).toBe(true);
    const ranges = server.requests.slice(before).map(({ headers }) => headers.range);
    expect(ranges).toEqual(["bytes=1000-200999", "bytes=101000-200999", "bytes=126000-200999"]);
    plan("GET", { kind: "truncate", share: 0.3 });
    expect(same(await store.get("r"), body)).toBe(true);
  });

  test("an object replaced in the middle of a broken read is read anew, never sewn together", async () => {
    const store = await open();
    const [old, fresh] = [noise(100_000, 1), noise(100_000, 2)];
    await store.put("swap", old);
    const path = [...server.objects.keys()].find((key) => key.endsWith("swap")) as string;
    let isFirst = true;
    proxy.plan = ({ headers }) => {
      // The second request, which would go on with the old object, finds the new one.
      if (headers["if-match"] !== undefined) server.objects.set(path, Buffer.from(fresh));
      const fault: Fault | undefined = isFirst ? { kind: "truncate", share: 0.5 } : undefined;
      isFirst = false;
      return fault;
    };
    expect(same(await store.get("swap"), fresh)).toBe(true);
  });

  test("time out instead of hanging: no answer, and a transfer that stalls", async () => {
    const store = await open(impatient);
    await store.put("t", noise(50_000));
    for (const fault of [{ kind: "hang" }, { kind: "delay", ms: 1_500 }] as const) {
      plan("GET", fault);
      await expect(store.get("t")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", details: { phase: "response" } });
    }
  });

  test("end with the caller's reason when aborted", async () => {
    const store = await open({ responseTimeoutMs: 5_000 });
    const [reason, controller] = [new Error("mine"), new AbortController()];
    plan("GET", { kind: "hang" });
    const call = store.get("k", { signal: controller.signal });
    setTimeout(() => controller.abort(reason), 50);
    await expect(call).rejects.toBe(reason);
  });

  test("503 with Retry-After is told to whoever retries", async () => {
    const store = await open();
    plan("GET", { kind: "status", status: 503, code: "SlowDown", isApplied: false, retryAfterS: 7 });
    await expect(store.get("k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE", details: { retryAfterMs: 7_000 } });
  });

  test("of many at once open no more connections than allowed", async () => {
    const own = await startTinyS3();
    try {
      const store = await open({ connectionsMax: 3 }, own.endpoint);
      await store.put("k", bytes("x"));
      await Promise.all(Array.from({ length: 40 }, () => store.get("k")));
      expect(own.connectionsMax()).toBe(3);
    } finally {
      await own.stop();
    }
  });
});

test("a delete of thousands is one request per thousand, and an absent prefix of the bucket is fine", async () => {
  const store = await open();
  const before = server.requests.length;
  await store.delete(Array.from({ length: 2_500 }, (_, i) => `k/${i}`));
  const posts = server.requests.slice(before).filter(({ method }) => method === "POST");
  expect(posts).toHaveLength(3);
  for (const { headers } of posts) expect(headers["content-md5"]).toMatch(/==$/);
});

test("encryption headers go where they belong, and a customer key never in the clear", async () => {
  const store = await open({ encryption: { kind: "kms", keyId: "key-1" } });
  await store.put("k", bytes("x"));
  await store.get("k");
  const [put, get] = server.requests.slice(-2);
  expect(put?.headers).toMatchObject({
    "x-amz-server-side-encryption": "aws:kms",
    "x-amz-server-side-encryption-aws-kms-key-id": "key-1",
  });
  expect(JSON.stringify(get?.headers)).not.toContain("encryption");
  const key = Buffer.alloc(32, 7).toString("base64");
  const refused = await open({ encryption: { kind: "customer", key } }).catch((e: unknown) => e);
  expect(refused).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringMatching(/https/) });
  expect(String(refused)).not.toContain(key);
});

test("a session token is signed and sent; bytes are signed over plain HTTP unless told otherwise", async () => {
  const credentials = { accessKeyId: "a", secretAccessKey: "b", sessionToken: "the-token" };
  await (await open({ credentials })).put("k", bytes("hello"));
  await (await open({ credentials, signPayload: false })).put("k", bytes("hello"));
  // By the token, not by place: a late request of an earlier test may arrive in between.
  const sent = server.requests.map(({ headers }) => headers).filter((h) => h["x-amz-security-token"] === "the-token");
  expect(sent).toHaveLength(2);
  const [signed, unsigned] = sent;
  expect(signed?.authorization).toMatch(/SignedHeaders=[^,]*x-amz-security-token/);
  expect(signed?.["x-amz-content-sha256"]).toBe("2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824");
  expect(unsigned?.["x-amz-content-sha256"]).toBe("UNSIGNED-PAYLOAD");
});

test("hazard 21: a server that ignores the precondition is refused by the probe and by createNamespace", async () => {
  const careless = await startTinyS3({ isCareless: true });
  try {
    const report = await probeStore(await open({}, careless.endpoint), systemEnv, { rounds: 2 });
    expect(report.safe).toBe(false);
    expect(() => assertSafe(report)).toThrow(/one winner of many/);
    const { settings } = s3Access(careless.endpoint);
    const creating = createNamespace(
      "s3://bucket/run",
      { grid: { rows: 1, chunks: 1 } },
      { storeSettings: { s3: settings } },
    );
    await expect(creating).rejects.toMatchObject({ code: "UNSAFE_STORE" });
    expect([...careless.objects.keys()]).toEqual([]);
    const good = await probeStore(await open(), systemEnv, { rounds: 2 });
    expect(good.safe).toBe(true);
  } finally {
    await careless.stop();
  }
});

test("on a bad day a retrying store still reads and writes what it should", async () => {
  let state = 7;
  const random = (): number => {
    state = (state * 1_103_515_245 + 12_345) % 2 ** 31;
    return state / 2 ** 31;
  };
  proxy.plan = badDay(random, 0.2);
  const store = withRetry(await open(), systemEnv, {
    firstDelayMs: 5,
    delayMaxMs: 50,
    attemptsMax: 30,
    budgetMax: 1_000,
  });
  for (let i = 0; i < 30; i++) {
    const body = noise(5_000 + i, i + 1);
    await store.put(`d/${i}`, body);
    expect(same(await store.get(`d/${i}`), body)).toBe(true);
    expect(same(await store.getRange(`d/${i}`, 100, 3_000), body.subarray(100, 3_100))).toBe(true);
  }
  expect(Object.keys(proxy.counts).length).toBeGreaterThan(6);
});
