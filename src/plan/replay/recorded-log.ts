/** An earlier log, read for its replay: which samples each batch held, from which part of the sources, and where those stood. */
import { BatchWeaveError, type Env, type Namespace } from "../../index.js";
import type { BatchNotes } from "../run/batch-notes.js";
import { decodeLaneState, isLanePoint, isSourceOf } from "../run/lane-state.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import type { ShardPool } from "../source/shard-pool.js";
import type { ResolvedSource } from "../source/source.js";
import type { SourcePosition } from "../source/source-cursor.js";
import { RecordedWalk } from "./recorded-walk.js";
import type { RecordedBatch } from "./replay-batch.js";

/** Steps before a part's batch that are searched for the one before it, at most. */
const searchedStepsMax = 4_096;

/** Part `lane` of `lanes` of the sources. */
interface RecordedPart {
  readonly lane: number;
  readonly lanes: number;
}

/** Reads batches in the order of the log. */
export class RecordedLog {
  readonly #ns: Namespace;
  readonly #pipeline: ResolvedPipeline;
  readonly #parts: { readonly shards: ShardPool; readonly env: Env };
  readonly #first: number;
  readonly #walks = new Map<string, Map<string, RecordedWalk>>();

  /** `first`: the first step that is replayed at all. */
  constructor(
    ns: Namespace,
    pipeline: ResolvedPipeline,
    parts: { readonly shards: ShardPool; readonly env: Env },
    first: number,
  ) {
    this.#ns = ns;
    this.#pipeline = pipeline;
    this.#parts = parts;
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
    this.#assertSources(step, resumePoint, names);
    const { positions } = decodeLaneState(resumePoint, this.#pipeline.print, { ...part, isFork: true });
    const walks = names.size === 0 ? new Map<string, RecordedWalk>() : await this.#walksOf(step, part, signal);
    return {
      log: this.#ns.uri,
      step,
      notes,
      samples,
      walks: new Map(
        [...names].map((name) => {
          const at = positions[this.#pipeline.print.names.indexOf(name)] as SourcePosition | undefined;
          return [name, { walk: walks.get(name) as RecordedWalk, epoch: at?.[0] ?? 0 }];
        }),
      ),
    };
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
    const { sources, seed } = this.#pipeline;
    const walks = new Map(
      sources.map((source: ResolvedSource, i) => [
        source.name,
        new RecordedWalk(source, this.#parts, { seed, ...part }, state?.positions[i] as SourcePosition | undefined),
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
    const { lane, positions } = point as {
      readonly lane: readonly [number, number];
      readonly positions: readonly unknown[];
    };
    if (positions.some((at) => Array.isArray(at) && at.length === 2))
      throw this.#refuse(
        step,
        'was made through source logs, whose samples are prepared already. Replay a log of exchange: "direct"',
      );
    return { lane: lane[0], lanes: lane[1] };
  }

  #assertSources(step: number, point: unknown, names: ReadonlySet<string>): void {
    const { print } = this.#pipeline;
    for (const name of names) {
      if (!print.names.includes(name))
        throw this.#refuse(step, `holds samples of ${name}, which the pipeline does not have`);
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
