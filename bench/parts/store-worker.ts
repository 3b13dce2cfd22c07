/** One client of the store benchmark in a process of its own, so that its CPU time is all its own. */
import { createHash, createHmac } from "node:crypto";
import { resolve } from "node:path";
import { Pool } from "undici";
import { NodeSha256 } from "../../harness/node-sha256.js";
import { answer, workerArgument } from "../../harness/worker-process.js";
import * as batchweave from "../../src/index.js";
import { makePayloads } from "./payload.js";

/** Which client, and where. */
export interface StoreWorkerSettings {
  readonly client: string;
  readonly endpoint: string;
  /** Objects that the process holds besides, as one that does some work would. */
  readonly heapMb: number;
}

/** One cell. */
export interface StoreQuestion {
  readonly op: "put" | "get";
  readonly bytes: number;
  readonly concurrency: number;
  readonly seconds: number;
}

/** What it took. */
export interface StoreAnswer {
  readonly calls: number;
  readonly seconds: number;
  readonly cpuSeconds: number;
  readonly latenciesMs: readonly number[];
}

interface Client {
  put(key: string, body: Uint8Array): Promise<unknown>;
  get(key: string, bytes: number): Promise<Uint8Array>;
}

const { client: name, endpoint, heapMb } = workerArgument<StoreWorkerSettings>();
const held: { readonly index: number; readonly pair: number[] }[] = [];
while (held.length % 1_000 !== 0 || process.memoryUsage().heapUsed < heapMb * 1e6) {
  held.push({ index: held.length, pair: [held.length, held.length + 1] });
}
const credentials = { accessKeyId: "bench", secretAccessKey: "bench-secret" };
const bucket = "bench";

const day = new Date().toISOString().slice(0, 10).replaceAll("-", "");
const scope = `${day}/us-east-1/s3/aws4_request`;
const signingKey = scope
  .split("/")
  .reduce(
    (key: Buffer, part) => createHmac("sha256", key).update(part).digest(),
    Buffer.from(`AWS4${credentials.secretAccessKey}`),
  );

/** The least that an S3 server accepts. */
function signed(method: string, path: string, headers: Record<string, string>): Record<string, string> {
  const date = new Date().toISOString().replace(/[-:]|\.\d+/g, "");
  const names = "host;x-amz-content-sha256;x-amz-date";
  const canonical = `${method}\n${path}\n\nhost:${headers["host"]}\nx-amz-content-sha256:UNSIGNED-PAYLOAD\nx-amz-date:${date}\n\n${names}\nUNSIGNED-PAYLOAD`;
  const digest = createHash("sha256").update(canonical).digest("hex");
  const signature = createHmac("sha256", signingKey)
    .update(`AWS4-HMAC-SHA256\n${date}\n${scope}\n${digest}`)
    .digest("hex");
  return {
    ...headers,
    "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
    "x-amz-date": date,
    authorization: `AWS4-HMAC-SHA256 Credential=${credentials.accessKeyId}/${scope}, SignedHeaders=${names}, Signature=${signature}`,
  };
}

/** The same by AWS's own signer, at its cheapest: no hash of the bytes, no second escape of the path, its own cache of the day's key. */
async function awsSign(): Promise<Sign> {
  const { SignatureV4 } = await import("@smithy/signature-v4");
  const sha256 = NodeSha256 as never;
  const settings = {
    service: "s3",
    region: "us-east-1",
    credentials,
    sha256,
    uriEscapePath: false,
    applyChecksum: false,
  };
  const signer = new SignatureV4(settings);
  return async (method, path, given) => {
    const headers = { ...given, "x-amz-content-sha256": "UNSIGNED-PAYLOAD" };
    const request = { protocol: "http:", hostname: "127.0.0.1", method, path, query: {}, headers };
    const done: unknown = await signer.sign(request as never);
    return (done as { headers: Record<string, string> }).headers;
  };
}

type Sign = (
  method: string,
  path: string,
  headers: Record<string, string>,
) => Record<string, string> | Promise<Record<string, string>>;

/** What one would write with undici alone, signed because no S3 server would take it otherwise: no timeouts of our own, no checks, no verdicts. */
function bareClient(sign: Sign): Client {
  const url = new URL(endpoint);
  const pool = new Pool(url.origin, { connections: 64, pipelining: 1 });
  const send = async (
    method: "PUT" | "GET",
    key: string,
    more: Record<string, string>,
    body?: Uint8Array,
  ): Promise<Uint8Array> => {
    const path = `/${bucket}/${key}`;
    const found = sign(method, path, { host: url.host, ...more });
    const headers = found instanceof Promise ? await found : found;
    const answer = await pool.request({ method, path, headers, body: body ?? null });
    return answer.body.bytes();
  };
  return {
    put: (key, body) => send("PUT", key, { "content-length": String(body.byteLength) }, body),
    get: (key, bytes) => send("GET", key, { range: `bytes=0-${bytes - 1}` }),
  };
}

async function ownClient(signPayload: boolean, { openStore }: typeof batchweave = batchweave): Promise<Client> {
  const store = await openStore(`s3://${bucket}`, {
    s3: { endpoint, region: "us-east-1", credentials, signPayload },
  });
  return {
    put: (key, body) => store.put(key, body),
    get: async (key, bytes) => (await store.getRange(key, 0, bytes)) as Uint8Array,
  };
}

/** AWS SDK v3 as it comes. */
async function sdkClient(): Promise<Client> {
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] = "true";
  const { GetObjectCommand, PutObjectCommand, S3Client } = await import("@aws-sdk/client-s3");
  const client = new S3Client({ region: "us-east-1", endpoint, credentials, forcePathStyle: true });
  return {
    put: (key, body) => client.send(new PutObjectCommand({ Bucket: bucket, Key: key, Body: body })),
    async get(key, bytes) {
      const { Body } = await client.send(
        new GetObjectCommand({ Bucket: bucket, Key: key, Range: `bytes=0-${bytes - 1}` }),
      );
      return (await Body?.transformToByteArray()) as Uint8Array;
    },
  };
}

const clients: Record<string, () => Client | Promise<Client>> = {
  bare: () => bareClient(signed),
  "bare, signed by AWS's signer": async () => bareClient(await awsSign()),
  batchweave: () => ownClient(false),
  "batchweave, bytes signed": () => ownClient(true),
  "aws sdk": sdkClient,
};
/** `batchweave of FOLDER`: the build in another checkout, for before and after in one run. */
const other = /^batchweave of (.+)$/.exec(name)?.[1];
const client = other
  ? await ownClient(false, (await import(resolve(other, "dist/src/index.js"))) as typeof batchweave)
  : await (clients[name] as () => Client | Promise<Client>)();

async function measure({ op, bytes, concurrency, seconds }: StoreQuestion): Promise<StoreAnswer> {
  const payloads = op === "put" ? makePayloads(Math.min(8, Math.ceil(32e6 / bytes)), bytes, 1) : [];
  const latenciesMs: number[] = [];
  let next = 0;
  const call = async (): Promise<void> => {
    const i = next++;
    const key = `k/${i % 1000}`;
    if (op === "put") await client.put(key, payloads[i % payloads.length] as Uint8Array);
    else if ((await client.get(key, bytes)).byteLength !== bytes) throw new Error("a range came back short");
  };
  const lanes = async (until: () => boolean): Promise<void> => {
    const lane = async (): Promise<void> => {
      while (!until()) {
        const begun = performance.now();
        await call();
        latenciesMs.push(performance.now() - begun);
      }
    };
    await Promise.all(Array.from({ length: concurrency }, lane));
  };
  // Connections, caches and the compiler warm up first.
  const warm = performance.now() + Math.min(300, 500 * seconds);
  await lanes(() => performance.now() > warm);
  latenciesMs.length = 0;
  const [begun, cpu] = [performance.now(), process.cpuUsage()];
  await lanes(() => performance.now() - begun > 1_000 * seconds);
  const { user, system } = process.cpuUsage(cpu);
  return {
    calls: latenciesMs.length,
    seconds: (performance.now() - begun) / 1_000,
    cpuSeconds: (user + system) / 1e6,
    latenciesMs,
  };
}

answer<StoreQuestion>(async (question) => {
  const result = await measure(question);
  if (held.length > 0 && held[0]?.index !== 0) throw new Error("what was held is gone"); // and so the compiler cannot let it go
  return result;
});
