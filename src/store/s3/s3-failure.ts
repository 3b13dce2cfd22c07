/** From what S3 or the network said to what happened, to what, and what to do. No header of a request and no credential is ever quoted. */
import { parseDate } from "../../env/index.js";
import { BatchWeaveError, type ErrorCode } from "../../errors.js";
import { type HttpAnswer, HttpFailure, HttpTimeout } from "../http/index.js";
import type { S3Credentials, S3Place } from "./s3-place.js";
import { childText, parseXml, type XmlElement } from "./xml.js";

/** What a request is for: the permission it needs and the words for it. */
export interface S3Action {
  /** "read", "write" …: stands between "cannot" and the object. */
  readonly doing: string;
  readonly permission: string;
  /** The key, or "" for the bucket. */
  readonly key: string;
}

/** S3's own error, from an answer's body. */
interface S3Error {
  readonly code: string;
  readonly message: string;
  readonly region?: string | undefined;
}

/** Undefined when the body is not S3's. */
export function readS3Error(answer: HttpAnswer): S3Error | undefined {
  return errorOf(parseXml(new TextDecoder().decode(answer.body)));
}

/** The same of one element. */
export function errorOf(root: XmlElement | undefined): S3Error | undefined {
  const code = childText(root, "Code");
  // A code is a word: what is none may be anything, also something that must not be printed.
  if (root?.name !== "Error" || code === undefined || !/^[A-Z][A-Za-z0-9.]{1,47}$/.test(code)) return undefined;
  const message = (childText(root, "Message") ?? "").replace(/\s+/g, " ");
  return { code, message, region: regionName(childText(root, "Region")) };
}

function regionName(text: string | undefined): string | undefined {
  return /^[a-z0-9-]{1,40}$/.test(text ?? "") ? text : undefined;
}

/** A server may send back what it was sent, headers and all: keys, tokens and signatures are taken out of whatever it says. */
function withoutSecrets(text: string, credentials: S3Credentials | undefined): string {
  const { accessKeyId, secretAccessKey, sessionToken } = credentials ?? {};
  let shown = text;
  for (const secret of [sessionToken, secretAccessKey, accessKeyId]) if (secret) shown = shown.replaceAll(secret, "…");
  return shown.replace(/[A-Za-z0-9+=_-]{32,}/g, "…").slice(0, 300);
}

const clockCodes = ["RequestTimeTooSkewed", "RequestExpired"];
const expiredCodes = ["ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired"];
const keyCodes = [
  "InvalidAccessKeyId",
  "SignatureDoesNotMatch",
  "InvalidToken",
  "AuthorizationHeaderMalformed",
  "InvalidSecurity",
];
const fullCodes = [
  "QuotaExceeded",
  "XMinioStorageFull",
  "XMinioAdminBucketQuotaExceeded",
  "InsufficientCapacity",
  "EntityTooLarge",
];
const busyCodes = [
  "RequestTimeout",
  "SlowDown",
  "RequestTimeTooShort",
  "InternalError",
  "ServiceUnavailable",
  "OperationAborted",
];

/** Whether the same request may succeed later: then, after a conditional create, nothing is known. */
export function isTransient(status: number, error: S3Error | undefined): boolean {
  if (status === 408 || status === 409 || status === 425 || status === 429 || (status >= 500 && status !== 501))
    return true;
  return error !== undefined && busyCodes.includes(error.code);
}

/** An answer that is not what was asked for. */
export function answerFailure(
  place: S3Place,
  action: S3Action,
  answer: HttpAnswer,
  nowMs: number,
  credentials: S3Credentials | undefined,
): BatchWeaveError {
  const { status } = answer;
  const error = readS3Error(answer);
  const what = `Cannot ${action.doing} ${target(place, action)}`;
  const details = { uri: place.uri, key: action.key, status, ...(error && { s3: error.code }) };
  const make = (code: ErrorCode, text: string, more: object = {}): BatchWeaveError =>
    new BatchWeaveError(code, `${what}: ${text}.`, { ...details, ...more });

  const region = error?.region ?? regionName(header(answer, "x-amz-bucket-region"));
  if (region !== undefined && region !== place.region && (status === 301 || status === 307 || status === 400)) {
    return make(
      "INVALID_ARGUMENT",
      `the bucket is in region ${region}, not ${place.region}; set AWS_REGION=${region}`,
      { region },
    );
  }
  if (error && clockCodes.includes(error.code)) return make("STORE_DENIED", clockText(answer, nowMs));
  if (error && expiredCodes.includes(error.code)) {
    return make(
      "STORE_DENIED",
      "the credentials have expired; renew them (`aws sso login`, or new keys) and start again",
    );
  }
  if (error && keyCodes.includes(error.code)) {
    return make(
      "STORE_DENIED",
      `the credentials were not accepted (${error.code}); check AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN and AWS_PROFILE`,
    );
  }
  if (error?.code === "NoSuchBucket") {
    return make(
      "INVALID_ARGUMENT",
      `there is no bucket "${place.bucket}" at ${place.endpoint}; create it or correct the URI`,
    );
  }
  if (status === 507 || (error && fullCodes.includes(error.code))) {
    return make("STORE_FULL", `the store takes no more (${error?.code ?? status}); free space or raise the quota`);
  }
  if (isTransient(status, error)) {
    const retryAfterMs = retryAfter(answer, nowMs);
    const asked = { ...(retryAfterMs !== undefined && { retryAfterMs }) };
    // A gateway's own page: the store behind it is away for a moment, or was never there. One that tells us to come later has a store.
    if (!error && status >= 500 && answer.body.byteLength > 0)
      return make("STORE_UNAVAILABLE", foreignText(place, answer), { ...asked, isForeign: true });
    const said = error ? `${status} ${error.code}` : String(status);
    return make(
      "STORE_UNAVAILABLE",
      `the store answered ${said}; try again, with fewer requests at once if it goes on`,
      asked,
    );
  }
  if (status === 401 || status === 403 || status === 407)
    return make("STORE_DENIED", deniedText(place, action, error, status));
  if (status === 501 || error?.code === "NotImplemented") {
    return make(
      "UNSAFE_STORE",
      "the server does not implement this request; use a store that knows conditional writes",
    );
  }
  if (!error) return make("STORE_UNAVAILABLE", foreignText(place, answer), { isForeign: true });
  return make(
    "INVALID_ARGUMENT",
    `the store answered ${status} ${error.code}: ${withoutSecrets(error.message, credentials) || "no more was said"}; see docs/guide/s3.md`,
  );
}

/** No answer at all, or half of one. */
export function networkFailure(place: S3Place, action: S3Action, e: unknown): BatchWeaveError {
  const cause = e instanceof HttpFailure ? e.cause : e;
  const what = `Cannot ${action.doing} ${target(place, action)}`;
  const code = errorCode(cause);
  const details = { uri: place.uri, key: action.key, errno: code };
  const check = `check AWS_ENDPOINT_URL, the network and the server`;
  if (cause instanceof HttpTimeout) {
    const { phase, timeoutMs } = cause;
    const text = {
      connect: "could not be reached",
      response: "did not answer",
      stall: "stopped in the middle of the transfer",
      slow: "sent hardly anything of what was asked for",
    }[phase];
    return new BatchWeaveError(
      "STORE_UNAVAILABLE",
      `${what}: ${place.endpoint} ${text} within ${timeoutMs / 1000} s; ${check}.`,
      { ...details, phase, timeoutMs },
    );
  }
  if (isCertificateError(code)) {
    return new BatchWeaveError(
      "INVALID_ARGUMENT",
      `${what}: the TLS certificate of ${place.endpoint} is not trusted (${code}); set AWS_CA_BUNDLE or NODE_EXTRA_CA_CERTS to its issuer's certificate.`,
      details,
    );
  }
  const text =
    {
      ECONNREFUSED: `nothing listens at ${place.endpoint}`,
      ENOTFOUND: `the host of ${place.endpoint} is not known (bucket "${place.bucket}")`,
      EAI_AGAIN: `the name of ${place.endpoint} cannot be looked up at the moment`,
      ECONNRESET: `${place.endpoint} broke the connection`,
      EPIPE: `${place.endpoint} broke the connection`,
      EBADHTTP: `${place.endpoint} does not speak HTTP/1.1: ${message(cause)}${place.isTls ? "" : " (write https:// if it speaks TLS)"}`,
      EPROTO: `${place.endpoint} does not speak TLS`,
      ERR_SSL_WRONG_VERSION_NUMBER: `${place.endpoint} does not speak TLS (write http://)`,
    }[code] ?? `${place.endpoint}: ${code === "" ? message(cause) : code}`;
  return new BatchWeaveError("STORE_UNAVAILABLE", `${what}: ${text}; ${check}.`, details, cause);
}

function target(place: S3Place, action: S3Action): string {
  return action.key === "" ? place.uri : `${place.uri}/${action.key}`;
}

function header(answer: HttpAnswer, name: string): string | undefined {
  const value = answer.headers[name];
  return typeof value === "string" && value !== "" ? value : undefined;
}

function clockText(answer: HttpAnswer, nowMs: number): string {
  const server = parseDate(header(answer, "date"));
  const off = server === undefined ? "" : ` by ${Math.round(Math.abs(nowMs - server) / 1000)} s`;
  return `the clock of this machine is ${off === "" ? "off" : `${nowMs > (server ?? 0) ? "ahead" : "behind"}${off}`}, and signatures are only good for minutes; set it right (NTP)`;
}

function deniedText(place: S3Place, action: S3Action, error: S3Error | undefined, status: number): string {
  if (!error)
    return `something at ${place.endpoint} that is not S3 answered ${status}; check AWS_ENDPOINT_URL and proxies in between`;
  const list =
    action.permission === "s3:GetObject"
      ? `, and s3:ListBucket on ${place.bucket} (without it an absent object looks denied)`
      : "";
  return `denied (${error.code}); allow ${action.permission} on ${resource(place, action)}${list}`;
}

function resource(place: S3Place, action: S3Action): string {
  return action.permission.startsWith("s3:ListBucket") ? place.bucket : `${place.bucket}/${place.prefix}*`;
}

function foreignText(place: S3Place, answer: HttpAnswer): string {
  const start = new TextDecoder().decode(answer.body.subarray(0, 512));
  const kind = /<html|<!doctype html/i.test(start)
    ? "an HTML page"
    : answer.body.byteLength === 0
      ? "nothing"
      : "something else";
  return `${place.endpoint} answered ${answer.status} with ${kind} where S3 sends XML; check AWS_ENDPOINT_URL, the addressing style and proxies in between`;
}

/** An answer under status 200 whose body is none of S3's. */
export function foreignAnswer(place: S3Place, action: S3Action, answer: HttpAnswer): BatchWeaveError {
  return new BatchWeaveError(
    "STORE_UNAVAILABLE",
    `Cannot ${action.doing} ${target(place, action)}: ${foreignText(place, answer)}.`,
    {
      uri: place.uri,
      key: action.key,
      status: answer.status,
      isForeign: true,
    },
  );
}

/** `Retry-After`: seconds or a date. */
function retryAfter(answer: HttpAnswer, nowMs: number): number | undefined {
  const text = header(answer, "retry-after");
  if (text === undefined) return undefined;
  if (/^\d{1,6}$/.test(text)) return Number(text) * 1000;
  const at = parseDate(text);
  return at === undefined ? undefined : Math.max(0, at - nowMs);
}

function errorCode(cause: unknown): string {
  if (!(cause instanceof Error) || !("code" in cause)) return "";
  return typeof cause.code === "string" ? cause.code : "";
}

function message(cause: unknown): string {
  return cause instanceof Error ? cause.message.slice(0, 200) : "no answer";
}

function isCertificateError(code: string): boolean {
  return /CERT|SELF_SIGNED|UNABLE_TO_VERIFY|UNABLE_TO_GET_ISSUER/.test(code);
}
