/**
 * Opening a producer. One commit when nobody is in the way. When thousands start at once, an opener that lost publishes an
 * intent, and whoever commits next opens everybody who asked.
 */
import { BatchWeaveError } from "../errors.js";
import { asEpoch, type Manifest, openingIntentKey, type ProducerState } from "../format/index.js";
import type { CallOptions } from "../store/index.js";
import type { Change, Committer } from "./commit.js";
import { type Intents, listIntents, noIntents, stageIntents } from "./intents.js";
import type { Log } from "./log.js";
import { findSilent } from "./silent.js";
import { type SilentFinding, stageOpening } from "./stage.js";

const lossesBeforeIntent = 2;
/** Every round an opener waits longer before it commits itself, so that of thousands only a few do. */
const waitMsMin = 400;
const waitMsMax = 8_000;
const roundsMax = 500;

interface Findings {
  readonly own: SilentFinding | undefined;
  readonly others: ReadonlyMap<string, SilentFinding>;
}

/** One opening of one producer id. */
export class Opener {
  readonly #log: Log;
  readonly #committer: Committer;
  readonly #id: string;
  readonly #incarnation: string;
  readonly #takeover: boolean;
  /** The epoch seen first; undefined until a base was seen. */
  #before: number | undefined;

  constructor(log: Log, committer: Committer, id: string, incarnation: string, takeover: boolean) {
    this.#log = log;
    this.#committer = committer;
    this.#id = id;
    this.#incarnation = incarnation;
    this.#takeover = takeover;
  }

  /** Returns a verified manifest in which this incarnation holds the id. */
  async open(options: CallOptions): Promise<Manifest> {
    const { env } = this.#log;
    let waitMs = waitMsMin;
    let published: number | undefined;
    for (let round = 0; round < roundsMax; round++) {
      // Those who wait for others to open them carry everybody when their patience ends.
      const intents =
        published === undefined ? noIntents : await listIntents(this.#log.store, this.#log.spec.uuid, options);
      const attempt = await this.#committer.attempt(this.#change(intents), { signal: options.signal, fresh: true });
      if (attempt.outcome === "committed" || attempt.outcome === "nothing") return attempt.manifest;
      if (round + 1 < lossesBeforeIntent) {
        await env.sleep(100 * env.random(), options.signal);
        continue;
      }
      const before = this.#stateIn(attempt.manifest)?.epoch ?? this.#before ?? 0;
      if (published !== before) {
        const intent = { producer: this.#id, before: asEpoch(before), incarnation: this.#incarnation };
        const key = openingIntentKey(this.#log.spec.uuid, intent);
        await this.#log.store.put(key, new Uint8Array(0), { signal: options.signal, hint: true });
        published = before;
      }
      const opened = await this.#waitFor(waitMs * (0.5 + env.random()), options);
      if (opened) return opened;
      waitMs = Math.min(2 * waitMs, waitMsMax);
    }
    throw new BatchWeaveError(
      "CONTENDED",
      `Producer ${this.#id} could not be opened on ${this.#log.store.uri}: every attempt lost to another commit. Try again.`,
      { producer: this.#id },
    );
  }

  /** Polls the head until somebody opened this incarnation, or the time is over. */
  async #waitFor(waitMs: number, options: CallOptions): Promise<Manifest | undefined> {
    const { env, head } = this.#log;
    const until = env.monotonic() + waitMs;
    for (let pauseMs = Math.min(300, waitMs); ; pauseMs *= 2) {
      await env.sleep(Math.max(1, Math.min(pauseMs, until - env.monotonic())), options.signal);
      const manifest = await head.jump(options);
      if (this.#stateIn(manifest)?.incarnation === this.#incarnation) return manifest;
      if (env.monotonic() >= until) return undefined;
    }
  }

  #stateIn(manifest: Manifest): ProducerState | undefined {
    return manifest.producers.get(this.#id);
  }

  #change(intents: Intents): Change<Findings, undefined> {
    const id = this.#id;
    return {
      by: `open ${id}`,
      prepare: async (base, options) => {
        const find = (producer: string): Promise<SilentFinding | undefined> =>
          findSilent(base, producer, (ref) => this.#log.readTable(ref, options));
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
        if (!this.#takeover && before && before.incarnation !== this.#incarnation && before.epoch !== this.#before) {
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
