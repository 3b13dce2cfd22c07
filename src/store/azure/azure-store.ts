/**
 * Blobs in an Azure container, through Microsoft's own SDK with its retries off: a conditional create is one Put Blob with
 * If-None-Match: *, sent once. 409 BlobAlreadyExists is a loss there; any other 409 is no verdict.
 */
import type { BlobDownloadResponseParsed, ContainerClient, StoragePipelineOptions } from "@azure/storage-blob";
import type { Env } from "../../env/index.js";
import { BatchWeaveError } from "../../errors.js";
import { assertBytesMax, assertRange } from "../arguments.js";
import { bodyBytes, bodyParts, copyBody } from "../body.js";
import { assertBucketPrefix, splitBucketUri } from "../bucket-uri.js";
import {
  type CloudCall,
  type CloudError,
  cloudFailure,
  deleteEach,
  isNoVerdict,
  KeyPage,
  StallWatch,
  timeoutMsDefault,
} from "../cloud/index.js";
import { assertKey, isKey, isKeyPrefix } from "../key.js";
import type {
  Body,
  CallOptions,
  CreateOutcome,
  GetOptions,
  ListOptions,
  ListPage,
  ObjectStore,
} from "../object-store.js";
import { loadPeer } from "../peer.js";

/** Settings of {@link openAzureStore}; what is left out comes from the environment variables that Azure's own tools read. */
export interface AzureStoreSettings {
  /** Default: AZURE_STORAGE_CONNECTION_STRING. Wins over the others. */
  connectionString?: string | undefined;
  /** Default: AZURE_STORAGE_ACCOUNT. */
  account?: string | undefined;
  /** Default: AZURE_STORAGE_KEY. Without key and SAS, `@azure/identity` signs in (managed identity, workload identity, `az login`). */
  accountKey?: string | undefined;
  /** Default: AZURE_STORAGE_SAS_TOKEN. */
  sasToken?: string | undefined;
  /** Default: https://ACCOUNT.blob.core.windows.net (AZURE_STORAGE_BLOB_ENDPOINT). */
  endpoint?: string | undefined;
  /** Without a byte from the server, and a second more for each megabyte that is sent. Default 30,000. */
  timeoutMs?: number | undefined;
}

/** Larger puts go in blocks of half this size, in parallel. Uncommitted blocks vanish by themselves after a week. */
const singlePutBytesMax = 64 * 1024 * 1024;
const resumesMax = 8;
const containerName = /^(?:[a-z0-9](?:-?[a-z0-9]){2,62}|\$root)$/;

/** Opens `az://container/prefix`. Nothing is sent. */
export async function openAzureStore(
  uri: string,
  env: Env,
  settings: AzureStoreSettings = {},
  environment: NodeJS.ProcessEnv = process.env,
): Promise<ObjectStore> {
  const { bucket, prefix } = splitBucketUri(uri, "az", "container");
  if (!containerName.test(bucket)) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `"${bucket}" in ${uri} is not a container's name; write az://container/prefix (3 to 63 of a-z 0-9 -).`,
      { container: bucket },
    );
  }
  assertBucketPrefix(uri, prefix);
  const client = await connect(bucket, settings, environment);
  return new AzureStore(client, prefix, new StallWatch(env, settings.timeoutMs ?? timeoutMsDefault));
}

async function connect(
  container: string,
  settings: AzureStoreSettings,
  environment: NodeJS.ProcessEnv,
): Promise<ContainerClient> {
  const sdk = await loadPeer<typeof import("@azure/storage-blob")>("@azure/storage-blob");
  const options: StoragePipelineOptions = { retryOptions: { maxTries: 1 } };
  const account =
    settings.account ?? (environment["AZURE_STORAGE_ACCOUNT"] || environment["AZURE_STORAGE_ACCOUNT_NAME"]);
  const key = settings.accountKey ?? (environment["AZURE_STORAGE_KEY"] || environment["AZURE_STORAGE_ACCOUNT_KEY"]);
  const sas = settings.sasToken ?? environment["AZURE_STORAGE_SAS_TOKEN"];
  const connection = settings.connectionString ?? environment["AZURE_STORAGE_CONNECTION_STRING"];
  const given = settings.endpoint ?? environment["AZURE_STORAGE_BLOB_ENDPOINT"];
  if (connection && !settings.account) {
    try {
      return sdk.BlobServiceClient.fromConnectionString(connection, options).getContainerClient(container);
    } catch {
      // The SDK's message may hold the string, and with it the key.
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        "AZURE_STORAGE_CONNECTION_STRING is not a connection string; copy it from the storage account's access keys.",
      );
    }
  }
  if (!account) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `No storage account for az://${container}; set AZURE_STORAGE_ACCOUNT (and a key, a SAS or a login) or AZURE_STORAGE_CONNECTION_STRING.`,
    );
  }
  const endpoint = (given || `https://${account}.blob.core.windows.net`).replace(/\/+$/, "");
  if (sas)
    return new sdk.BlobServiceClient(
      `${endpoint}?${sas.replace(/^\?/, "")}`,
      new sdk.AnonymousCredential(),
      options,
    ).getContainerClient(container);
  if (key)
    return new sdk.BlobServiceClient(
      endpoint,
      new sdk.StorageSharedKeyCredential(account, key),
      options,
    ).getContainerClient(container);
  const identity = await loadPeer<{ DefaultAzureCredential: new () => never }>("@azure/identity");
  return new sdk.BlobServiceClient(endpoint, new identity.DefaultAzureCredential(), options).getContainerClient(
    container,
  );
}

/** See the head of this file. Made by {@link openAzureStore}. */
class AzureStore implements ObjectStore {
  readonly uri: string;
  readonly #client: ContainerClient;
  readonly #prefix: string;
  /** The SDK itself knows no timeout: its setting is only passed on to the server. */
  readonly #watch: StallWatch;

  /** @internal */
  constructor(client: ContainerClient, prefix: string, watch: StallWatch) {
    this.#watch = watch;
    this.#client = client;
    this.#prefix = prefix === "" ? "" : `${prefix}/`;
    this.uri = `az://${client.containerName}${prefix === "" ? "" : `/${prefix}`}`;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    try {
      // The caller's commit point. Sent once: the SDK's retries are off.
      const { etag } = await this.#watch.run(options, bodyBytes(body), (abortSignal) =>
        this.#blob(key).upload(oneBuffer(body), bodyBytes(body), { conditions: { ifNoneMatch: "*" }, abortSignal }),
      );
      return etag === undefined ? "unknown" : "created";
    } catch (e) {
      const error = readError(e);
      if (error.status === 412 || (error.status === 409 && error.code === "BlobAlreadyExists")) return "exists";
      if (isNoVerdict(error)) return "unknown";
      throw this.#failure(e, "write", key, "Blob Data Contributor on the container");
    }
  }

  async put(key: string, body: Body, options?: CallOptions): Promise<void> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    const bytes = bodyBytes(body);
    try {
      await this.#watch.run(options, bytes, async (abortSignal) => {
        const blob = this.#blob(key);
        if (bytes <= singlePutBytesMax) return blob.upload(oneBuffer(body), bytes, { abortSignal });
        const parts = { blockSize: singlePutBytesMax / 2, concurrency: 4, maxSingleShotSize: 0 };
        return blob.uploadData(oneBuffer(body), { ...parts, abortSignal });
      });
    } catch (e) {
      options?.signal?.throwIfAborted();
      throw this.#failure(e, "write", key, "Blob Data Contributor on the container");
    }
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    // One byte more than can be right is asked for, never all of a foreign object.
    const limit = options?.bytesMax;
    const bytes = await this.#read(key, 0, limit === undefined ? undefined : limit + 1, options);
    if (bytes) assertBytesMax(`${this.uri}/${key}`, bytes.byteLength, limit);
    return bytes;
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    assertRange(key, start, length);
    options?.signal?.throwIfAborted();
    // A range of nothing still has to say whether there is an object.
    if (length === 0) return (await this.#read(key, 0, 1, options))?.subarray(0, 0);
    return this.#read(key, start, start + length > Number.MAX_SAFE_INTEGER ? undefined : length, options);
  }

  /** The SDK itself goes on where a transfer broke, with If-Match; the length is checked here. */
  async #read(
    key: string,
    start: number,
    length: number | undefined,
    options: CallOptions | undefined,
  ): Promise<Uint8Array | undefined> {
    try {
      return await this.#watch.run(options, 0, async (abortSignal, progress) => {
        const answer = await this.#blob(key).download(start, length, { maxRetryRequests: resumesMax, abortSignal });
        return await collect(answer, progress);
      });
    } catch (e) {
      options?.signal?.throwIfAborted();
      const error = readError(e);
      if (error.status === 404 && error.code === "BlobNotFound") return undefined;
      if (error.status === 416) return new Uint8Array(0);
      throw this.#failure(e, "read", key, "Blob Data Reader on the container");
    }
  }

  /** Newer versions of the service begin where they are told to; older ones (and Azurite) begin at the beginning, and what comes before is passed over. */
  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    options?.signal?.throwIfAborted();
    const page = new KeyPage(this.#prefix, options);
    if (!isKeyPrefix(prefix)) return page.end(false);
    const query = {
      prefix: `${this.#prefix}${prefix}`,
      ...(isKey(page.after) && { startFrom: page.after }),
    };
    try {
      return await this.#watch.run(options, 0, async (abortSignal, progress) => {
        const pages = this.#client.listBlobsFlat({ ...query, abortSignal }).byPage({ maxPageSize: page.limit + 1 });
        for await (const { segment } of pages) {
          progress();
          for (const { name, properties } of segment.blobItems) {
            if (!page.take(name, properties.contentLength ?? 0)) return page.end(true);
          }
        }
        return page.end(false);
      });
    } catch (e) {
      options?.signal?.throwIfAborted();
      throw this.#failure(e, "list", "", "Blob Data Reader on the container");
    }
  }

  async delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    await deleteEach(keys, options, async (key) => {
      try {
        await this.#watch.run(options, 0, (abortSignal) => this.#blob(key).delete({ abortSignal }));
      } catch (e) {
        const { status, code } = readError(e);
        if (status === 404 && code === "BlobNotFound") return;
        throw this.#failure(e, "delete", key, "Blob Data Contributor on the container");
      }
    });
  }

  #blob(key: string): ReturnType<ContainerClient["getBlockBlobClient"]> {
    return this.#client.getBlockBlobClient(`${this.#prefix}${key}`);
  }

  #failure(e: unknown, doing: string, key: string, permission: string): unknown {
    if (!isRestError(e)) return e;
    const { origin } = new URL(this.#client.url);
    const call: CloudCall = {
      uri: this.uri,
      doing,
      key,
      permission: `the role Storage ${permission}`,
      endpoint: origin,
    };
    const error = readError(e);
    if (error.code === "ContainerNotFound" || error.code === "ContainerBeingDeleted") {
      return cloudFailure(call, error, [
        "INVALID_ARGUMENT",
        `there is no container "${this.#client.containerName}" at ${origin}; create it or correct the URI`,
      ]);
    }
    if (error.code === "AuthenticationFailed") {
      return cloudFailure(call, error, [
        "STORE_DENIED",
        "the credentials were not accepted; check the key or SAS, its expiry, and this machine's clock",
      ]);
    }
    return cloudFailure(call, error);
  }
}

function oneBuffer(body: Body): Uint8Array {
  const parts = bodyParts(body);
  return parts.length === 1 ? (parts[0] as Uint8Array) : copyBody(body);
}

async function collect(answer: BlobDownloadResponseParsed, progress: () => void): Promise<Uint8Array> {
  const announced = answer.contentLength ?? Number.NaN;
  const chunks: Uint8Array[] = [];
  for await (const chunk of answer.readableStreamBody ?? []) {
    progress();
    chunks.push(chunk as unknown as Uint8Array);
  }
  const bytes = copyBody(chunks);
  if (announced >= 0 && bytes.byteLength !== announced)
    throw Object.assign(new Error("cut short"), { name: "RestError", code: "ECONNRESET" });
  return bytes;
}

function isRestError(e: unknown): e is Error & {
  statusCode?: number;
  code?: string;
  response?: { headers?: { get(name: string): string | undefined } };
} {
  return e instanceof Error && (e.name === "RestError" || e.name === "AbortError" || "code" in e);
}

function readError(e: unknown): CloudError {
  if (!isRestError(e)) return { status: undefined, code: "" };
  const asked = Number(e.response?.headers?.get("retry-after") ?? Number.NaN);
  return {
    status: e.statusCode,
    code: typeof e.code === "string" ? e.code : "",
    ...(asked >= 0 && { retryAfterMs: asked * 1_000 }),
  };
}
