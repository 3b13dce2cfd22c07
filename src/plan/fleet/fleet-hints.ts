/**
 * What processes of a fleet tell each other: which block a constructor waits for, and how many lanes each holds. Empty objects whose names say it all; one LIST
 * shows them. Nothing depends on a hint: it may be lost, late, or deleted by any process at any time.
 */
import { type Env, isBatchWeaveError, type ObjectStore } from "../../index.js";

const prefix = "hint/";
/** A block is wanted again after so long; of one source so often at most. */
const againMs = 5_000;
const gapMs = 500;
/** How long a constructor has waited that says so. */
const waitedMs = 500;
/** Between two words of one process about its lanes, more where they are many; and when their number has changed. */
const tellMsMin = 10_000;
const tellMsEach = 100;
const changedMsMin = 2_000;
/** Words older than that are of the dead, and removed by their readers; clocks may be wrong by as much. */
const staleMs = 300_000;
const removedMax = 100;

/** A block that a constructor waits for. */
interface Wanted {
  readonly source: string;
  readonly block: number;
  /** By the reader's monotonic clock. */
  readonly sinceMs: number;
}

/** Who loads, by their own words. */
interface Loaders {
  readonly processes: number;
  readonly lanes: number;
  /** Since the newest of those words; a process says one every ten seconds and more. */
  readonly toldAgoMs: number;
}

interface Word {
  readonly key: string;
  readonly kind: "want" | "hold";
  readonly who: string;
  readonly count: number;
  readonly atMs: number;
}

/** The hints of one fleet, as one process leaves and reads them. */
export class FleetHints {
  readonly #env: Env;
  readonly #store: ObjectStore;
  readonly #id: string;
  readonly #left = new Map<string, { readonly block: number; readonly key: string; readonly atMs: number }>();
  /** When a wanted block was seen first. */
  #seen = new Map<string, number>();
  #others: readonly number[] = [];
  #told: { readonly key: string; readonly atMs: number; readonly lanes: number } | undefined;

  /** `store`: any place that the fleet shares. */
  constructor(env: Env, store: ObjectStore) {
    this.#env = env;
    this.#store = store;
    this.#id = env.id();
  }

  /** Says that a block has been waited for for half a second. Seldom writes, and never fails. */
  async want(source: string, block: number): Promise<void> {
    const nowMs = this.#env.monotonic();
    const last = this.#left.get(source);
    // Of several that one process waits for, the lowest is needed first.
    if (last && nowMs < last.atMs + (block >= last.block ? againMs : gapMs)) return;
    const key = this.#key("want", source, block);
    this.#left.set(source, { block, key, atMs: nowMs });
    await this.#quietly(async () => {
      if (last) await this.#store.delete([last.key], { hint: true });
      await this.#store.put(key, new Uint8Array(0), { hint: true });
    });
  }

  /** The block of a source is there. */
  async got(source: string): Promise<void> {
    const last = this.#left.get(source);
    if (!last) return;
    this.#left.delete(source);
    await this.#quietly(() => this.#store.delete([last.key], { hint: true }));
  }

  /** What is wanted now. Tells others now and then how many lanes this process holds. */
  async read({
    lanes,
    signal,
  }: {
    readonly lanes?: number | undefined;
    readonly signal?: AbortSignal | undefined;
  }): Promise<readonly Wanted[]> {
    // Who holds no lanes does not ask how many others hold.
    const words = await this.#list(lanes === undefined ? ["want"] : ["want", "hold"], signal);
    const nowMs = this.#env.monotonic();
    const isStale = ({ atMs }: Word): boolean => Math.abs(this.#env.now() - atMs) > staleMs;
    const fresh = words.filter((word) => !isStale(word));
    this.#others = fresh.filter(({ kind, who }) => kind === "hold" && who !== this.#id).map(({ count }) => count);
    const wants = fresh.filter(({ kind }) => kind === "want");
    this.#seen = new Map(wants.map(({ key }) => [key, this.#seen.get(key) ?? nowMs - waitedMs]));
    if (lanes !== undefined) await this.#tell(lanes, signal);
    const stale = words.filter(isStale).map(({ key }) => key);
    if (stale.length > 0)
      await this.#quietly(() => this.#store.delete(stale.slice(0, removedMax), { hint: true, signal }));
    return wants.map(({ key, who, count }) => ({
      source: who,
      block: count,
      sinceMs: this.#seen.get(key) as number,
    }));
  }

  /** Loaders that told of themselves lately: all of this language, or with `source` those of Python that load it. Undefined: the store did not say. */
  async loaders(source?: string | undefined): Promise<Loaders | undefined> {
    const place = `${prefix}${source === undefined ? "hold/" : `hold-of/${source}/`}`;
    let found: Loaders | undefined;
    await this.#quietly(async () => {
      const { objects } = await this.#store.list(place, { keysOnly: true });
      const nowMs = this.#env.now();
      const words = objects.flatMap(({ key }) => {
        const [, count, atMs] = /\/(\d{1,15})-(\d{1,15})-[0-9a-v]{12}$/.exec(key) ?? [];
        return count === undefined || Math.abs(nowMs - Number(atMs)) > staleMs
          ? []
          : [{ count, agoMs: nowMs - Number(atMs) }];
      });
      found = {
        processes: words.length,
        lanes: words.reduce((sum, { count }) => sum + Number(count), 0),
        toldAgoMs: Math.max(0, Math.min(...words.map(({ agoMs }) => agoMs))),
      };
    });
    return found;
  }

  /** Whether a process that holds so many lanes holds clearly more than others. */
  isAboveShare(lanes: number): boolean {
    const others = this.#others;
    if (others.length === 0) return false;
    const mean = others.reduce((sum, count) => sum + count, lanes) / (others.length + 1);
    return lanes > mean + 1 && lanes >= Math.min(...others) + 2;
  }

  /** Takes back what this process said. */
  async leave(): Promise<void> {
    const keys = [...this.#left.values()].map(({ key }) => key);
    if (this.#told) keys.push(this.#told.key);
    this.#left.clear();
    this.#told = undefined;
    if (keys.length > 0) await this.#quietly(() => this.#store.delete(keys, { hint: true }));
  }

  async #tell(lanes: number, signal: AbortSignal | undefined): Promise<void> {
    const nowMs = this.#env.monotonic();
    const last = this.#told;
    const isChanged = last !== undefined && last.lanes !== lanes;
    const everyMs = Math.max(isChanged ? changedMsMin : tellMsMin, tellMsEach * this.#others.length);
    if (last && nowMs < last.atMs + everyMs) return;
    const key = this.#key("hold", this.#id, lanes);
    this.#told = { key, atMs: nowMs, lanes };
    await this.#quietly(async () => {
      await this.#store.put(key, new Uint8Array(0), { hint: true, signal });
      if (last) await this.#store.delete([last.key], { hint: true, signal });
    });
  }

  /** A page of each kind: with more hints than that, some are not seen now. What is no hint has no business here, and is removed. */
  async #list(kinds: readonly Word["kind"][], signal: AbortSignal | undefined): Promise<readonly Word[]> {
    const words: Word[] = [];
    await this.#quietly(async () => {
      const pages = await Promise.all(
        kinds.map((kind) => this.#store.list(`${prefix}${kind}/`, { keysOnly: true, signal })),
      );
      const junk: string[] = [];
      for (const { key } of pages.flatMap(({ objects }) => objects)) {
        const word = parse(key);
        if (word) words.push(word);
        else junk.push(key);
      }
      if (junk.length > 0) await this.#store.delete(junk.slice(0, removedMax), { hint: true, signal });
    });
    return words;
  }

  #key(kind: Word["kind"], who: string, count: number): string {
    return `${prefix}${kind}/${who}/${count}-${Math.floor(this.#env.now())}-${this.#id}`;
  }

  /** A store that fails fails its real users too, and loudly. */
  async #quietly(work: () => Promise<void>): Promise<void> {
    await work().catch((error: unknown) => {
      if (!isBatchWeaveError(error)) throw error;
    });
  }
}

function parse(key: string): Word | undefined {
  const found = /^hint\/(want|hold)\/([^/]+)\/(\d{1,15})-(\d{1,15})-[0-9a-v]{12}$/.exec(key);
  if (!found) return undefined;
  const [, kind, who, count, atMs] = found as unknown as [string, "want" | "hold", string, string, string];
  return { key, kind, who, count: Number(count), atMs: Number(atMs) };
}
