/** What an SDK's error means, for stores whose client is not ours. Each SDK's own codes are read by its store; the words are the same. */
import { BatchWeaveError, type ErrorCode } from "../../errors.js";

/** One failed call. */
export interface CloudCall {
  /** Of the store, without secrets. */
  readonly uri: string;
  readonly doing: string;
  /** "" for the whole container. */
  readonly key: string;
  /** The right it takes. */
  readonly permission: string;
  /** The server, as one would look it up. */
  readonly endpoint: string;
}

/** What the SDK said. */
export interface CloudError {
  /** HTTP status, if there was an answer. */
  readonly status: number | undefined;
  /** The store's or the network's own code. */
  readonly code: string;
  readonly retryAfterMs?: number | undefined;
}

/** Codes of the network that say for certain that no byte of a request was sent. */
const unsent = ["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "EHOSTUNREACH", "ENETUNREACH"];

/** Default of every cloud store's timeout. */
export const timeoutMsDefault = 30_000;

/**
 * Whether nothing is known after a conditional create that failed so: it may have reached the server, the same may succeed later, or
 * what answered was not the store (a portal's page under status 200).
 */
export function isNoVerdict({ status, code }: CloudError): boolean {
  if (status === undefined) return !unsent.includes(code);
  return status < 400 || isTransientStatus(status);
}

/** Whether the same request may succeed later. */
function isTransientStatus(status: number | undefined): boolean {
  return (
    status === undefined || status === 408 || status === 409 || status === 429 || (status >= 500 && status !== 501)
  );
}

/** The sentence for it. Never the SDK's own message: it may quote a signature. */
export function cloudFailure(
  call: CloudCall,
  error: CloudError,
  special?: readonly [ErrorCode, string],
): BatchWeaveError {
  const { status, code, retryAfterMs } = error;
  const what = `Cannot ${call.doing} ${call.key === "" ? call.uri : `${call.uri}/${call.key}`}`;
  const details = {
    uri: call.uri,
    key: call.key,
    ...(status === undefined ? { errno: code } : { status, code }),
    ...(retryAfterMs !== undefined && { retryAfterMs }),
  };
  const make = (kind: ErrorCode, text: string): BatchWeaveError =>
    new BatchWeaveError(kind, `${what}: ${text}.`, details);
  if (special) return make(...special);
  if (status === 401)
    return make("STORE_DENIED", `the credentials were not accepted (${code || 401}); renew or correct them`);
  if (status === 403) return make("STORE_DENIED", `denied (${code || 403}); allow ${call.permission}`);
  if (status === undefined) {
    const text = unsent.includes(code) ? "cannot be reached" : "broke the connection or did not answer in time";
    return make(
      "STORE_UNAVAILABLE",
      `${call.endpoint} ${text} (${code || "no answer"}); check the address, the network and the server`,
    );
  }
  if (status < 400) {
    return make(
      "STORE_UNAVAILABLE",
      `${call.endpoint} answered ${status} with something that is not the store's; check the address and proxies in between`,
    );
  }
  if (isTransientStatus(status)) {
    return make(
      "STORE_UNAVAILABLE",
      `the store answered ${status} ${code}; try again, with fewer requests at once if it goes on`,
    );
  }
  return make(
    "INVALID_ARGUMENT",
    `the store answered ${status} ${code}; check the address and the settings of the store`,
  );
}
