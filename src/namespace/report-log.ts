/** What a trainer tells its producers: numbers in a small log beside the training log. FORMAT.md says what a report looks like. */
import { onAbort } from "../env/index.js";
import { BatchWeaveError, isBatchWeaveError, shown } from "../errors.js";
import type { Producer } from "../producer/index.js";
import type { Namespace } from "./namespace.js";

/** Numbers by name, such as the loss of each source. */
export type ReportValues = Readonly<Record<string, number>>;

/** Between two reports of a trainer at least; what comes sooner waits for the next call. */
const everyMs = 5_000;
const valuesMax = 4_096;

/** Where the reports of a log lie. */
export function reportLogUri(uri: string): string {
  const [, place, query = ""] = /^([^?#]*?)\/*([?#].*)?$/s.exec(uri) as RegExpExecArray;
  return `${place}.reports${query}`;
}

/** Refuses what is no report. */
function assertReport(values: ReportValues): void {
  const entries = Object.entries(values ?? {});
  const [bad] = entries.filter(
    ([name, value]) => name.length > 256 || typeof value !== "number" || !Number.isFinite(value),
  );
  if (bad)
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `A report holds finite numbers by name, not ${shown(bad[1])} for ${shown(bad[0])}.`,
      { name: bad[0] },
    );
  if (entries.length > valuesMax)
    throw new BatchWeaveError(
      "LIMIT",
      `A report holds at most ${valuesMax} numbers, not ${entries.length}. Report fewer.`,
      { values: entries.length },
    );
}

/** Writes reports of one training run. Nothing depends on them: what the store refuses is forgotten, and the next one tries again. */
export class TrainerReports {
  readonly #open: () => Promise<Namespace>;
  readonly #group: string;
  readonly #monotonic: () => number;
  #producer: Promise<Producer> | undefined;
  #sentMs = Number.NEGATIVE_INFINITY;
  #values: Record<string, number> = {};

  constructor(open: () => Promise<Namespace>, group: string, monotonic: () => number, signal: AbortSignal) {
    this.#open = open;
    this.#group = group;
    this.#monotonic = monotonic;
    onAbort(signal, () => {
      void this.#producer?.then((producer) => producer.close()).catch(() => {});
    });
  }

  /** Sends numbers, with those of earlier calls that were not sent yet. Resolves when they are in the log, or when it is too soon. */
  async report(step: number, values: ReportValues): Promise<void> {
    assertReport(values);
    Object.assign(this.#values, values);
    if (this.#monotonic() - this.#sentMs < everyMs) return;
    this.#sentMs = this.#monotonic();
    const body = Buffer.from(JSON.stringify({ v: 1, step, values: this.#values }));
    this.#values = {};
    try {
      this.#producer ??= this.#open().then((ns) => ns.producer({ id: `trainer-${this.#group}` }));
      const producer = await this.#producer;
      await producer.append([body], { contentType: "application/json" });
      await producer.flush();
    } catch (error) {
      this.#producer = undefined;
      // Another process reports for the same run: that is for people to mend, and no reason to end the training.
      if (isBatchWeaveError(error, "FENCED")) process.emitWarning("Another process reports for the same training run.");
    }
  }
}
