/**
 * Objects in an S3 bucket, or in one of any server that speaks its protocol and passes the probe.
 *
 * A thin client of our own: six calls do not need an SDK, and an SDK's retries would turn a create that succeeded into one that
 * "exists". A conditional create is one PUT with If-None-Match: *, sent once; what its answer does not say is `unknown`.
 */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { rootCertificates } from "node:tls";
import type { Env } from "../../env/index.js";
import { BatchWeaveError } from "../../errors.js";
import { assertRange, listLimit } from "../arguments.js";
import { bodyBytes, joinAdjacent } from "../body.js";
import { type HttpAnswer, HttpClient, HttpFailure } from "../http/index.js";
import { assertKey, isKey, isKeyPrefix } from "../key.js";
import type {
  AbortUploadsOptions,
  Body,
  CallOptions,
  CreateOutcome,
  GetOptions,
  ListedObject,
  ListOptions,
  ListPage,
  ObjectStore,
} from "../object-store.js";
import { abortUploadsBefore, putInParts } from "./multipart.js";
import { S3Calls, type S3Request } from "./s3-calls.js";
import { errorOf, foreignAnswer, isTransient, networkFailure, readS3Error, type S3Action } from "./s3-failure.js";
import { encryptionOf, findS3Place, type S3Place, type S3StoreSettings } from "./s3-place.js";
import { readObject } from "./s3-read.js";
import { childText, escapeXml, parseXml } from "./xml.js";

const partBytesMin = 5 * 1024 * 1024;
const partBytesDefault = 32 * 1024 * 1024;
/** S3 takes no more in one PUT, and a conditional create is always one. */
const singlePutBytesMax = 5 * 1024 ** 3;
const deletedAtOnce = 1000;
/**
 * Denials in a row that are not believed where writes were allowed before: MinIO answers AccessDenied to a write whose folder is being
 * emptied at that moment, and a policy that changes under a running job takes a moment everywhere.
 */
const doubtedDenialsMax = 4;

/** Opens `s3://bucket/prefix`. Nothing is sent: wrong credentials or a missing bucket show with the first call. */
export async function openS3Store(
  uri: string,
  env: Env,
  settings: S3StoreSettings = {},
  environment: NodeJS.ProcessEnv = process.env,
): Promise<S3Store> {
  const readIfThere = (path: string): Promise<string | undefined> => readFile(path, "utf8").catch(() => undefined);
  const place = await findS3Place(uri, settings, environment, readIfThere);
  const caFile = settings.caFile ?? (environment["AWS_CA_BUNDLE"] || undefined);
  const client = new HttpClient({
    origin: `${place.isTls ? "https" : "http"}://${place.host}`,
    ca: caFile === undefined ? undefined : await certificates(caFile, environment),
    connectionsMax: positive("connectionsMax", settings.connectionsMax, 64),
    connectTimeoutMs: positive("connectTimeoutMs", settings.connectTimeoutMs, 5_000),
    responseTimeoutMs: positive("responseTimeoutMs", settings.responseTimeoutMs, 30_000),
    stallTimeoutMs: positive("stallTimeoutMs", settings.stallTimeoutMs, 15_000),
    bodyBytesPerSMin: positive("bodyBytesPerSMin", settings.bodyBytesPerSMin, 8_192),
    monotonic: () => env.monotonic(),
    nextTurn: () => env.sleep(0),
  });
  const calls = new S3Calls(place, env, client, {
    credentials: settings.credentials,
    encryption: encryptionOf(settings, environment),
    signsPayload: settings.signPayload ?? !place.isTls,
    environment,
  });
  const partBytes = Math.max(partBytesMin, positive("partBytes", settings.partBytes, partBytesDefault));
  return new S3Store(place, calls, client, partBytes);
}

/** Naming certificates replaces all that Node would trust by itself, so those are named too. */
async function certificates(path: string, environment: NodeJS.ProcessEnv): Promise<string[]> {
  const extra = environment["NODE_EXTRA_CA_CERTS"];
  const trusted = extra ? await readFile(extra, "utf8").catch(() => undefined) : undefined;
  const wrong = (what: string, e?: unknown): BatchWeaveError =>
    new BatchWeaveError("INVALID_ARGUMENT", `${what} ${path}; correct AWS_CA_BUNDLE.`, { path }, e);
  const named = await readFile(path, "utf8").catch((e: unknown) => {
    throw wrong("Cannot read the certificates in", e);
  });
  // Node would pass over a file without one and later find the server not trusted.
  if (!named.includes("-----BEGIN")) throw wrong("There is no certificate (PEM) in", undefined);
  return [...rootCertificates, ...(trusted === undefined ? [] : [trusted]), named];
}

function positive(name: string, value: number | undefined, otherwise: number): number {
  if (value === undefined) return otherwise;
  if (Number.isInteger(value) && value > 0) return value;
  throw new BatchWeaveError("INVALID_ARGUMENT", `${name} is ${value}; use a whole number above 0.`, { [name]: value });
}

/** See the head of this file. Made by {@link openS3Store}. */
class S3Store implements ObjectStore {
  readonly uri: string;
  readonly #place: S3Place;
  readonly #calls: S3Calls;
  readonly #client: HttpClient;
  readonly #partBytes: number;
  #hasWritten = false;
  #denials = 0;

  /** @internal */
  constructor(place: S3Place, calls: S3Calls, client: HttpClient, partBytes: number) {
    this.uri = place.uri;
    this.#place = place;
    this.#calls = calls;
    this.#client = client;
    this.#partBytes = partBytes;
  }

  async create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    assertKey(key);
    if (bodyBytes(body) > singlePutBytesMax) {
      throw new BatchWeaveError(
        "LIMIT",
        `${key} has ${bodyBytes(body)} bytes; a conditional create takes at most ${singlePutBytesMax}.`,
        { key },
      );
    }
    const request = this.#write(key, body, options?.signal, { "if-none-match": "*" });
    let answer: HttpAnswer;
    try {
      // The caller's commit point. Sent once: a second try could be told "exists" by the success of the first.
      answer = await this.#calls.sendOnce(request);
    } catch (e) {
      if (!(e instanceof HttpFailure)) throw e;
      // From the moment the connection stood, the server may have seen it; an abort cannot take that back.
      if (e.isSent) return "unknown";
      options?.signal?.throwIfAborted();
      throw networkFailure(this.#place, request.action, e);
    }
    return this.#outcome(request, answer);
  }

  #outcome(request: S3Request, answer: HttpAnswer): CreateOutcome {
    const { status } = answer;
    if (status >= 200 && status <= 299) {
      if (!isStored(answer)) return "unknown";
      this.#written();
      return "created";
    }
    if (status === 412) return "exists";
    if (this.#doubts(answer)) return "unknown";
    const error = readS3Error(answer);
    if (isTransient(status, error) && status !== 507) return "unknown";
    // An error that S3 itself worded, or a denial, was a refusal. Anything else came from something in between.
    if (error || status === 401 || status === 403 || status === 407 || status === 501) {
      throw this.#calls.failure(request, answer);
    }
    return "unknown";
  }

  async put(key: string, body: Body, options?: CallOptions): Promise<void> {
    assertKey(key);
    options?.signal?.throwIfAborted();
    // Up to two parts, the extra requests cost more than the parallel transfer saves.
    if (bodyBytes(body) > 2 * this.#partBytes) {
      await putInParts(this.#calls, key, body, this.#partBytes, options?.signal);
      return;
    }
    const request = this.#write(key, body, options?.signal, {});
    const answer = await this.#calls.send(request);
    if (this.#doubts(answer)) {
      throw new BatchWeaveError(
        "STORE_UNAVAILABLE",
        `Cannot write ${this.uri}/${key}: denied, where it was allowed before; try again.`,
        { uri: this.uri, key, status: answer.status },
      );
    }
    if (answer.status < 200 || answer.status > 299) throw this.#calls.failure(request, answer);
    if (answer.broken) throw networkFailure(this.#place, request.action, answer.broken);
    if (!isStored(answer)) throw foreignAnswer(this.#place, request.action, answer);
    this.#written();
  }

  #written(): void {
    this.#hasWritten = true;
    this.#denials = 0;
  }

  #doubts(answer: HttpAnswer): boolean {
    return (
      answer.status === 403 &&
      this.#hasWritten &&
      readS3Error(answer)?.code === "AccessDenied" &&
      ++this.#denials <= doubtedDenialsMax
    );
  }

  async get(key: string, options?: GetOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    return readObject(this.#calls, key, undefined, options?.signal, options?.bytesMax);
  }

  async getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    assertKey(key);
    assertRange(key, start, length);
    return readObject(this.#calls, key, { start, length }, options?.signal);
  }

  async list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const limit = listLimit(options);
    options?.signal?.throwIfAborted();
    if (!isKeyPrefix(prefix)) return { objects: [], more: false };
    const root = this.#place.prefix;
    let startAfter = options?.startAfter === undefined ? "" : `${root}${options.startAfter}`;
    for (;;) {
      const page = await this.#listPage(`${root}${prefix}`, startAfter, limit, options?.signal);
      const objects: ListedObject[] = [];
      for (const { key, size } of page.objects) {
        // Other people's objects below our prefix ("folder/", names with spaces) are none of ours.
        const own = key.slice(root.length);
        if (key.startsWith(root) && isKey(own)) objects.push({ key: own, size });
      }
      // A page without a key would leave the caller nothing to go on from.
      const last = page.objects.at(-1)?.key;
      if (objects.length > 0 || !page.more || last === undefined) return { objects, more: page.more };
      startAfter = last;
    }
  }

  async #listPage(
    prefix: string,
    startAfter: string,
    limit: number,
    signal: AbortSignal | undefined,
  ): Promise<ListPage> {
    const action: S3Action = { doing: "list", permission: "s3:ListBucket", key: "" };
    const query: Record<string, string> = { "list-type": "2", "max-keys": String(limit), prefix };
    if (startAfter !== "") query["start-after"] = startAfter;
    const answer = await this.#calls.sendOk({ action, method: "GET", query, signal });
    const root = parseXml(new TextDecoder().decode(answer.body));
    const more = childText(root, "IsTruncated");
    if (root?.name !== "ListBucketResult" || (more !== "true" && more !== "false")) {
      throw foreignAnswer(this.#place, action, answer);
    }
    const objects: ListedObject[] = [];
    for (const entry of root.children) {
      if (entry.name !== "Contents") continue;
      const [key, size] = [childText(entry, "Key"), Number(childText(entry, "Size") ?? Number.NaN)];
      if (key === undefined || !Number.isSafeInteger(size)) throw foreignAnswer(this.#place, action, answer);
      objects.push({ key, size });
    }
    // Keys of ours are ASCII: string order is byte order. Sorted already everywhere but on directory buckets.
    objects.sort((a, b) => (a.key < b.key ? -1 : a.key > b.key ? 1 : 0));
    return { objects, more: more === "true" };
  }

  async delete(keys: readonly string[], options?: CallOptions): Promise<void> {
    for (const key of keys) assertKey(key);
    options?.signal?.throwIfAborted();
    for (let at = 0; at < keys.length; at += deletedAtOnce) {
      await this.#deleteSome(keys.slice(at, at + deletedAtOnce), options?.signal);
    }
  }

  async #deleteSome(keys: readonly string[], signal: AbortSignal | undefined): Promise<void> {
    const action: S3Action = { doing: "delete", permission: "s3:DeleteObject", key: keys[0] as string };
    const entries = keys.map((key) => `<Object><Key>${escapeXml(this.#place.prefix + key)}</Key></Object>`);
    const body = new TextEncoder().encode(`<Delete><Quiet>true</Quiet>${entries.join("")}</Delete>`);
    const headers = { "content-type": "application/xml", ...checksumHeader(body) };
    const answer = await this.#calls.sendOk({ action, method: "POST", query: { delete: "" }, headers, body, signal });
    const root = parseXml(new TextDecoder().decode(answer.body));
    if (root?.name !== "DeleteResult") throw foreignAnswer(this.#place, action, answer);
    const failed = root.children.find((child) => child.name === "Error" && childText(child, "Code") !== "NoSuchKey");
    if (!failed) return;
    const code = errorOf(failed)?.code ?? "an error";
    const key = `${this.#place.prefix}${keys.find((one) => childText(failed, "Key") === this.#place.prefix + one) ?? action.key}`;
    const isDenied = code === "AccessDenied";
    throw new BatchWeaveError(
      isDenied ? "STORE_DENIED" : "STORE_UNAVAILABLE",
      isDenied
        ? `Cannot delete s3://${this.#place.bucket}/${key}: denied; allow s3:DeleteObject on ${this.#place.bucket}/${this.#place.prefix}* (and no object lock).`
        : `Cannot delete s3://${this.#place.bucket}/${key}: the store answered ${code}; try again.`,
      { key, s3: code },
    );
  }

  /** Aborts uploads of parts that began more than `olderThanMs` ago and were never completed; gives their number. */
  async abortUploads(prefix: string, olderThanMs: number, options?: AbortUploadsOptions): Promise<number> {
    options?.signal?.throwIfAborted();
    if (!(olderThanMs >= 0)) {
      throw new BatchWeaveError("INVALID_ARGUMENT", `An age of ${olderThanMs} ms is none; use 0 or more.`, {
        olderThanMs,
      });
    }
    if (!isKeyPrefix(prefix)) return 0;
    return abortUploadsBefore(this.#calls, prefix, this.#calls.env.now() - olderThanMs, options);
  }

  /** Ends idle connections. */
  close(): void {
    this.#client.close();
  }

  #write(
    key: string,
    body: Body,
    signal: AbortSignal | undefined,
    headers: Readonly<Record<string, string>>,
  ): S3Request {
    return {
      action: { doing: "write", permission: "s3:PutObject", key },
      method: "PUT",
      key,
      headers: { ...headers, ...this.#calls.writeHeaders },
      body: joinAdjacent(body),
      signal,
    };
  }
}

/** A stored object has an ETag; an error may come under status 200 and has none, and neither has a proxy's page. */
function isStored(answer: HttpAnswer): boolean {
  if (answer.broken || answer.headers["etag"] === undefined) return false;
  return answer.body.byteLength === 0 || !/^\s*</.test(new TextDecoder().decode(answer.body.subarray(0, 64)));
}

/** S3 wants a checksum with a multi-object delete; MD5 is what every server knows, but a FIPS build of Node has none. */
function checksumHeader(body: Uint8Array): Record<string, string> {
  try {
    return { "content-md5": createHash("md5").update(body).digest("base64") };
  } catch {
    return { "x-amz-checksum-sha256": createHash("sha256").update(body).digest("base64") };
  }
}
