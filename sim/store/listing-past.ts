/** What listings showed a moment ago: names come and go, and a stale LIST has not noticed some of them yet. */
import { createHash } from "node:crypto";
import type { ListedObject } from "../../src/store/index.js";

interface Change {
  readonly atMs: number;
  readonly key: string;
  /** Size before; undefined where there was no such name. */
  readonly size: number | undefined;
}

/** Remembers names that came and went for a while. */
export class ListingPast {
  readonly #keepMs: number;
  #changes: Change[] = [];
  nowMs: () => number = () => 0;

  constructor(keepMs: number) {
    this.#keepMs = keepMs;
  }

  /** A name comes (`size` undefined) or goes. */
  note(key: string, size: number | undefined): void {
    const atMs = this.nowMs();
    this.#changes.push({ atMs, key, size });
    if (this.#changes.length % 1024 === 0)
      this.#changes = this.#changes.filter((change) => change.atMs >= atMs - this.#keepMs);
  }

  /** What has changed since and is not listed so yet: sizes as they were, undefined for names that were not there. */
  since(asOfMs: number): ReadonlyMap<string, number | undefined> {
    const before = new Map<string, number | undefined>();
    for (let i = this.#changes.length - 1; i >= 0 && (this.#changes[i] as Change).atMs > asOfMs; i--) {
      const { key, size } = this.#changes[i] as Change;
      if (isLate(key, asOfMs)) before.set(key, size);
    }
    return before;
  }
}

/** An index that catches up has some names before others, in any order: every other name is late, by chance that the seed decides. */
function isLate(key: string, asOfMs: number): boolean {
  return ((createHash("md5").update(`${asOfMs} ${key}`).digest()[0] as number) & 1) === 1;
}

/** A listing as it was before these changes. */
export function rewound(
  listed: readonly ListedObject[],
  before: ReadonlyMap<string, number | undefined>,
  prefix: string,
  startAfter: string,
): ListedObject[] {
  const kept = listed.filter(({ key }) => !before.has(key));
  for (const [key, size] of before)
    if (size !== undefined && key.startsWith(prefix) && key > startAfter) kept.push({ key, size });
  return kept.sort((a, b) => (a.key < b.key ? -1 : 1));
}
