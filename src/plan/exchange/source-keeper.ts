/**
 * How long blocks of source logs are kept, and how far loaders may be ahead. Both follow the training log: loaders may be so many blocks ahead of where its
 * lanes stand; blocks stay as long as a live checkpoint of it, or a fork, may go on from before them. Said by two checkpoints in each source log, in a group
 * of this training log. The holder of lane 0 keeps, and any process that has waited for a block for long; two only say the same twice.
 */
import {
  type Env,
  isBatchWeaveError,
  type LiveCheckpoint,
  makeCursor,
  type Namespace,
  type NamespaceInfo,
} from "../../index.js";
import { decodeLaneState } from "../run/lane-state.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import type { BlockPosition } from "./block-supply.js";
import type { Exchange } from "./exchange.js";

/** What a keeper works with. */
interface KeeperParts {
  readonly training: Namespace;
  /** In the order of the pipeline's sources. */
  readonly logs: readonly Namespace[];
  readonly pipeline: ResolvedPipeline;
  readonly exchange: Exchange;
  readonly env: Env;
  /** Told why it could not keep, once for each reason. */
  readonly onTrouble?: ((message: string) => void) | undefined;
  /** Blocks that a constructor waits for, by the names of their sources. */
  readonly wanted: (signal: AbortSignal) => Promise<readonly { readonly source: string; readonly block: number }[]>;
  /** Whether a lane of this process waits for a block now: loaders may wait for this keeper then. */
  readonly isWaiting: () => boolean;
}

/** First block that is still needed, by source. */
type Blocks = readonly number[];

/** Between two looks: every one while a lane waits, else every second. */
const tickMs = 250;
const reclaimMs = 60_000;
const sayAgainMs = 3_000;

/** Keeps source logs in step with a training log. */
export class SourceKeeper {
  readonly #parts: KeeperParts;
  readonly #group: string;
  /** By lane: what its last batch said. */
  readonly #lanes = new Map<number, { readonly seq: number; readonly blocks: Blocks }>();
  /** By step of a live checkpoint or a fork: where its successor would go on. Read while the batches before it are there. */
  readonly #floors = new Map<number, Blocks>();
  readonly #said = new Map<number, { readonly at: number; readonly floor: number; readonly saidMs: number }>();
  /** Sources of which a constructor waits for a block. */
  #wanted: ReadonlySet<number> = new Set();
  #reclaimedMs: number;
  #told: string | undefined;

  constructor(parts: KeeperParts) {
    this.#parts = parts;
    this.#group = `training-${parts.training.uuid.slice(0, 8)}`;
    this.#reclaimedMs = parts.env.monotonic();
  }

  /** Keeps until the signal aborts. A look that fails is tried again: nothing is lost, loaders only wait. */
  async run(isKeeper: () => boolean, signal: AbortSignal): Promise<void> {
    for (let isSecond = true; !signal.aborted; isSecond = !isSecond) {
      try {
        if (isKeeper() && (isSecond || this.#parts.isWaiting())) await this.#tick(signal);
      } catch (error) {
        if (signal.aborted) return;
        if (isBatchWeaveError(error, "DELETED")) throw error;
        this.#tell(error);
      }
      await this.#parts.env.sleep(tickMs * (0.75 + this.#parts.env.random() / 2), signal).catch(() => {});
    }
  }

  /** A failure is told when it is another than before. */
  #tell(error: unknown): void {
    const message = error instanceof Error ? error.message : String(error);
    if (message !== this.#told)
      this.#parts.onTrouble?.(`source logs cannot be kept in step, and are tried again: ${message}`);
    this.#told = message;
  }

  /** The training log is complete: it holds loaders of other training logs up no more. What its checkpoints need stays. */
  async finish(signal: AbortSignal = new AbortController().signal): Promise<void> {
    await this.#tick(signal).catch((error: unknown) => {
      // What the training log has trimmed meanwhile was said by those who kept before.
      if (!isBatchWeaveError(error, "RECLAIMED")) throw error;
    });
    await Promise.all(
      this.#parts.logs.map(async (ns) => {
        const live = (await ns.checkpoints({ signal })).filter(({ group }) => group === this.#group);
        for (const { id } of live)
          if (id.startsWith("at-")) await ns.releaseCheckpoint(id, { group: this.#group, signal });
      }),
    );
  }

  async #tick(signal: AbortSignal): Promise<void> {
    const { logs, exchange, training } = this.#parts;
    const { checkpoints, forks, steps, producers } = await training.info({ signal });
    const at = await this.#allowed(await this.#heads(producers, signal), signal);
    const marks = [...checkpoints.map(({ step }) => step), ...forks.map(({ to }) => to)];
    const floor = exchange.keep === "forever" ? undefined : await this.#floor(marks, steps.trim, signal);
    await Promise.all(
      logs.map(async (ns, i) => {
        const wanted = {
          at: at[i] as number,
          floor: floor?.[i] ?? this.#said.get(i)?.floor ?? (await ns.info({ signal })).steps.trim,
        };
        await this.#say(i, { ...wanted, floor: Math.min(wanted.floor, wanted.at) }, signal);
      }),
    );
    if (exchange.keep === "forever" || this.#parts.env.monotonic() - this.#reclaimedMs < reclaimMs) return;
    this.#reclaimedMs = this.#parts.env.monotonic();
    await Promise.all(logs.map((ns) => ns.reclaim({}, { signal })));
  }

  /**
   * From where loaders are measured: where the lanes stand. A batch that takes more blocks than loaders may be ahead would wait for ever, as a lane moves on
   * with whole batches only: so a block that is waited for comes, and some behind it.
   */
  async #allowed(heads: Blocks, signal: AbortSignal): Promise<Blocks> {
    const { pipeline, exchange, wanted } = this.#parts;
    const blocks = [...heads];
    const asked = new Set<number>();
    for (const { source, block } of await wanted(signal)) {
      const i = pipeline.print.names.indexOf(source);
      asked.add(i);
      if (i !== -1) blocks[i] = Math.max(blocks[i] as number, block - Math.floor(exchange.aheadBlocks / 2));
    }
    this.#wanted = asked;
    return blocks;
  }

  /** Where the lanes stand now: the lowest block of each source that one of them still needs. */
  async #heads(producers: NamespaceInfo["producers"], signal: AbortSignal): Promise<Blocks> {
    const { training, pipeline } = this.#parts;
    const lanes = Array.from({ length: pipeline.lanes }, (_, k) => k);
    const seqs = new Map(producers.map(({ id, seq }) => [id, seq]));
    const blocks = await Promise.all(
      lanes.map(async (lane) => {
        const known = this.#lanes.get(lane);
        // One that has not moved is not asked.
        if (known && known.seq === seqs.get(`lane-${lane}`)) return known.blocks;
        const state = await training.producerState(`lane-${lane}`, { signal });
        if (!state || state.seq === 0) return pipeline.sources.map(() => lane);
        const found = { seq: state.seq, blocks: this.#blocksOf(state.resumePoint, lane) };
        this.#lanes.set(lane, found);
        return found.blocks;
      }),
    );
    return lowest(blocks);
  }

  #blocksOf(resumePoint: unknown, lane: number): Blocks {
    const { print, lanes } = this.#parts.pipeline;
    const { positions } = decodeLaneState(resumePoint, print, { lane, lanes, isFork: true });
    return positions.map((position) => (position as BlockPosition | undefined)?.[0] ?? lane);
  }

  /** The lowest block of each source that a constructor which goes on from a mark needs; undefined when that is not known of all of them. */
  async #floor(marks: readonly number[], trim: number, signal: AbortSignal): Promise<Blocks | undefined> {
    for (const mark of this.#floors.keys()) if (!marks.includes(mark)) this.#floors.delete(mark);
    // No checkpoint: everything that the log has may be gone on from.
    if (marks.length === 0) return undefined;
    for (const mark of new Set(marks)) {
      const blocks = this.#floors.get(mark) ?? (await this.#blocksBefore(mark, trim, signal));
      if (!blocks) return undefined;
      this.#floors.set(mark, blocks);
    }
    return lowest([...this.#floors.values()]);
  }

  async #blocksBefore(step: number, trim: number, signal: AbortSignal): Promise<Blocks | undefined> {
    const { training, pipeline } = this.#parts;
    const { lanes, sources } = pipeline;
    const first = Math.max(0, step - lanes);
    // The batches before the lowest checkpoint are reclaimed with it; who kept before us has said what it needs.
    if (first < trim) return undefined;
    const read = Array.from({ length: step - first }, async (_, i) => {
      const { producer, resumePoint } = await training.inspect(first + i, { signal });
      return this.#blocksOf(resumePoint, Number(producer.slice("lane-".length)));
    });
    const blocks = await Promise.all(read).catch((error: unknown) => {
      // Reclaimed since we looked, or while we read: the checkpoint is a former one. Where it is not known what is needed, nothing is given free.
      if (!isBatchWeaveError(error, "RECLAIMED") && !isBatchWeaveError(error, "MISSING_OBJECT")) throw error;
      return undefined;
    });
    if (!blocks) return undefined;
    // A lane that has no batch before the step has taken nothing.
    return lowest([...blocks, ...(step < lanes ? [sources.map(() => 0)] : [])]);
  }

  /**
   * Releases what was said before. Only what is older than our own of the same kind: however many keep at a time, the newest of each kind stays, and blocks
   * that are needed are never without one that says so.
   */
  async #releaseOlder(
    ns: Namespace,
    said: readonly (LiveCheckpoint | undefined)[],
    signal: AbortSignal,
  ): Promise<void> {
    const kindOf = (id: string): string => id.slice(0, id.indexOf("-"));
    for (const { id, group, version } of await ns.checkpoints({ signal })) {
      const own = said.find((one) => one !== undefined && kindOf(one.id) === kindOf(id));
      if (group !== this.#group || !own || version >= own.version) continue;
      await ns.releaseCheckpoint(id, { group, signal }).catch((error: unknown) => {
        if (!isBatchWeaveError(error, "NO_CHECKPOINT")) throw error;
      });
    }
  }

  /** Four commits, when something has moved far enough to be worth them. The newest of a group is what loaders are measured by, the lowest is what is kept. */
  async #say(
    source: number,
    { at, floor }: { readonly at: number; readonly floor: number },
    signal: AbortSignal,
  ): Promise<void> {
    const { logs, exchange, env } = this.#parts;
    const before = this.#said.get(source);
    const nowMs = env.monotonic();
    // A keeper that stood still for long may have said something older after us, by which loaders are measured now.
    const isDoubtful = this.#wanted.has(source) && before !== undefined && nowMs - before.saidMs >= sayAgainMs;
    const isFar = !before || at >= before.at + Math.ceil(exchange.aheadBlocks / 4) || floor !== before.floor;
    if (!isFar && !isDoubtful) return;
    const ns = logs[source] as Namespace;
    const { end, trim } = (await ns.info({ signal })).steps;
    const nonce = env.id().slice(0, 8);
    const register = async (id: string, block: number): Promise<LiveCheckpoint | undefined> => {
      const row = Math.max(trim, Math.min(block, end));
      const options = { group: this.#group, signal };
      try {
        return await ns.checkpoint(`${id}-${block}-${nonce}`, makeCursor(ns.uuid, row, 0), options);
      } catch (error) {
        // A keeper before us, or beside us, has seen later checkpoints: what it released is not ours to keep.
        if (!isBatchWeaveError(error, "RECLAIMED")) throw error;
        return undefined;
      }
    };
    // One after the other: the newest of the group is what loaders are measured by.
    const said = [await register("floor", floor), await register("at", at)];
    await this.#releaseOlder(ns, said, signal);
    this.#said.set(source, { at, floor, saidMs: nowMs });
  }
}

function lowest(blocks: readonly Blocks[]): Blocks {
  const [first = [], ...others] = blocks;
  return first.map((block, i) => Math.min(block, ...others.map((other) => other[i] as number)));
}
