/**
 * Property: a large put goes in parts, is whole or invisible, and leaves no parts behind when it fails; a conditional create never goes in parts.
 * Method: moto behind the fault proxy, which also counts; skipped, and says so, where moto cannot be had.
 */
import { afterAll, afterEach, expect, test } from "vitest";
import { type Fault, FaultProxy, type Seen } from "../../harness/fault-proxy.js";
import { openS3At, startMoto } from "../../harness/s3-servers.js";
import { systemEnv } from "../../src/env/index.js";
import { type ObjectStore, withRetry } from "../../src/store/index.js";
import { noise, same } from "../store/conformance.js";

const server = await startMoto();
const partBytes = 5 * 1024 * 1024;
/** Two parts and a bit, in pieces that do not end where parts do. */
const body = [noise(4_000_000, 1), noise(7_000_000, 2), noise(10, 3)];

if ("skipped" in server) test("s3 in parts", (context) => context.skip(server.skipped));
else {
  const proxy = await FaultProxy.start(server.endpoint);
  const seen: string[] = [];
  /** Counts, and does `fault` to the first request that `isIt`. */
  const plan = (isIt: (request: Seen) => boolean = () => false, fault?: Fault): void => {
    let isDone = false;
    seen.length = 0;
    proxy.plan = (request) => {
      seen.push(`${request.method} ${/partNumber|uploadId|uploads/.exec(request.path)?.[0] ?? "object"}`);
      if (isDone || !isIt(request)) return undefined;
      isDone = true;
      return fault;
    };
  };
  const open = (): Promise<ObjectStore> => openS3At(server, { endpoint: proxy.endpoint, partBytes });
  const isPart = ({ path }: Seen): boolean => path.includes("partNumber=2");
  const isCompletion = ({ method, path }: Seen): boolean => method === "POST" && path.includes("uploadId=");
  const noSuchUpload: Fault = { kind: "status", status: 404, code: "NoSuchUpload", isApplied: false };

  afterEach(() => plan());
  afterAll(async () => {
    await proxy.stop();
    await server.stop();
  });

  test("a large put is sent in parts and comes back whole", async () => {
    const store = await open();
    plan();
    await store.put("big", body);
    expect(seen.filter((one) => one === "PUT partNumber")).toHaveLength(3);
    expect(seen.at(0)).toBe("POST uploads");
    expect(seen.at(-1)).toBe("POST uploadId");
    expect(same(await store.get("big"), Buffer.concat(body))).toBe(true);
    expect(await store.abortUploads?.("", 0)).toBe(0);
  });

  test("a conditional create of the same size is one PUT", async () => {
    const store = await open();
    plan();
    expect(await store.create("big", body)).toBe("created");
    expect(seen).toEqual(["PUT object"]);
  });

  const failures: [string, (request: Seen) => boolean, Fault][] = [
    ["a part is refused", isPart, { kind: "status", status: 503, code: "SlowDown", isApplied: false }],
    ["the parts are refused in the end, under status 200", isCompletion, { kind: "error under 200" }],
    ["somebody aborted the upload, seen by a part", isPart, noSuchUpload],
    ["somebody aborted the upload, seen in the end", isCompletion, noSuchUpload],
  ];
  test.each(failures)(
    "%s: nothing is visible, nothing is left, and it may be sent again",
    async (_name, isIt, fault) => {
      const store = await open();
      plan(isIt, fault);
      await expect(store.put("big", body)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
      expect(await store.get("big")).toBeUndefined();
      expect(await store.abortUploads?.("", 0)).toBe(0);
      plan(isIt, fault);
      await withRetry(store, systemEnv, { firstDelayMs: 1 }).put("big", body);
      expect(same(await store.get("big"), Buffer.concat(body))).toBe(true);
    },
  );
}
