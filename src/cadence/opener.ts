/**
 * Opening a producer. One commit when no other committer is in the way. An opener that lost publishes an intent, and the next carrier opens
 * every producer that asked, however many thousands started at once. If no carrier does, one of them comes first and carries all.
 */
import { BatchWeaveError } from "../errors.js";
import {
  asEpoch,
  hasLeft,
  intentPrefix,
  type Manifest,
  openingIntentKey,
  type ProducerState,
} from "../format/index.js";
import {
  type Change,
  closedError,
  type Holder,
  type Intents,
  type Log,
  listIntents,
  noIntents,
  type SilentFinding,
  stageIntents,
  stageOpening,
} from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import { activeProducers } from "./publisher.js";
import { spreadMs } from "./spread.js";

/** More than this many are not counted but taken for very many. */
const countedMax = 100;
const crowdMax = 10_000;
/** With so many producers and a recent commit, openers ask to be carried before they try themselves. */
const crowdedMin = 32;
const roundsMax = 500;

/** Waits of an opener, in ms: multiples of a round trip of this store, between a floor and what S3 needs. */
interface OpeningPace {
  /** The window of a commit, roughly: over so long for each doubling of their number openers spread before they commit themselves. */
  readonly windowMs: number;
  readonly spanMsMax: number;
  /** A commit within this time is recent. */
  readonly recentMs: number;
  readonly firstPollMs: number;
  readonly pollMsMax: number;
}

function openingPace(roundTripMs: number): OpeningPace {
  const times = (factor: number, floorMs: number, ceilingMs: number): number =>
    Math.min(ceilingMs, Math.max(floorMs, factor * roundTripMs));
  return {
    windowMs: times(4, 10, 300),
    spanMsMax: times(110, 250, 8_000),
    recentMs: times(14, 100, 1_000),
    firstPollMs: times(4, 10, 300),
    pollMsMax: times(32, 80, 2_400),
  };
}

/**
 * Whether an opening fences the holder of the id. False: not when another process opens it at the same time. `"when-quiet"`: not when it was opened
 * or wrote within the last half a minute either and did not close, by the clocks of the writers. Whether a holder lives cannot be seen from here, so this is a courtesy,
 * against starting the same job twice: it may refuse a holder's successor for a while, and fences a holder that has been quiet for long.
 * With an epoch: only from its holder, whom the caller has looked at before (0: the id was never held).
 */
export type Takeover = boolean | "when-quiet" | { readonly epoch: number };

const quietMs = 30_000;

interface Findings {
  readonly own: SilentFinding | undefined;
  readonly others: ReadonlyMap<string, SilentFinding>;
}

/** An opened producer: what it holds and where it goes on. */
export interface Opening {
  readonly holder: Holder;
  readonly state: ProducerState;
  readonly resumePoint: unknown;
}

/**
 * Opens a producer id: commits the next epoch with a new incarnation, fencing its holder, and reads the resume point as of
 * the version that committed the opening. `takeover`: see {@link Takeover}.
 */
export async function openProducer(
  log: Log,
  id: string,
  options: CallOptions & { readonly takeover?: Takeover | undefined } = {},
): Promise<Opening> {
  const incarnation = log.env.id();
  const manifest = await new Opener(log, id, incarnation, options.takeover ?? true).open(options);
  const state = manifest.producers.get(id) as ProducerState;
  const holder: Holder = { producer: id, epoch: state.epoch, incarnation };
  return { holder, ...(await log.resume(holder, state, options)) };
}

/** One opening of one producer id. */
class Opener {
  readonly #log: Log;
  readonly #id: string;
  readonly #incarnation: string;
  readonly #takeover: Takeover;
  /** The epoch seen first; undefined until a base was seen. */
  #before: number | undefined;

  constructor(log: Log, id: string, incarnation: string, takeover: Takeover) {
    this.#log = log;
    this.#id = id;
    this.#incarnation = incarnation;
    this.#takeover = takeover;
    if (typeof takeover === "object") this.#before = takeover.epoch;
  }

  /** Returns a verified manifest in which this incarnation holds the id. */
  async open(options: CallOptions): Promise<Manifest> {
    let published: number | undefined;
    let fresh = false;
    const head = await this.#log.head.jump(options);
    // Before others are asked to open it: a carrier fences the holder of the id.
    await this.#assertQuiet(head, options);
    if (this.#isCrowded(head)) {
      published = await this.#publish(this.#log.head.known as Manifest, published, options);
      const opened = await this.#waitFor(await this.#patienceMs(0, options), options);
      if (opened) return opened;
      fresh = true;
    }
    for (let round = 0; round < roundsMax; round++) {
      // Those who wait for others to open them carry all others when their patience ends.
      const intents =
        published === undefined ? noIntents : await listIntents(this.#log.store, this.#log.spec.uuid, options);
      const attempt = await this.#log.attempt(this.#change(intents), { signal: options.signal, fresh });
      fresh = true;
      if (attempt.outcome === "committed" || attempt.outcome === "nothing") return attempt.manifest;
      published = await this.#publish(attempt.manifest, published, options);
      const opened = await this.#waitFor(await this.#patienceMs(round, options), options);
      if (opened) return opened;
    }
    throw new BatchWeaveError(
      "CONTENDED",
      `Producer ${this.#id} could not be opened on ${this.#log.store.uri}: every attempt lost to another commit. Try again.`,
      { producer: this.#id },
    );
  }

  /** So many commit that an attempt would be lost and make theirs lose. What lies in a table must be looked up first. */
  #isCrowded(manifest: Manifest): boolean {
    if (activeProducers(manifest) < crowdedMin || (manifest.tables.length > 0 && !this.#stateIn(manifest)))
      return false;
    this.#before ??= this.#stateIn(manifest)?.epoch ?? 0;
    // By others' clocks: a wrong one costs an attempt, or a wait.
    return Math.abs(this.#log.env.now() - manifest.commit.time) < this.#pace.recentMs;
  }

  /** Asks to be opened, once for every epoch; returns the epoch named. */
  async #publish(manifest: Manifest, published: number | undefined, options: CallOptions): Promise<number> {
    // An opener that may not fence is not to be opened by a carrier after another came first.
    const seen = this.#takeover === true ? this.#stateIn(manifest)?.epoch : this.#before;
    const before = seen ?? this.#stateIn(manifest)?.epoch ?? this.#before ?? 0;
    if (published === before) return before;
    const intent = { producer: this.#id, before: asEpoch(before), incarnation: this.#incarnation };
    const key = openingIntentKey(this.#log.spec.uuid, intent);
    const begun = this.#log.env.monotonic();
    await this.#log.store.put(key, new Uint8Array(0), { signal: options.signal, hint: true });
    this.#log.roundTrip.learn(this.#log.env.monotonic() - begun);
    return before;
  }

  /** How long others have for opening this one: the longer, the more wait for the same, and the more often it was in vain. */
  async #patienceMs(round: number, options: CallOptions): Promise<number> {
    const { store, env } = this.#log;
    const { objects, more } = await store.list(intentPrefix, { ...options, keysOnly: true, limit: countedMax });
    const crowd = more ? crowdMax : objects.length + 1;
    const { windowMs, spanMsMax } = this.#pace;
    const spanMs = Math.min(spanMsMax, windowMs * Math.log2(crowd) * 2 ** Math.min(round, 10));
    return spanMs / 4 + spreadMs(env.random(), spanMs, crowd);
  }

  /** Polls the head until a carrier opened this incarnation, or the time is over. */
  async #waitFor(waitMs: number, options: CallOptions): Promise<Manifest | undefined> {
    const { env, head } = this.#log;
    const { firstPollMs, pollMsMax } = this.#pace;
    const until = env.monotonic() + waitMs;
    for (let pollMs = firstPollMs; ; pollMs = Math.min(2 * pollMs, pollMsMax)) {
      const pauseMs = pollMs * (0.5 + env.random());
      await env.sleep(Math.max(1, Math.min(pauseMs, until - env.monotonic())), options.signal);
      const manifest = await head.jump(options);
      if (this.#stateIn(manifest)?.incarnation === this.#incarnation) {
        await head.keep(manifest, options);
        return manifest;
      }
      // Another process opened it, which this one may not fence: the next attempt says so.
      const isLate = this.#takeover !== true && (this.#stateIn(manifest)?.epoch ?? 0) !== (this.#before ?? 0);
      if (isLate || env.monotonic() >= until) return undefined;
    }
  }

  get #pace(): OpeningPace {
    return openingPace(this.#log.roundTrip.ms);
  }

  #stateIn(manifest: Manifest): ProducerState | undefined {
    return manifest.producers.get(this.#id);
  }

  /** Asked of the first base only: what changes later was opened at the same time. */
  async #assertQuiet(base: Manifest, options: CallOptions | undefined): Promise<void> {
    const state = this.#stateIn(base);
    if (this.#takeover !== "when-quiet" || this.#before !== undefined || !state || hasLeft(state)) return;
    // A version that is gone was old enough for a reclaim.
    const last = await this.#log.head.read(state.at, options);
    const agoMs = this.#log.env.now() - (last?.commit.time ?? 0);
    if (agoMs >= quietMs) return;
    throw new BatchWeaveError(
      "FENCED",
      `Producer ${this.#id} was opened or wrote ${(Math.max(0, agoMs) / 1_000).toFixed(1)} s ago (epoch ${state.epoch}): another process may hold it, and takeover is off. Stop that process, wait until the id was quiet for ${quietMs / 1_000} s, or allow the takeover.`,
      { producer: this.#id, epoch: state.epoch, agoMs },
    );
  }

  #change(intents: Intents): Change<Findings, undefined> {
    const id = this.#id;
    return {
      by: `open ${id}`,
      kind: "open",
      prepare: async (base, options) => {
        await this.#assertQuiet(base, options);
        const find = (producer: string): Promise<SilentFinding | undefined> =>
          this.#log.findSilent(base, producer, options);
        const absent = intents.openings.map((o) => o.producer).filter((producer) => !base.producers.has(producer));
        const found = await Promise.all(absent.map(find));
        return {
          own: base.producers.has(id) ? undefined : await find(id),
          others: new Map(absent.flatMap((producer, i) => (found[i] ? [[producer, found[i] as SilentFinding]] : []))),
        };
      },
      stage: (draft, { own, others }) => {
        const before = draft.producers.get(id) ?? own?.state;
        this.#before ??= before?.epoch ?? 0;
        // Before an epoch is spent on a producer that could only be told at its first batch.
        if (draft.closed && before?.incarnation !== this.#incarnation) throw closedError(draft.end);
        if (
          this.#takeover !== true &&
          before &&
          before.incarnation !== this.#incarnation &&
          before.epoch !== this.#before
        ) {
          throw new BatchWeaveError(
            "FENCED",
            `Producer ${id} was opened by another process at the same time (epoch ${before.epoch}). Stop one of the two.`,
            { producer: id, epoch: before.epoch },
          );
        }
        const done = stageOpening(draft, id, this.#incarnation, own);
        if (!done) stageIntents(draft, this.#log.spec, intents, others);
        return { done, result: undefined };
      },
    };
  }
}
