/** Whether a caller waits, and the flag that wakes the publisher then. */
import type { Env } from "../../env/index.js";
import { Wakeup } from "../wakeup.js";

export class Urgency {
  readonly #wakeup = new Wakeup();
  #isUrgent = false;

  /** A caller waits for a commit now. */
  get isUrgent(): boolean {
    return this.#isUrgent;
  }

  raise(urgent: boolean, wakes: boolean): void {
    this.#isUrgent ||= urgent;
    if (wakes) this.#wakeup.raise();
  }

  /**
   * A nudge hurries one commit or look. A caller that still waits when something was acknowledged nudges again; if it lasted longer, a
   * producer whose buffer is always full would commit without a pause.
   */
  take(): boolean {
    const isUrgent = this.#isUrgent;
    this.#isUrgent = false;
    return isUrgent;
  }

  wait(env: Env, delayMs: number, signal: AbortSignal): Promise<void> {
    return this.#wakeup.wait(env, delayMs, signal);
  }
}
