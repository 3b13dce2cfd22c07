/** What a version says of itself: how deep its index is, how far lanes are ahead, which checkpoints went, how far producers are ahead of them. */
import { indexFanout, type Manifest, type NamespaceSpec } from "../../src/format/index.js";
import { measureLag } from "../../src/lifecycle/index.js";
import { laneAheadMax } from "../../src/log/index.js";
import { checkCheckpoints, checkStarving } from "./retention-oracle.js";
import { Violation } from "./violation.js";

/** Half a minute by the product's own word, less what a stale listing hides. */
const quietMs = 30_000;
const quietSlackMs = 8_000;
/** An index level from which on a tree is deep: nodes of nodes. */
const deepLevel = 2;

/** Checks every version against the one before. */
export class VersionOracle {
  /** Virtual time; the cast's stage sets it. */
  nowMs: () => number = () => 0;
  readonly #keepLast: number;
  readonly #asked = new Set<string>();
  /** By version: whether producers may go on. */
  readonly #isOpenAt: boolean[] = [];
  /** When each producer id showed a sign of life that others can see; none once it has left. */
  readonly #signs = new Map<string, { readonly atMs: number; readonly version: number }[]>();
  readonly counts = {
    released: 0,
    starvations: 0,
    /** Versions whose index has nodes of nodes. */
    deepVersions: 0,
    /** Versions with batches above a missing step, and those in which some lane may not go on. */
    waitingVersions: 0,
    lanesAhead: 0,
    releasedByName: 0,
    lagBounds: 0,
    quietOpenings: 0,
  };

  constructor(keepLast: number) {
    this.#keepLast = keepLast;
  }

  /** Somebody is about to release this checkpoint by name: whatever its age, it may go from here on. */
  asked(group: string, id: string): void {
    this.#asked.add(`${group}/${id}`);
  }

  /** Checks one version. */
  check(spec: NamespaceSpec, before: Manifest, after: Manifest): void {
    const { rows } = spec.grid;
    const isAsked = (name: string): boolean => this.#asked.has(name);
    this.counts.released += checkCheckpoints(before, after, rows, this.#keepLast, isAsked);
    if (checkStarving(before, after, rows)) this.counts.starvations++;
    this.#checkIndex(after);
    this.#checkLanes(spec, after);
    this.#note(spec, after);
  }

  /**
   * A batch was accepted by a process that knew version `from` when it asked and knows `to` now: one of those let producers go on. What nobody
   * told it of, it cannot know.
   */
  accepted(producer: string, from: number, to: number): void {
    if (this.#isOpenAt[to] !== false) return;
    this.counts.lagBounds++;
    for (let version = from; version < to; version++) if (this.#isOpenAt[version] !== false) return;
    throw new Violation("max-lag", `${producer} accepts a batch knowing versions ${from} to ${to}: all at maxLag`);
  }

  /** An opening that wanted the id to be quiet has fenced its holder. Versions up to `boundary` nobody can ask any more for their time. */
  openedQuietly(id: string, begunMs: number, boundary: number): void {
    this.counts.quietOpenings++;
    // One that took long looked at some time that nobody knows.
    if (this.nowMs() - begunMs > quietSlackMs / 2) return;
    const last = this.#signs.get(id)?.findLast(({ atMs }) => atMs < begunMs);
    if (last === undefined || last.version <= boundary) return;
    const agoMs = begunMs - last.atMs;
    if (agoMs > quietSlackMs && agoMs < quietMs - quietSlackMs)
      throw new Violation("takeover", `${id} was taken over ${agoMs} ms after its holder's last sign of life`);
  }

  /** What is inline stays bounded: a full run goes into a segment, a full level into a node. */
  #checkIndex({ version, index, tail }: Manifest): void {
    if (tail.batches.length >= indexFanout)
      throw new Violation("bounded", `version ${version} has ${tail.batches.length} descriptors in its tail`);
    for (const [level, { refs }] of index.entries())
      if (refs.length >= indexFanout)
        throw new Violation("bounded", `version ${version} has ${refs.length} references at level ${level}`);
    if ((index[deepLevel]?.refs.length ?? 0) > 0) this.counts.deepVersions++;
  }

  #checkLanes({ order }: NamespaceSpec, { version, waiting, steps, producers }: Manifest): void {
    if (order.kind !== "lanes") return;
    if (waiting.size > 0) this.counts.waitingVersions++;
    const limit = steps.end + order.lanes * laneAheadMax;
    for (const step of waiting.keys())
      if (step >= limit)
        throw new Violation("lanes", `version ${version} has step ${step} waiting; it ends at ${steps.end}`);
    let isAhead = false;
    for (const [id, { seq }] of producers) isAhead ||= seq * order.lanes + Number(id.slice("lane-".length)) >= limit;
    if (isAhead) this.counts.lanesAhead++;
  }

  #note({ grid: { rows } }: NamespaceSpec, after: Manifest): void {
    const { maxLag } = after.settings ?? {};
    const atMs = this.nowMs();
    this.#isOpenAt[after.version] = maxLag === undefined || after.closed || measureLag(after, rows).steps < maxLag;
    // Nobody looks into tables for a sign of life.
    for (const id of this.#signs.keys()) if (!after.producers.has(id)) this.#signs.delete(id);
    for (const [id, { at, left, epoch }] of after.producers) {
      if (left === epoch) this.#signs.delete(id);
      else if (at === after.version) {
        const signs = this.#signs.get(id) ?? [];
        this.#signs.set(id, signs);
        signs.push({ atMs, version: after.version });
        if (signs.length > 400) signs.splice(0, 200);
      }
    }
  }
}
