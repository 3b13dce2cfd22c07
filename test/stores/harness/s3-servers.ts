/** S3 servers for tests, chaos and benchmarks: started on loopback, with a bucket, their telemetry off. */
import { type ObjectStore, openStore, type S3StoreSettings, systemEnv } from "../../../src/index.js";
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

/** moto: light, in memory, does not check signatures. */
export async function startMoto(): Promise<S3Server | { readonly skipped: string }> {
  const tool = await obtain(moto);
  if ("skipped" in tool) return tool;
  const server = await startProcess(tool.path, (port) => ["-H", "127.0.0.1", "-p", String(port)]);
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
  process.env["AWS_SDK_JS_NODE_VERSION_SUPPORT_WARNING_DISABLED"] = "true";
  const { CreateBucketCommand, S3Client } = await import("@aws-sdk/client-s3");
  const client = new S3Client({
    ...access.settings,
    region: "us-east-1",
    endpoint: access.endpoint,
    credentials,
    forcePathStyle: true,
  });
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

let stores = 0;

/** A store under a prefix of its own. */
export async function openS3At(server: S3Server, settings: S3StoreSettings = {}): Promise<ObjectStore> {
  const uri = `s3://${server.bucket}/t${stores++}-${systemEnv.id()}/deep`;
  return openStore(uri, { s3: { ...server.settings, ...settings } });
}
