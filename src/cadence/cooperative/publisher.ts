/**
 * Cooperative commit: one producer at a time carries the batches of all, without an election.
 *
 * The producer that commits goes on committing (the *carrier*): it knows the head, so its commits rarely conflict. All others (*followers*)
 * publish intents of their batches and look at the log at leisure. A follower whose batch was not carried in time commits itself,
 * carrying the batches of all, and is the carrier from then on; a carrier that loses to another carrier follows. Nothing depends on who
 * believes to be the carrier: two of them only conflict. docs/design/0003-cooperative-commit.md derives the numbers.
 */
import { type Log, publishLeaving } from "../../log/index.js";
import type { Outbox, Publisher } from "../publisher.js";
import type { PublisherObserver } from "../solo.js";
import { Carrier } from "./carrier.js";
import { Follower } from "./follower.js";
import { paceOf } from "./pace.js";
import { Urgency } from "./urgency.js";

export class CooperativePublisher implements Publisher {
  readonly #log: Log;
  readonly #urgency = new Urgency();
  readonly #follower: Follower;
  readonly #carrier: Carrier;
  #role: "follower" | "carrier" = "follower";

  /** `carries`: its first batch does not wait for a carrier. */
  constructor(log: Log, observer: PublisherObserver = {}, carries = false) {
    this.#log = log;
    this.#follower = new Follower(log, this.#urgency, carries);
    this.#carrier = new Carrier(log, this.#urgency, observer);
  }

  nudge(urgent: boolean): void {
    // Only what changes the next deadline wakes the loop: a carrier keeps its pace while batches pour in.
    const isAnnouncing = this.#role === "follower" && this.#follower.isAnnouncing;
    const wakes = isAnnouncing
      ? urgent && !this.#urgency.isUrgent
      : urgent || this.#role === "follower" || this.#carrier.isIdle;
    this.#urgency.raise(urgent, wakes);
  }

  async run(outbox: Outbox, signal: AbortSignal): Promise<void> {
    for (;;) {
      if (this.#role === "follower") {
        if ((await this.#follower.turn(outbox, signal)) === "stay") continue;
        this.#carrier.begin();
        this.#role = "carrier";
      } else if ((await this.#carrier.turn(outbox, signal)) === "yield") {
        this.#follower.begin();
        this.#role = "follower";
      }
    }
  }

  /** A carrier writes it down itself, in its last commit; what a follower says is carried. */
  async leave(outbox: Outbox): Promise<void> {
    const { env, head, store, spec } = this.#log;
    const { known } = head;
    // Nothing is carried in a closed log.
    if (!known || known.closed) return;
    const stop = new AbortController();
    const limit = env.sleep(paceOf(this.#log.roundTrip.ms).farewellMs, stop.signal).catch(() => {});
    const farewell = async (): Promise<void> => {
      // Where the last to commit has left, too, no carrier would carry what is said here.
      if (this.#role === "carrier" || this.#follower.isAlone || head.known?.commit.kind === "leave") {
        if (await this.#carrier.leave(outbox, stop.signal)) return;
      }
      await publishLeaving(store, spec.uuid, outbox.holder, { signal: stop.signal });
    };
    // A courtesy: no caller must wait for it, or fail because of it.
    await Promise.race([farewell().catch(() => {}), limit]);
    stop.abort(over);
  }
}

const over = Symbol("said, or not said in time");
