/** Where an `s3://bucket/prefix` is: endpoint, region and style of addressing, from settings and the environment AWS's own tools read. */
import { homedir } from "node:os";
import { join } from "node:path";
import { BatchWeaveError } from "../../errors.js";
import { assertBucketPrefix, splitBucketUri } from "../bucket-uri.js";

/** A server-side encryption that requests ask for. Without one, the bucket's default applies. */
export type S3Encryption =
  | { readonly kind: "aes256" }
  /** With a key of AWS KMS; without `keyId`, the account's default key for S3. */
  | { readonly kind: "kms"; readonly keyId?: string | undefined; readonly context?: string | undefined }
  /** SSE-C: 32 bytes in base64, sent with every request and never stored. Only over TLS. */
  | { readonly kind: "customer"; readonly key: string };

/** Settings of {@link openS3Store}. Everything has a default from the environment or a sane one. */
export interface S3StoreSettings {
  /** Address of an S3-compatible server. Default: AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, S3_ENDPOINT_URL, or AWS itself. */
  endpoint?: string | undefined;
  /** Default: AWS_REGION, AWS_DEFAULT_REGION, the profile's, or us-east-1. */
  region?: string | undefined;
  /** `host/bucket/key` instead of `bucket.host/key`. Default: for every endpoint but AWS's own (BATCHWEAVE_S3_ADDRESSING=path|virtual). */
  pathStyle?: boolean | undefined;
  /** Default: AWS's standard chain (environment, profile, SSO, web identity, container, instance). */
  credentials?: S3Credentials | undefined;
  encryption?: S3Encryption | undefined;
  /** Sign the bytes too. Default: over plain HTTP, where nothing else protects them; over TLS it would only cost CPU. */
  signPayload?: boolean | undefined;
  /** File with certificates to trust besides the system's. Default: AWS_CA_BUNDLE. */
  caFile?: string | undefined;
  /** Connections at most; further requests wait for one. Default 64. */
  connectionsMax?: number | undefined;
  /** To be connected, TLS included. Default 5,000. */
  connectTimeoutMs?: number | undefined;
  /** From the last byte sent to the first of the answer. Default 30,000. */
  responseTimeoutMs?: number | undefined;
  /** Without a byte in either direction. Default 15,000. */
  stallTimeoutMs?: number | undefined;
  /** A body that comes slower than this, over the time of a stall, is given up and read on over another connection. Default 8,192. */
  bodyBytesPerSMin?: number | undefined;
  /** Larger puts are sent in parts of this size, in parallel. Default 32 MiB, at least 5 MiB. */
  partBytes?: number | undefined;
}

/** Keys to sign with. */
export interface S3Credentials {
  readonly accessKeyId: string;
  readonly secretAccessKey: string;
  readonly sessionToken?: string | undefined;
}

/** What requests are built from. */
export interface S3Place {
  /** For messages. */
  readonly uri: string;
  readonly bucket: string;
  /** "" or ends with a slash. */
  readonly prefix: string;
  readonly endpoint: string;
  readonly isTls: boolean;
  /** Host and port: the Host header. */
  readonly host: string;
  /** What stands before the key in a request's path: "/" or "/bucket/". */
  readonly basePath: string;
  readonly region: string;
}

const bucketName = /^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$/;
const regionName = /^[a-z0-9-]{1,40}$/;

/** Reads URI, settings and environment. `readFile` reads AWS's configuration file, if there is one. */
export async function findS3Place(
  uri: string,
  settings: S3StoreSettings,
  environment: NodeJS.ProcessEnv,
  readFile: (path: string) => Promise<string | undefined>,
): Promise<S3Place> {
  const { bucket, prefix } = splitBucketUri(uri, "s3", "bucket");
  if (!bucketName.test(bucket)) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `"${bucket}" in ${uri} is not a bucket's name (3 to 63 of a-z 0-9 . -); write s3://bucket/prefix.`,
      { bucket },
    );
  }
  assertBucketPrefix(uri, prefix);
  const given =
    settings.endpoint ??
    (environment["AWS_ENDPOINT_URL_S3"] || environment["AWS_ENDPOINT_URL"] || environment["S3_ENDPOINT_URL"]);
  const region =
    settings.region ??
    (environment["AWS_REGION"] ||
      environment["AWS_DEFAULT_REGION"] ||
      (await profileRegion(environment, readFile)) ||
      "us-east-1");
  if (!regionName.test(region)) {
    throw new BatchWeaveError("INVALID_ARGUMENT", `"${region}" is not the name of a region; set AWS_REGION.`, {
      region,
    });
  }
  const suffix = region.startsWith("cn-") ? "amazonaws.com.cn" : "amazonaws.com";
  const url = endpointUrl(given || `https://s3.${region}.${suffix}`);
  const isTls = url.protocol === "https:";
  // A dot in the bucket's name would not match AWS's wildcard certificate.
  const isPathStyle = settings.pathStyle ?? addressing(environment) ?? (Boolean(given) || bucket.includes("."));
  const hostname = isPathStyle ? url.hostname : `${bucket}.${url.hostname}`;
  const folder = url.pathname.replace(/\/$/, "");
  return {
    uri: prefix === "" ? `s3://${bucket}` : `s3://${bucket}/${prefix}`,
    bucket,
    prefix: prefix === "" ? "" : `${prefix}/`,
    endpoint: url.origin,
    isTls,
    host: url.port === "" ? hostname : `${hostname}:${url.port}`,
    basePath: isPathStyle ? `${folder}/${bucket}/` : `${folder}/`,
    region,
  };
}

function addressing(environment: NodeJS.ProcessEnv): boolean | undefined {
  const style = environment["BATCHWEAVE_S3_ADDRESSING"];
  if (!style) return undefined;
  if (style === "path" || style === "virtual") return style === "path";
  throw new BatchWeaveError("INVALID_ARGUMENT", `BATCHWEAVE_S3_ADDRESSING is "${style}"; use path or virtual.`, {
    style,
  });
}

function endpointUrl(text: string): URL {
  const url = URL.canParse(text) ? new URL(text) : undefined;
  const isGood =
    url && /^https?:$/.test(url.protocol) && url.username === "" && url.password === "" && url.search === "";
  if (isGood) return url;
  // It may hold a password, so it is not repeated.
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    "The S3 endpoint (AWS_ENDPOINT_URL or the setting) is not an address; write http(s)://host[:port], without user, password or query.",
  );
}

/** The environment's choice of encryption, for commands that take no settings. */
export function encryptionOf(settings: S3StoreSettings, environment: NodeJS.ProcessEnv): S3Encryption | undefined {
  if (settings.encryption) return settings.encryption;
  const [keyId, key] = [environment["BATCHWEAVE_S3_KMS_KEY_ID"], environment["BATCHWEAVE_S3_CUSTOMER_KEY"]];
  if (key) return { kind: "customer", key };
  return keyId ? { kind: "kms", keyId } : undefined;
}

/** `region` of the profile in AWS's configuration file. */
async function profileRegion(
  environment: NodeJS.ProcessEnv,
  readFile: (path: string) => Promise<string | undefined>,
): Promise<string | undefined> {
  const text = await readFile(environment["AWS_CONFIG_FILE"] || join(homedir(), ".aws", "config"));
  if (text === undefined) return undefined;
  const profile = environment["AWS_PROFILE"] || "default";
  const wanted = profile === "default" ? /^(?:profile\s+)?default$/ : undefined;
  let isInside = false;
  for (const line of text.split(/\r?\n/)) {
    const section = /^\s*\[\s*(.*?)\s*\]/.exec(line)?.[1];
    if (section !== undefined) isInside = wanted ? wanted.test(section) : section === `profile ${profile}`;
    const value = isInside ? /^region\s*=\s*([^\s#;]+)/.exec(line)?.[1] : undefined;
    if (value !== undefined) return value;
  }
  return undefined;
}
