/**
 * Whether the newest version found is the newest there was. Keys say which version and which epoch their writers knew, and those come from
 * the chain: a higher one than the chain shows proves that manifests are gone, though every object that is left fits.
 */
import { manifestPrefix } from "../format/index.js";
import { type Log, listIntents } from "../log/index.js";
import type { CallOptions } from "../store/index.js";
import type { Findings } from "./verify-report.js";

interface Writer {
  readonly producer: string;
  readonly epoch: number;
}

/** Collects what keys prove. */
export class NewestVersion {
  #base = 0;
  #baseKey = "";
  readonly #epochs = new Map<string, { epoch: number; key: string }>();

  /** A key whose writer knew the version `base`, and held an epoch if it was a producer. */
  note(key: string, base: number, writer?: Writer): void {
    if (base > this.#base) {
      this.#base = base;
      this.#baseKey = key;
    }
    if (writer) this.#noteEpoch(key, writer);
  }

  #noteEpoch(key: string, { producer, epoch }: Writer): void {
    if (epoch > (this.#epochs.get(producer)?.epoch ?? 0)) this.#epochs.set(producer, { epoch, key });
  }

  /** Intents are hints, but their names are made from verified state, and one page of them costs a request. */
  async noteIntents(log: Log, options: CallOptions): Promise<void> {
    const { keys } = await listIntents(log.store, log.spec.uuid, options);
    for (const [key, intent] of keys) {
      if (intent.kind === "opening") {
        const { producer, before } = intent.opening;
        this.#noteEpoch(key, { producer, epoch: before });
      } else if (intent.kind === "leaving") this.#noteEpoch(key, intent.leaving);
      else for (const batch of intent.batches) this.note(key, batch.base, batch);
    }
  }

  /** Compares with the newest version, which is read now: after every key was listed. */
  async compare(log: Log, findings: Findings, options: CallOptions): Promise<void> {
    const newest = await log.head.jump(options);
    const where = newest.version === 0 ? "and there are none at all" : `and the newest is ${newest.version}`;
    const remedy = `Restore ${manifestPrefix} as it was, and write nothing here before.`;
    if (this.#base > newest.version) {
      findings.error(
        "chain",
        `${this.#baseKey} was written when version ${this.#base} existed, ${where}: manifests were removed. ${remedy}`,
        { key: this.#baseKey },
      );
      return;
    }
    for (const [producer, { epoch, key }] of this.#epochs) {
      const known = newest.producers.get(producer)?.epoch ?? (await this.#epochInTables(log, producer, options));
      if (known >= epoch) continue;
      findings.error(
        "chain",
        `${key} was written in epoch ${epoch} of ${producer}; version ${newest.version} knows ${known === 0 ? "no such producer" : `epoch ${known}`}: manifests were removed. ${remedy}`,
        { key },
      );
      return;
    }
  }

  async #epochInTables(log: Log, producer: string, options: CallOptions): Promise<number> {
    const { tables } = await log.head.newest(options);
    for (const ref of [...tables].reverse()) {
      const found = (await log.readTable(ref, options)).get(producer);
      if (found) return found.state.epoch;
    }
    return 0;
  }
}
