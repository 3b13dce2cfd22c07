/** Tries again what may be tried again: with full jitter, within a budget, and never a conditional create. */
import type { Env } from "../../env/index.js";
import { type BatchWeaveError, isBatchWeaveError } from "../../errors.js";
import { copyBody } from "../body.js";
import type { CallOptions, ObjectStore } from "../object-store.js";
import { withOptionalCalls } from "./optional-calls.js";

/** Settings of {@link withRetry}. */
export interface RetrySettings {
  /** Tries of one call, the first included. Default 12. */
  attemptsMax?: number | undefined;
  /** No further try begins this long after the first; what the store asked us to wait (Retry-After) does not count. Default 30,000. */
  patienceMs?: number | undefined;
  /** The first retry waits a random time up to this, each further one up to twice the previous bound. Default 100. */
  firstDelayMs?: number | undefined;
  /** Upper bound of one wait; a Retry-After of the store (a minute at most) comes on top. Default 10,000. */
  delayMaxMs?: number | undefined;
  /** Retries that may be spent at once. Beyond, there are 20 a second for all calls together: a failing store is not buried, and no call fails while its patience lasts. Default 200. */
  budgetMax?: number | undefined;
  /** Told of every try but the first of a call. */
  onRetry?: (() => void) | undefined;
}

/** A rate, not a number: with a number, a rank with many reads in flight would fail within half a second of an outage. */
const retriesPerMs = 0.02;
/** A store that asks for more than this is asked again after it all the same. */
const askedDelayMsMax = 60_000;
/** Tries to reach a store where none has ever answered: most likely its address is wrong, and the user who waits should be told soon. */
const firstContactAttemptsMax = 3;
/** For a gateway that answers for a store which has never answered itself: it may come up in a moment, but people wait to be told. */
const firstContactPatienceMs = 5_000;

/**
 * `store`, with STORE_UNAVAILABLE retried on every call but `create`: a create that was applied and whose answer was lost would come back as
 * "exists", and its own writer would take it for a loss. A range that comes back short is continued where it broke, until it is whole or the
 * object ends.
 */
export function withRetry(store: ObjectStore, env: Env, settings: RetrySettings = {}): ObjectStore {
  const attemptsMax = settings.attemptsMax ?? 12;
  const patienceMs = settings.patienceMs ?? 30_000;
  const firstDelayMs = settings.firstDelayMs ?? 100;
  const delayMaxMs = settings.delayMaxMs ?? 10_000;
  const budgetMax = settings.budgetMax ?? 200;
  let budget = budgetMax;
  let budgetAtMs = env.monotonic();
  let hasAnswered = false;
  let hasServed = false;

  /** How long the next retry has to wait for its turn. */
  const turnMs = (): number => {
    const now = env.monotonic();
    budget = Math.min(budgetMax, budget + (now - budgetAtMs) * retriesPerMs);
    budgetAtMs = now;
    return Math.max(0, (1 - budget) / retriesPerMs);
  };

  const attempt = async <T>(call: () => Promise<T>, options: CallOptions | undefined): Promise<T> => {
    const begun = env.monotonic();
    let askedMs = 0;
    for (let failures = 0; ; ) {
      try {
        const result = await call();
        hasAnswered = true;
        hasServed = true;
        return result;
      } catch (e) {
        if (!isBatchWeaveError(e, "STORE_UNAVAILABLE")) throw e;
        failures++;
        hasAnswered ||= !isNoStore(e);
        const triesMax = hasAnswered || isGateway(e) ? attemptsMax : Math.min(attemptsMax, firstContactAttemptsMax);
        if (failures >= triesMax) throw e;
        const bound = Math.min(delayMaxMs, firstDelayMs * 2 ** (failures - 1));
        const delayMs = Math.max(env.random() * bound, turnMs());
        const waitedMs = env.monotonic() - begun + delayMs;
        const isTooLate =
          !hasAnswered && isGateway(e)
            ? waitedMs + askedDelayMs(e) > Math.min(patienceMs, firstContactPatienceMs)
            : waitedMs - askedMs > patienceMs;
        // One answer that never came can use up all the patience; where others did come, it is asked for once more.
        if (isTooLate && !(hasServed && failures === 1 && delayMs <= patienceMs)) throw e;
        budget--;
        settings.onRetry?.();
        askedMs += askedDelayMs(e);
        await env.sleep(askedDelayMs(e) + delayMs, options?.signal);
      }
    }
  };

  return {
    ...withOptionalCalls(store, attempt),
    uri: store.uri,
    create: (key, body, options) => store.create(key, body, options),
    put: (key, body, options) => attempt(() => store.put(key, body, options), options),
    get: (key, options) => attempt(() => store.get(key, options), options),
    getRange: (key, start, length, options) =>
      continued((at, count) => attempt(() => store.getRange(key, at, count, options), options), start, length),
    list: (prefix, options) => attempt(() => store.list(prefix, options), options),
    delete: (keys, options) => attempt(() => store.delete(keys, options), options),
  };
}

const unreached = ["ECONNREFUSED", "ENOTFOUND", "EBADHTTP"];

/** No server was there, or one that is no store. */
function isNoStore({ details }: BatchWeaveError): boolean {
  return (
    unreached.includes(String(details["errno"])) || details["phase"] === "connect" || details["isForeign"] === true
  );
}

/** Something between us and the store says that the store is not to be had. */
function isGateway({ details }: BatchWeaveError): boolean {
  return details["isForeign"] === true && Number(details["status"]) >= 500;
}

/** What the store asked for (Retry-After), on top of which the jitter spreads those who were told the same. */
function askedDelayMs(e: BatchWeaveError): number {
  const asked = e.details["retryAfterMs"];
  return typeof asked === "number" && asked > 0 ? Math.min(asked, askedDelayMsMax) : 0;
}

/** Reads on after a short answer. An answer with no bytes at all is the object's end. */
async function continued(
  read: (start: number, length: number) => Promise<Uint8Array | undefined>,
  start: number,
  length: number,
): Promise<Uint8Array | undefined> {
  const parts: Uint8Array[] = [];
  let got = 0;
  for (;;) {
    const part = await read(start + got, length - got);
    if (part === undefined) return undefined; // absent, or deleted since
    parts.push(part);
    got += part.byteLength;
    if (got >= length || part.byteLength === 0) break;
  }
  return parts.length === 1 ? parts[0] : copyBody(parts);
}
