/**
 * Objects in a Google Cloud Storage bucket, through Google's own SDK with its retries off: a conditional create is one upload with
 * ifGenerationMatch=0, sent once. 429 is what racing creators of one name get; it is no verdict.
 */
import type { Readable } from "node:stream";
import type { Bucket, File } from "@google-cloud/storage";
import type { Env } from "../../env/index.js";
import { assertBytesMax, assertRange } from "../arguments.js";
import { bodyParts, copyBody } from "../body.js";
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
import { assertKey, isKeyPrefix } from "../key.js";
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

/** Settings of {@link openGcsStore}. Credentials are found as Google's own tools find them (Application Default Credentials). */
export interface GcsStoreSettings {
  /** Another server, such as an emulator's. Default: STORAGE_EMULATOR_HOST, or Google's. Without authentication. */
  endpoint?: string | undefined;
  /** Default: what the credentials say. */
  projectId?: string | undefined;
  /** A service account's key. Default: GOOGLE_APPLICATION_CREDENTIALS. */
  keyFile?: string | undefined;
  /** Without a byte from the server, and a second more for each megabyte that is sent. Default 30,000. */
  timeoutMs?: number | undefined;
}

const resumesMax = 8;
const putPermission = "storage.objects.create and storage.objects.delete";

/** Opens `gs://bucket/prefix`. Nothing is sent. */
export async function openGcsStore(
  uri: string,
  env: Env,
  settings: GcsStoreSettings = {},
  environment: NodeJS.ProcessEnv = process.env,
): Promise<ObjectStore> {
  const { bucket, prefix } = splitBucketUri(uri, "gs", "bucket");
  assertBucketPrefix(uri, prefix);
  const { Storage } = await loadPeer<typeof import("@google-cloud/storage")>("@google-cloud/storage");
  const timeoutMs = settings.timeoutMs ?? timeoutMsDefault;
  const given = settings.endpoint ?? environment["STORAGE_EMULATOR_HOST"];
  // Google's own tools disagree on whether the variable ends with the path, so it may.
  const endpoint = given && (given.includes("://") ? given : `http://${given}`).replace(/\/(?:storage\/v1\/?)?$/, "");
  const storage = new Storage({
    retryOptions: { autoRetry: false, maxRetries: 0 },
    // Of a whole request, however large: only a last resort, so that none outlives its caller for ever.
    timeout: 10 * timeoutMs,
    ...(endpoint && { apiEndpoint: endpoint }),
    ...(settings.projectId !== undefined && { projectId: settings.projectId }),
    ...(settings.keyFile !== undefined && { keyFilename: settings.keyFile }),
  });
  if (endpoint) storage.baseUrl = `${endpoint}/storage/v1`; // which the SDK would take from the variable as it is
  return new GcsStore(
    storage.bucket(bucket),
    prefix,
    endpoint || "https://storage.googleapis.com",
    new StallWatch(env, timeoutMs),
  );
}

/** See the head of this file. Made by {@link openGcsStore}. The SDK takes no AbortSignal: an aborted call returns at once, what was sent goes on. */
class GcsStore implements ObjectStore {
  readonly uri: string;
  readonly #bucket: Bucket;
  readonly #prefix: string;
  readonly #endpoint: string;
  readonly #watch: StallWatch;

  /** @internal */
  constructor(bucket: Bucket, prefix: string, endpoint: string, watch: StallWatch) {
    this.#watch = watch;
    this.#bucket = bucket;
    this.#prefix = prefix === "" ? "" : `${prefix}/`;
    this.#endpoint = endpoint;
    this.uri = `gs://${bucket.name}${prefix === "" ? "" : `/${prefix}`}`;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    try {
      // The caller's commit point. Sent once: the SDK's retries are off.
      return (await this.#save(key, body, { ifGenerationMatch: 0 }, options)) ? "created" : "unknown";
    } catch (e) {
      if (options?.signal?.aborted) return "unknown";
      const error = readError(e);
      if (error.status === 412) return "exists";
      if (isNoVerdict(error)) return "unknown";
      throw this.#failure(e, "write", key, "storage.objects.create");
    }
  }

  async put(key: string, body: Body, options?: CallOptions): Promise<void> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    try {
      if (await this.#save(key, body, undefined, options)) return;
    } catch (e) {
      options?.signal?.throwIfAborted();
      throw this.#failure(e, "write", key, putPermission);
    }
    throw cloudFailure(this.#call("write", key, putPermission), { status: 200, code: "" });
  }

  /** Whether it is stored: an object has a generation; a page that a proxy sent under status 200 has none. */
  async #save(
    key: string,
    body: Body,
    conditions: { ifGenerationMatch: number } | undefined,
    options: CallOptions | undefined,
  ): Promise<boolean> {
    const parts = bodyParts(body);
    const bytes = parts.length === 1 ? (parts[0] as Uint8Array) : copyBody(body);
    const file = this.#file(key);
    await this.#watch.run(options, bytes.byteLength, () =>
      file.save(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength), {
        resumable: false,
        validation: false,
        metadata: { contentType: "application/octet-stream", cacheControl: "no-store" },
        ...(conditions && { preconditionOpts: conditions }),
      }),
    );
    return file.metadata.generation !== undefined;
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    // One byte more than can be right is asked for, never all of a foreign object.
    const limit = options?.bytesMax;
    const bytes = await this.#read(key, 0, (limit ?? Number.POSITIVE_INFINITY) + 1, options);
    if (bytes) assertBytesMax(`${this.uri}/${key}`, bytes.byteLength, limit);
    return bytes;
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    assertRange(key, start, length);
    options?.signal?.throwIfAborted();
    // A range of nothing still has to say whether there is an object.
    if (length === 0) return (await this.#read(key, 0, 1, options))?.subarray(0, 0);
    return this.#read(key, start, start + length, options);
  }

  /** Goes on where a transfer broke, at the same generation. */
  async #read(
    key: string,
    start: number,
    end: number,
    options: CallOptions | undefined,
  ): Promise<Uint8Array | undefined> {
    const parts: Uint8Array[] = [];
    let at = start;
    let generation: string | undefined;
    for (let breaks = 0; ; breaks++) {
      const read = this.#watch.run(options, 0, (signal, progress) =>
        this.#readOnce(key, at, end, generation, signal, progress),
      );
      const piece = await read.catch((e: unknown) => {
        options?.signal?.throwIfAborted();
        const error = readError(e);
        if (error.status === 416) return { bytes: new Uint8Array(0), isWhole: true, generation };
        // A missing bucket is a 404 too, and only the text tells.
        if (error.status === 404 && !isBucketMissing(e)) return undefined;
        throw this.#failure(e, "read", key, "storage.objects.get");
      });
      if (!piece) return undefined;
      parts.push(piece.bytes);
      at += piece.bytes.byteLength;
      generation ??= piece.generation;
      if (piece.isWhole) return parts.length === 1 ? parts[0] : copyBody(parts);
      if (breaks >= resumesMax || piece.bytes.byteLength === 0) {
        throw cloudFailure(this.#call("read", key, "storage.objects.get"), { status: undefined, code: "ECONNRESET" });
      }
    }
  }

  #readOnce(
    key: string,
    at: number,
    end: number,
    generation: string | undefined,
    signal: AbortSignal,
    progress: () => void,
  ): Promise<{ readonly bytes: Uint8Array; readonly isWhole: boolean; readonly generation: string | undefined }> {
    const file = this.#file(key, generation);
    const isRange = at > 0 || end !== Number.POSITIVE_INFINITY;
    const stream: Readable = file.createReadStream({
      validation: false,
      decompress: false,
      ...(isRange && { start: at, ...(end <= Number.MAX_SAFE_INTEGER && { end: end - 1 }) }),
    });
    return new Promise((resolve, reject) => {
      const chunks: Uint8Array[] = [];
      let announced = Number.NaN;
      let isGivenUp = false;
      let found: string | undefined;
      const settle = (e: Error | undefined): void => {
        const bytes = copyBody(chunks);
        // No answer yet, or an error that is one: nothing to go on from.
        if (e && (bytes.byteLength === 0 || readError(e).status !== undefined)) reject(e);
        else resolve({ bytes, isWhole: !e && !(bytes.byteLength < announced), generation: found });
      };
      // Not destroyed: the SDK then keeps the connection to itself, and after some hedged reads every call waits for one. What still comes is thrown away.
      const giveUp = (): void => {
        isGivenUp = true;
        chunks.length = 0;
        reject(signal.reason);
      };
      signal.addEventListener("abort", giveUp, { once: true });
      stream.on("response", (response: { headers: unknown }) => {
        announced = Number(headerOf(response.headers, "content-length") ?? Number.NaN);
        found = headerOf(response.headers, "x-goog-generation");
      });
      stream.on("data", (chunk: Uint8Array) => {
        if (isGivenUp) return;
        progress();
        chunks.push(chunk);
      });
      stream.once("end", () => settle(undefined));
      stream.once("error", settle);
    });
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    options?.signal?.throwIfAborted();
    const page = new KeyPage(this.#prefix, options);
    if (!isKeyPrefix(prefix)) return page.end(false);
    let pageToken: string | undefined;
    try {
      for (;;) {
        const query = {
          prefix: `${this.#prefix}${prefix}`,
          maxResults: page.limit + 1,
          autoPaginate: false,
          ...(page.after !== "" && { startOffset: page.after }),
          ...(pageToken !== undefined && { pageToken }),
        };
        const [files, next] = await this.#watch.run(options, 0, () => this.#bucket.getFiles(query));
        for (const { name, metadata } of files) {
          if (!page.take(name, Number(metadata.size ?? 0))) return page.end(true);
        }
        pageToken = (next as { pageToken?: string } | null)?.pageToken;
        if (pageToken === undefined) return page.end(false);
      }
    } catch (e) {
      options?.signal?.throwIfAborted();
      throw this.#failure(e, "list", "", "storage.objects.list");
    }
  }

  async delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    await deleteEach(keys, options, async (key) => {
      try {
        await this.#watch.run(options, 0, () => this.#file(key).delete());
      } catch (e) {
        if (readError(e).status === 404 && !isBucketMissing(e)) return;
        throw this.#failure(e, "delete", key, "storage.objects.delete");
      }
    });
  }

  #file(key: string, generation?: string): File {
    return this.#bucket.file(`${this.#prefix}${key}`, generation === undefined ? {} : { generation });
  }

  #call(doing: string, key: string, permission: string): CloudCall {
    return { uri: this.uri, doing, key, permission: `${permission} on ${this.#bucket.name}`, endpoint: this.#endpoint };
  }

  #failure(e: unknown, doing: string, key: string, permission: string): unknown {
    if (!(e instanceof Error)) return e;
    const call = this.#call(doing, key, permission);
    const error = readError(e);
    // A write or a listing finds nothing missing but the bucket.
    if (isBucketMissing(e) || (error.status === 404 && (doing === "write" || doing === "list"))) {
      return cloudFailure(call, error, [
        "INVALID_ARGUMENT",
        `there is no bucket "${this.#bucket.name}" at ${this.#endpoint}; create it or correct the URI`,
      ]);
    }
    if (/Could not load the default credentials|invalid_grant|Could not refresh access token/i.test(e.message)) {
      return cloudFailure(call, error, [
        "STORE_DENIED",
        "no credentials, or they have expired; run `gcloud auth application-default login` or set GOOGLE_APPLICATION_CREDENTIALS",
      ]);
    }
    return cloudFailure(call, error);
  }
}

function headerOf(headers: unknown, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const value = (headers as Record<string, unknown> | undefined)?.[name];
  return typeof value === "string" ? value : undefined;
}

function isBucketMissing(e: unknown): boolean {
  return (
    e instanceof Error &&
    readError(e).status === 404 &&
    /bucket (?:does not exist|not found)|no such bucket/i.test(e.message)
  );
}

/** The SDK puts the status into `code`, as a number or as text; the network's codes are there too. */
function readError(e: unknown): CloudError {
  const raw = e instanceof Error && "code" in e ? e.code : undefined;
  const status = Number(raw);
  if (Number.isInteger(status) && status >= 100 && status <= 599) return { status, code: "" };
  return { status: undefined, code: typeof raw === "string" ? raw : "" };
}
