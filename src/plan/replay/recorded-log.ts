/** An earlier log, read for its replay: which samples each batch held, from which part of the sources, and where those stood. */
import { BatchWeaveError, type Env, type Namespace } from "../../index.js";
import { sourceLanes } from "../exchange/exchange.js";
import type { BatchNotes } from "../run/batch-notes.js";
import { decodeLaneState, isLanePoint, isSourceOf } from "../run/lane-state.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import type { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import type { SourcePosition } from "../source/source-cursor.js";
import { DealtWalk, PartWalk, type RecordedWalk, type WalkParts } from "./recorded-walk.js";
import type { RecordedBatch } from "./replay-batch.js";

/** Steps before a part's batch that are searched for the one before it, at most. */
const searchedStepsMax = 4_096;

/** Part `lane` of `lanes` of the sources. */
interface RecordedPart {
  readonly lane: number;
  readonly lanes: number;
}

/** Whether a batch was made through source logs: its lane stood in blocks, and not in shards. */
export function isDealt(resumePoint: unknown): boolean {
  const { positions } = (resumePoint ?? {}) as { readonly positions?: readonly unknown[] };
  return positions?.some((at) => Array.isArray(at) && at.length === 2) === true;
}

/** Reads batches in the order of the log. */
export class RecordedLog {
  readonly #ns: Namespace;
  readonly #pipeline: ResolvedPipeline;
  readonly #parts: WalkParts;
  readonly #first: number;
  readonly #walks = new Map<string, Map<string, RecordedWalk>>();
  /** Of logs that were made through source logs: one for all lanes. */
  readonly #dealt = new Map<string, DealtWalk>();

  /** `first`: the first step that is replayed at all. */
  constructor(
    ns: Namespace,
    pipeline: ResolvedPipeline,
    parts: { readonly shards: ShardPool; readonly env: Env },
    first: number,
  ) {
    this.#ns = ns;
    this.#pipeline = pipeline;
    this.#parts = { ...parts, seed: pipeline.seed };
    this.#first = first;
  }

  async batch(step: number, signal: AbortSignal | undefined): Promise<RecordedBatch> {
    const [{ resumePoint, user }, lineage] = await Promise.all([
      this.#ns.inspect(step, { signal }),
      this.#ns.samples(step, { signal }),
    ]);
    const notes = (user ?? undefined) as Partial<BatchNotes> | undefined;
    const samples = (lineage ?? []).filter(({ row }) => row !== undefined);
    if (!lineage && notes?.samples !== 0)
      throw this.#refuse(step, "has no lineage: it does not say which samples it holds");
    const part = this.#partOf(step, resumePoint);
    const names = new Set(samples.map(({ source }) => source));
    const record = { log: this.#ns.uri, step, notes, samples };
    for (const name of names)
      if (!this.#pipeline.print.names.includes(name))
        throw this.#refuse(step, `holds samples of ${name}, which the pipeline does not have`);
    if (isDealt(resumePoint)) {
      const dealt = [...names].map((name) => [name, { walk: this.#dealtWalk(step, name), epoch: 0 }] as const);
      return { ...record, walks: new Map(dealt) };
    }
    this.#assertSources(step, resumePoint, names);
    const { positions } = decodeLaneState(resumePoint, this.#pipeline.print, { ...part, isFork: true });
    const walks = names.size === 0 ? new Map<string, RecordedWalk>() : await this.#walksOf(step, part, signal);
    return {
      ...record,
      walks: new Map(
        [...names].map((name) => {
          const at = positions[this.#pipeline.print.names.indexOf(name)] as SourcePosition | undefined;
          return [name, { walk: walks.get(name) as RecordedWalk, epoch: at?.[0] ?? 0 }];
        }),
      ),
    };
  }

  #dealtWalk(step: number, name: string): DealtWalk {
    const held = this.#dealt.get(name);
    if (held) return held;
    const source = this.#pipeline.sources.find((one) => one.name === name) as ResolvedSource;
    if (source.shards.length === 0)
      throw this.#refuse(
        step,
        `holds samples of ${name}, which another program loads: they cannot be prepared again here`,
      );
    const walk = new DealtWalk(source, this.#parts, sourceLanes(source));
    this.#dealt.set(name, walk);
    return walk;
  }

  /** The walks of a part: they begin behind the last batch of it that is not replayed here. */
  async #walksOf(
    step: number,
    part: RecordedPart,
    signal: AbortSignal | undefined,
  ): Promise<Map<string, RecordedWalk>> {
    const key = `${part.lane}/${part.lanes}`;
    const held = this.#walks.get(key);
    if (held) return held;
    const before = await this.#pointBefore(step, part, signal);
    const state =
      before === undefined ? undefined : decodeLaneState(before, this.#pipeline.print, { ...part, isFork: true });
    const walks = new Map(
      this.#pipeline.sources.map((source, i) => [
        source.name,
        new PartWalk(source, this.#parts, part, state?.positions[i] as SourcePosition | undefined),
      ]),
    );
    this.#walks.set(key, walks);
    return walks;
  }

  /** The resume point of the part's batch before `step`; undefined: there is none, it began there. */
  async #pointBefore(step: number, { lane, lanes }: RecordedPart, signal: AbortSignal | undefined): Promise<unknown> {
    const { trim } = (await this.#ns.info({ signal })).steps;
    const bottom = Math.max(trim, step - searchedStepsMax);
    for (let at = step - 1; at >= bottom; at--) {
      const { resumePoint } = await this.#ns.inspect(at, { signal });
      const found = isLanePoint(resumePoint) ? (resumePoint as { lane: readonly number[] }).lane : [];
      if (found[0] === lane && found[1] === lanes) return resumePoint;
    }
    if (bottom === 0) return undefined;
    throw this.#refuse(
      step,
      `cannot be replayed: where part ${lane} of ${lanes} stood before it is not in the log any more (it begins at step ${this.#first})`,
    );
  }

  #partOf(step: number, point: unknown): RecordedPart {
    if (!isLanePoint(point)) throw this.#refuse(step, "was not written by a pipeline");
    const { lane } = point as { readonly lane: readonly [number, number] };
    return { lane: lane[0], lanes: lane[1] };
  }

  #assertSources(step: number, point: unknown, names: ReadonlySet<string>): void {
    const { print } = this.#pipeline;
    for (const name of names) {
      if (!isSourceOf(point, print, name))
        throw this.#refuse(
          step,
          `holds samples of ${name}, which is not what it was (shards, their sizes or contents, seed, epochs or windows), so they cannot be found in their order. Replay with the source as it was; transforms may change`,
        );
    }
  }

  #refuse(step: number, why: string): BatchWeaveError {
    return new BatchWeaveError("INVALID_ARGUMENT", `Step ${step} of ${this.#ns.uri} ${why}.`, {
      uri: this.#ns.uri,
      step,
    });
  }
}
