/** One signed request to S3, sent over the pool; and the headers that every kind of request needs. */
import { createHash } from "node:crypto";
import type { Env } from "../../env/index.js";
import { BatchWeaveError } from "../../errors.js";
import { bodyBytes, bodyParts } from "../body.js";
import type { HttpClient } from "../http/index.js";
import { type HttpAnswer, HttpFailure } from "../http/index.js";
import type { Body } from "../object-store.js";
import { answerFailure, networkFailure, type S3Action } from "./s3-failure.js";
import type { S3Credentials, S3Encryption, S3Place } from "./s3-place.js";
import { S3Signer } from "./signer.js";

/** One request, before it is signed. */
export interface S3Request {
  readonly action: S3Action;
  readonly method: "GET" | "PUT" | "POST" | "DELETE";
  /** Relative to the store's prefix; undefined: the bucket itself. */
  readonly key?: string | undefined;
  readonly query?: Readonly<Record<string, string>> | undefined;
  readonly headers?: Readonly<Record<string, string>> | undefined;
  readonly body?: Body | undefined;
  /** Default: what is plenty for XML. */
  readonly answerBytesMax?: number | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** A page of a thousand keys is a megabyte or two. */
const xmlBytesMax = 16 * 1024 * 1024;

const empty = createHash("sha256").digest("hex");

/** Builds, signs and sends. */
export class S3Calls {
  readonly place: S3Place;
  readonly env: Env;
  /** Headers of requests that write an object, and of those that read one or add a part to it. */
  readonly writeHeaders: Readonly<Record<string, string>>;
  readonly readHeaders: Readonly<Record<string, string>>;
  readonly #client: HttpClient;
  readonly #signer: S3Signer;
  readonly #signsPayload: boolean;
  /** The last used. */
  #credentials: S3Credentials | undefined;

  constructor(
    place: S3Place,
    env: Env,
    client: HttpClient,
    settings: {
      readonly credentials: S3Credentials | undefined;
      readonly encryption: S3Encryption | undefined;
      readonly signsPayload: boolean;
      readonly environment: NodeJS.ProcessEnv;
    },
  ) {
    this.place = place;
    this.env = env;
    this.#client = client;
    this.#signer = new S3Signer(place, env, settings.credentials, settings.environment);
    this.#signsPayload = settings.signsPayload;
    const { write, read } = encryptionHeaders(place, settings.encryption);
    this.writeHeaders = write;
    this.readHeaders = read;
  }

  /** Sends once and gives whatever was answered. Rejects with an {@link HttpFailure} when nothing was. */
  async sendOnce(request: S3Request): Promise<HttpAnswer> {
    const { method, body, signal } = request;
    signal?.throwIfAborted();
    const found = this.#signer.credentials();
    const credentials = found instanceof Promise ? await found : found;
    signal?.throwIfAborted();
    this.#credentials = credentials;
    const path = this.#path(request.key);
    const headers: Record<string, string> = {
      ...request.headers,
      host: this.place.host,
      "user-agent": "batchweave",
      "x-amz-content-sha256": this.#payloadHash(body),
    };
    if (body !== undefined || method === "PUT" || method === "POST") {
      headers["content-length"] = String(body === undefined ? 0 : bodyBytes(body));
    }
    const query = queryText(request.query);
    this.#signer.sign({ method, path, query, headers }, credentials);
    const answerBytesMax = request.answerBytesMax ?? xmlBytesMax;
    const target = query === "" ? path : `${path}?${query}`;
    return this.#client.send({ method, path: target, headers, body, answerBytesMax, signal });
  }

  /** Like `sendOnce` for requests that may be repeated: failures are told as ours, and a connection that had gone stale is replaced. */
  async send(request: S3Request): Promise<HttpAnswer> {
    for (let isFirst = true; ; isFirst = false) {
      try {
        return await this.sendOnce(request);
      } catch (e) {
        request.signal?.throwIfAborted();
        if (!(e instanceof HttpFailure)) throw e;
        if (isFirst && e.isStale) continue;
        throw networkFailure(this.place, request.action, e);
      }
    }
  }

  /** Sends, and throws unless the status says that it was done. */
  async sendOk(request: S3Request): Promise<HttpAnswer> {
    const answer = await this.send(request);
    if (answer.status < 200 || answer.status > 299) throw this.failure(request, answer);
    if (answer.broken) throw networkFailure(this.place, request.action, answer.broken);
    return answer;
  }

  failure(request: S3Request, answer: HttpAnswer): BatchWeaveError {
    return answerFailure(this.place, request.action, answer, this.env.now(), this.#credentials);
  }

  /** "=" is the one character of keys that S3 wants escaped. */
  #path(key: string | undefined): string {
    const { basePath, prefix } = this.place;
    if (key === undefined) return basePath;
    return `${basePath}${prefix}${key}`.replaceAll("=", "%3D");
  }

  #payloadHash(body: Body | undefined): string {
    if (body === undefined) return empty;
    if (!this.#signsPayload) return "UNSIGNED-PAYLOAD";
    const hash = createHash("sha256");
    for (const part of bodyParts(body)) hash.update(part);
    return hash.digest("hex");
  }
}

/** `a=b&c=d`, escaped and sorted as a signature wants it. */
function queryText(query: Readonly<Record<string, string>> | undefined): string {
  if (query === undefined) return "";
  const parts = Object.entries(query).map(([name, value]) => `${escapeQuery(name)}=${escapeQuery(value)}`);
  return parts.sort().join("&");
}

function escapeQuery(text: string): string {
  return encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);
}

interface EncryptionHeaders {
  readonly write: Readonly<Record<string, string>>;
  readonly read: Readonly<Record<string, string>>;
}

function encryptionHeaders(place: S3Place, encryption: S3Encryption | undefined): EncryptionHeaders {
  const sse = "x-amz-server-side-encryption";
  switch (encryption?.kind) {
    case undefined:
      return { write: {}, read: {} };
    case "aes256":
      return { write: { [sse]: "AES256" }, read: {} };
    case "kms": {
      const { keyId, context } = encryption;
      if (/[^\x21-\x7e]/.test(`${keyId ?? ""}${context ?? ""}`)) {
        throw new BatchWeaveError(
          "INVALID_ARGUMENT",
          "The KMS key or its context holds a space, a line break or another character that no header can; correct BATCHWEAVE_S3_KMS_KEY_ID (the context is base64).",
        );
      }
      return {
        write: {
          [sse]: "aws:kms",
          ...(keyId !== undefined && { [`${sse}-aws-kms-key-id`]: keyId }),
          ...(context !== undefined && { [`${sse}-context`]: context }),
        },
        read: {},
      };
    }
    case "customer": {
      const key = Buffer.from(encryption.key, "base64");
      if (key.byteLength !== 32) {
        throw new BatchWeaveError(
          "INVALID_ARGUMENT",
          "The customer key for S3 must be 32 bytes in base64; make one with `openssl rand -base64 32`.",
        );
      }
      if (!place.isTls) {
        throw new BatchWeaveError(
          "INVALID_ARGUMENT",
          `A customer key would go to ${place.endpoint} in the clear; use an https:// endpoint.`,
          { endpoint: place.endpoint },
        );
      }
      const headers = {
        [`${sse}-customer-algorithm`]: "AES256",
        [`${sse}-customer-key`]: key.toString("base64"),
        [`${sse}-customer-key-md5`]: createHash("md5").update(key).digest("base64"),
      };
      return { write: headers, read: headers };
    }
  }
}
