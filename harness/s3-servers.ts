/** S3 servers for tests, chaos and benchmarks: started on loopback, with a bucket, their telemetry off. */

import { dirname, join } from "node:path";
import type { S3Client } from "@aws-sdk/client-s3";
import { type ObjectStore, openStore, type S3StoreSettings, systemEnv } from "../src/index.js";
import { startProcess } from "./server-process.js";
import { minio, moto, obtain } from "./tools.js";

/** A server with a bucket in it. */
export interface S3Server {
  readonly name: string;
  readonly endpoint: string;
  readonly bucket: string;
  /** What it takes to open a store on it. */
  readonly settings: S3StoreSettings;
  /** The same as environment variables, for other processes. */
  readonly environment: Readonly<Record<string, string>>;
  stop(): Promise<void>;
}

export const bucket = "batchweave-test";
const credentials = { accessKeyId: "batchweave", secretAccessKey: "batchweave-secret" };

/** What opens a store on a server at `endpoint`, here and in other processes. */
export function s3Access(endpoint: string): Pick<S3Server, "endpoint" | "bucket" | "settings" | "environment"> {
  return {
    endpoint,
    bucket,
    settings: { endpoint, region: "us-east-1", credentials },
    environment: {
      AWS_ENDPOINT_URL: endpoint,
      AWS_REGION: "us-east-1",
      AWS_ACCESS_KEY_ID: credentials.accessKeyId,
      AWS_SECRET_ACCESS_KEY: credentials.secretAccessKey,
      AWS_EC2_METADATA_DISABLED: "true",
    },
  };
}

/**
 * moto looks whether a key is there and then stores it, with nothing to keep another thread out in between. Python's threads take turns every 5 ms, so that two creators
 * win now and then (3 of 100 rounds of 32 when they take turns every microsecond, whoever the client is). With turns this long nobody comes between.
 */
const motoProgram = "import sys; sys.setswitchinterval(60); from moto.server import main; main(sys.argv[1:])";

/** moto: light, in memory, does not check signatures. */
export async function startMoto(): Promise<S3Server | { readonly skipped: string }> {
  const tool = await obtain(moto);
  if ("skipped" in tool) return tool;
  const server = await startProcess(join(dirname(tool.path), "python"), (port) => [
    "-c",
    motoProgram,
    "-H",
    "127.0.0.1",
    "-p",
    String(port),
  ]);
  return makeBucket("moto", server);
}

/** MinIO: a server that people run in production; checks everything. */
export async function startMinio(): Promise<S3Server | { readonly skipped: string }> {
  const tool = await obtain(minio);
  if ("skipped" in tool) return tool;
  const server = await startProcess(
    tool.path,
    (port, folder) => [
      "server",
      "--quiet",
      "--address",
      `127.0.0.1:${port}`,
      "--console-address",
      "127.0.0.1:0",
      folder,
    ],
    {
      MINIO_ROOT_USER: credentials.accessKeyId,
      MINIO_ROOT_PASSWORD: credentials.secretAccessKey,
      MINIO_UPDATE: "off",
      MINIO_CALLHOME_ENABLE: "off",
      MINIO_BROWSER: "off",
      MINIO_SCANNER_SPEED: "slowest",
    },
  );
  return makeBucket("MinIO", server);
}

async function makeBucket(name: string, server: { readonly port: number; stop(): Promise<void> }): Promise<S3Server> {
  const access = s3Access(`http://127.0.0.1:${server.port}`);
  const { CreateBucketCommand } = await import("@aws-sdk/client-s3");
  const client = await openSdk(access.endpoint);
  for (let tries = 0; ; tries++) {
    try {
      await client.send(new CreateBucketCommand({ Bucket: bucket }));
      break;
    } catch (e) {
      if (tries === 20) throw e;
      await systemEnv.sleep(250); // it listens before it is ready
    }
  }
  client.destroy();
  return { name, ...access, stop: server.stop };
}

/** AWS's own client, to do what ours never does. */
async function openSdk(endpoint: string): Promise<S3Client> {
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] = "true";
  const sdk = await import("@aws-sdk/client-s3");
  return new sdk.S3Client({ endpoint, region: "us-east-1", credentials, forcePathStyle: true });
}

/** Begins an upload in parts of `key` in `store`, sends one part and leaves it there, as a killed process would. */
export async function leaveUpload(server: S3Server, store: ObjectStore, key: string): Promise<void> {
  const { CreateMultipartUploadCommand, UploadPartCommand } = await import("@aws-sdk/client-s3");
  const client = await openSdk(server.endpoint);
  const object = { Bucket: server.bucket, Key: `${store.uri.replace(/^s3:..[^/]*./, "")}/${key}` };
  const { UploadId } = await client.send(new CreateMultipartUploadCommand(object));
  await client.send(new UploadPartCommand({ ...object, UploadId, PartNumber: 1, Body: new Uint8Array(1000) }));
  client.destroy();
}

let stores = 0;

/** A store under a prefix of its own. */
export async function openS3At(server: S3Server, settings: S3StoreSettings = {}): Promise<ObjectStore> {
  const uri = `s3://${server.bucket}/t${stores++}-${systemEnv.id()}/deep`;
  return openStore(uri, { s3: { ...server.settings, ...settings } });
}
