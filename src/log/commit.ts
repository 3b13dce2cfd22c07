/** The commit: one conditional PUT of the next manifest version, settled and verified before anything is concluded. */

import type { Env } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import { type CommitKind, encodeManifest, type Manifest, manifestKey } from "../format/index.js";
import type { CallOptions, CreateOutcome, ObjectStore } from "../store/index.js";
import { Draft } from "./draft.js";
import type { Head } from "./head.js";
import type { Presence } from "./presence.js";
import type { RoundTrip } from "./round-trip.js";

/** One thing to commit. `stage` is pure and is called again from the new base after every conflict. */
export interface Change<Prepared, Result> {
  /** For people: who commits. */
  readonly by: string;
  /** What for. */
  readonly kind: CommitKind;
  /** Look-ups in the store that staging needs; nothing looked up from an older base survives. */
  prepare?(base: Manifest, options?: CallOptions): Promise<Prepared>;
  /** Changes the draft; `done: true` when there is nothing (left) to commit. May throw a refusal. */
  stage(draft: Draft, prepared: Prepared): { readonly done: boolean; readonly result: Result };
}

/** How one attempt ended. "created": the PUT won, and the look that vouches for it is still to come (`vouchLater`). */
export type AttemptOutcome = "committed" | "created" | "nothing" | "lost" | "unsettled";

/** One attempt. `result` is only there when `manifest` holds it; that is verified, except after "created". */
export interface Attempt<Result> {
  readonly outcome: AttemptOutcome;
  readonly manifest: Manifest;
  readonly result?: Result;
  /** The fragile window: from reading the base to the end of the PUT, in ms. Absent when nothing was PUT. */
  readonly fragileMs?: number;
}

/** Settings of a commit loop. */
export interface CommitOptions extends CallOptions {
  /** Read the head before staging. False: start from the newest manifest known, which may lose once more but saves two requests. */
  fresh?: boolean | undefined;
  /**
   * Stage on this version, which this process created itself and has not vouched for yet. Together with `vouchLater` a
   * process that commits again and again needs one look for a whole chain of its own versions: if the newest of them is above the
   * boundary, its name never existed before, so the one below it was the head when it was created, and so on down the chain.
   */
  from?: Manifest | undefined;
  /** Do not look after the verdict; the caller will vouch before it concludes anything. */
  vouchLater?: boolean | undefined;
  /** Told of every attempt. */
  onAttempt?: ((attempt: { outcome: AttemptOutcome; fragileMs?: number | undefined }) => void) | undefined;
}

/** A PUT without an answer for so long is sent once more. */
const slowPutMs = 1_500;
const slowPutOver = Symbol("answered in time");
const settleDelayMs = 50;
/** Tries of a PUT that could not even be sent. */
const refusalsMax = 6;
const settleDelayMsMax = 5_000;
const conflictDelayMsMax = 2_000;
const attemptsMax = 1_000;

type Staged<R> = { draft: Draft; done: boolean; result: R } | { refusal: BatchWeaveError };

/** Commits changes onto one namespace. */
export class Committer {
  readonly #store: ObjectStore;
  readonly #env: Env;
  readonly #head: Head;
  readonly #presence: Presence;
  readonly #roundTrip: RoundTrip;

  constructor(store: ObjectStore, env: Env, head: Head, presence: Presence, roundTrip: RoundTrip) {
    this.#store = store;
    this.#env = env;
    this.#head = head;
    this.#presence = presence;
    this.#roundTrip = roundTrip;
  }

  /** Tries until the change is in, refused, or the signal aborts. */
  async commit<P, R>(change: Change<P, R>, options: CommitOptions = {}): Promise<{ manifest: Manifest; result: R }> {
    for (let lost = 0; lost < attemptsMax; lost++) {
      const attempt = await this.attempt(change, { ...options, fresh: options.fresh === true || lost > 0 });
      if (attempt.outcome === "committed" || attempt.outcome === "nothing")
        return { manifest: attempt.manifest, result: attempt.result as R };
      // Full jitter: competitors that lost together must not meet again.
      const delayMs = Math.min(conflictDelayMsMax, 20 * 2 ** Math.min(lost, 10)) * this.#env.random();
      await this.#env.sleep(delayMs, options.signal);
    }
    throw new BatchWeaveError(
      "CONTENDED",
      `${change.by} lost ${attemptsMax} commits in a row on ${this.#store.uri}. Commit less often, or use the cooperative cadence.`,
      { attempts: attemptsMax },
    );
  }

  /** One attempt. Lost or unsettled, the newest verified manifest is loaded, and the caller decides when to try again. */
  async attempt<P, R>(change: Change<P, R>, options: CommitOptions = {}): Promise<Attempt<R>> {
    const { signal } = options;
    await this.#presence.check({ signal });
    let looked = options.fresh === true;
    let begun = this.#env.monotonic();
    let base = looked ? await this.#head.jump({ signal }) : (options.from ?? (await this.#head.newest({ signal })));
    if (looked) begun = Math.max(begun, this.#head.lookedAtMs);
    for (;;) {
      let staged: Staged<R>;
      try {
        staged = await this.#stage(change, base, signal);
      } catch (error) {
        // A look-up found its object gone. If a reclaim followed a newer version, the base is what is out of date.
        if (!isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
        const newer = await this.#head.jump({ signal });
        if (newer.version <= base.version) throw error;
        begun = this.#env.monotonic();
        base = newer;
        looked = true;
        continue;
      }
      if ("refusal" in staged || staged.done) {
        if (looked || (options.from && !("refusal" in staged))) {
          if ("refusal" in staged) throw staged.refusal;
          // A chain of our own is durable; what others created need not be, and is now concluded from.
          if (looked) await this.#head.keep(base, { signal });
          options.onAttempt?.({ outcome: "nothing" });
          return { outcome: "nothing", manifest: base, result: staged.result };
        }
        // Concluding without a PUT needs a look of its own at the base, and the newest state there is.
        begun = this.#env.monotonic();
        base = await this.#head.jump({ signal });
        looked = true;
        continue;
      }
      const next = staged.draft.finish();
      await Promise.all(staged.draft.sealed.map(({ key, bytes }) => this.#store.put(key, bytes, { signal })));
      const verdict = await this.#publish(next, signal);
      const fragileMs = this.#env.monotonic() - begun;
      const outcome =
        verdict === "mine" && options.vouchLater ? "created" : await this.#conclude(verdict, next, signal);
      options.onAttempt?.({ outcome, fragileMs });
      if (outcome === "committed" || outcome === "created")
        return { outcome, manifest: next, result: staged.result, fragileMs };
      return { outcome, manifest: (this.#head.known ?? base) as Manifest, fragileMs };
    }
  }

  async #stage<P, R>(change: Change<P, R>, base: Manifest, signal: AbortSignal | undefined): Promise<Staged<R>> {
    const prepared = (await change.prepare?.(base, { signal })) as P;
    const stamp = {
      id: this.#env.id(),
      by: change.by,
      kind: change.kind,
      time: Math.floor(this.#env.now()),
      boundaryHint: this.#head.boundary.kept,
    };
    const draft = new Draft(base, stamp);
    try {
      return { draft, ...change.stage(draft, prepared) };
    } catch (error) {
      if (isBatchWeaveError(error)) return { refusal: error };
      throw error;
    }
  }

  /**
   * THE COMMIT POINT. The first creator of `manifest/N` decides what version N is. A crash before leaves orphans, a crash
   * after leaves a committed batch whose producer will learn of it from producer state.
   */
  async #publish(next: Manifest, signal: AbortSignal | undefined): Promise<"mine" | "other" | "gone"> {
    const key = manifestKey(next.version);
    const bytes = encodeManifest(next);
    let refusals = 0;
    for (let delayMs = settleDelayMs; ; delayMs = Math.min(2 * delayMs, settleDelayMsMax)) {
      let outcome: CreateOutcome = "unknown";
      try {
        outcome = await this.#create(key, bytes, signal);
      } catch (error) {
        // Not even sent. No other request gives up at the first refused connection, and this one may be repeated just as well.
        if (!isBatchWeaveError(error, "STORE_UNAVAILABLE") || ++refusals === refusalsMax) throw error;
      }
      if (outcome === "created") return "mine";
      if (outcome === "exists") return await this.#owner(next, signal);
      // Unknown: it may have landed, or may land minutes from now. Only the same bytes may be tried until the name has an owner.
      await this.#env.sleep(delayMs * (0.5 + this.#env.random()), signal);
    }
  }

  /** One PUT; when it takes very long, a second of the same bytes beside it. Which of them wins does not matter: both are this commit. */
  async #create(key: string, bytes: Uint8Array, signal: AbortSignal | undefined): Promise<CreateOutcome> {
    const begun = this.#env.monotonic();
    const first = this.#store.create(key, bytes, { signal });
    const stop = new AbortController();
    const late = this.#env.sleep(slowPutMs, stop.signal).then(
      () => "late" as const,
      () => "late" as const,
    );
    const outcome = await Promise.race([first, late]).finally(() => stop.abort(slowPutOver));
    if (outcome !== "unknown") this.#roundTrip.learn(this.#env.monotonic() - begun);
    if (outcome !== "late") return outcome;
    const second = this.#store.create(key, bytes, { signal });
    return await firstVerdict([first, second]);
  }

  /** The name exists. An earlier request of this very attempt may have created it, whatever its answer said. */
  async #owner(next: Manifest, signal: AbortSignal | undefined): Promise<"mine" | "other" | "gone"> {
    const found = await this.#head.read(next.version, { signal });
    if (!found) return "gone";
    return found.commit.id === next.commit.id ? "mine" : "other";
  }

  /** Nothing is concluded before a look begun after the verdict. */
  async #conclude(
    verdict: "mine" | "other" | "gone",
    next: Manifest,
    signal: AbortSignal | undefined,
  ): Promise<"committed" | "lost" | "unsettled"> {
    if (verdict === "mine") {
      if (await this.#head.vouch(next, { signal })) return "committed";
      // The boundary passed this version before it could be checked: it may be real or a zombie. Producer state will tell.
      await this.#head.load({ signal });
      return "unsettled";
    }
    await (verdict === "other" ? this.#head.jump({ signal }) : this.#head.load({ signal }));
    return verdict === "other" ? "lost" : "unsettled";
  }
}

/** The first verdict of several PUTs of the same bytes. A failure or an unknown outcome of one says nothing while another is under way. */
async function firstVerdict(puts: readonly Promise<CreateOutcome>[]): Promise<CreateOutcome> {
  try {
    return await Promise.any(puts.map(async (put) => ((await put) === "unknown" ? Promise.reject(noVerdict) : put)));
  } catch {
    const outcomes = await Promise.allSettled(puts);
    const failed = outcomes.find((o) => o.status === "rejected");
    if (failed && outcomes.every((o) => o.status === "rejected")) throw failed.reason;
    return "unknown";
  }
}

const noVerdict = Symbol("no verdict");
