/**
 * One lane of a source: makes its blocks, one after another. A block is a function of the source, the seed, the lane and the block before it, whichever process makes
 * it. Its resume point is the place in the source behind its last sample.
 */
import { BatchWeaveError, type BlockSample, encodeSampleBlock, sampleBlockType } from "../../index.js";
import type { LaneBatch, LaneWriter } from "../fleet/index.js";
import type { Fault } from "../load/fault.js";
import type { PreparedSample } from "../load/prepared-sample.js";
import type { SampleSupply, SupplyPosition, SupplyStart } from "../load/sample-supply.js";
import { encodeSample } from "./sample-codec.js";

/** Which lane of which source. */
interface SourceLanePart {
  readonly source: string;
  /** Of everything that decides the blocks: a resume point is good only for the same. */
  readonly print: number;
  /** Of what a constructor knows of that too: settings and transforms, not shards. */
  readonly rule: number;
  readonly lane: number;
  readonly lanes: number;
  /** Whether the source ends one day. */
  readonly hasEnd: boolean;
  readonly blockBytes: number;
  readonly blockSamples: number;
  /** The log's first own step. */
  readonly first: number;
}

/** Where a lane of a source stands, as its last block stores it. */
export interface SourceLanePoint {
  readonly v: 1;
  readonly source: number;
  /** Absent where another program loads. */
  readonly rule?: number | undefined;
  readonly lane: readonly [lane: number, lanes: number];
  readonly seq: number;
  readonly at: readonly unknown[] | 0;
  readonly used: number;
  readonly over?: 1;
}

/** Where a lane goes on, from its resume point. */
export function startOfLane(
  resumePoint: unknown,
  seq: number,
  { source, print, lane, lanes }: Pick<SourceLanePart, "source" | "print" | "lane" | "lanes">,
): SupplyStart & { readonly isOver: boolean } {
  if (seq === 0) return { isOver: false };
  const point = resumePoint as Partial<SourceLanePoint> | null | undefined;
  const refuse = (why: string): never => {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The log of source ${source} cannot be continued: ${why} Continue with the source as it was, or let the exchange begin elsewhere (exchange.uri).`,
      { source, lane },
    );
  };
  if (point?.v !== 1 || point.lane === undefined)
    return refuse(`lane ${lane} was not written by a loader of this version.`);
  if (point.lane[0] !== lane || point.lane[1] !== lanes)
    return refuse(`its lane ${lane} is part ${point.lane.join(" of ")}, not ${lane} of ${lanes}.`);
  if (point.source !== print)
    return refuse(
      "the source is not what it was (shards, their sizes or contents, seed, epochs, windows, transforms' lengths or the size of blocks).",
    );
  if (point.seq !== seq) return refuse(`lane ${lane} has ${seq} blocks and its resume point says ${point.seq}.`);
  return { at: point.at === 0 ? undefined : point.at, used: point.used ?? 0, isOver: point.over === 1 };
}

/** Makes the blocks of one lane. */
export class SourceLane implements LaneWriter {
  readonly #part: SourceLanePart;
  readonly #supply: SampleSupply;
  #seq: number;
  #position: Partial<SupplyPosition>;
  #isOver: boolean;

  constructor(
    part: SourceLanePart,
    supply: SampleSupply,
    start: { readonly seq: number; readonly isOver: boolean } & SupplyStart,
  ) {
    this.#part = part;
    this.#supply = supply;
    this.#seq = start.seq;
    this.#position = start.at === undefined ? {} : { at: start.at, used: start.used ?? 0 };
    this.#isOver = start.isOver;
  }

  get nextSeq(): number {
    return this.#seq;
  }

  get nextStep(): number {
    return this.#part.first + this.#seq * this.#part.lanes + this.#part.lane;
  }

  async isOver(signal?: AbortSignal | undefined): Promise<boolean> {
    this.#isOver ||= this.#part.hasEnd && (await this.#supply.peek(signal)).meta === undefined;
    return this.#isOver;
  }

  async next(
    options: { readonly isFiller?: boolean | undefined; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<LaneBatch | undefined> {
    const { signal } = options;
    const { source, blockBytes, blockSamples } = this.#part;
    const samples: BlockSample[] = [];
    const faults: (readonly [number, Fault])[] = [];
    let bytes = 0;
    while (bytes < blockBytes && samples.length < blockSamples) {
      const next = await this.#supply.peek(signal);
      for (const fault of next.faults) faults.push([samples.length, fault]);
      if (next.faults.length > 0 || next.meta) this.#position = next.after;
      this.#supply.take();
      if (!next.meta) {
        this.#isOver = true;
        break;
      }
      const [value] = (await this.#supply.fetch([next], signal)) as [PreparedSample];
      const { id, tokens, images, features } = next.meta;
      samples.push({ id, tokens, images, features, bytes: encodeSample(value) });
      bytes += (samples.at(-1) as BlockSample).bytes.length;
    }
    if (samples.length === 0 && faults.length === 0 && !options.isFiller) return undefined;
    // Said with the last block, so that the log alone tells which lanes have ended.
    await this.isOver(signal);
    this.#seq++;
    const { table, payload } = encodeSampleBlock(source, samples, faults);
    return {
      slices: [table, payload],
      append: {
        resumePoint: this.#point(),
        contentType: sampleBlockType,
        user: {
          samples: samples.length,
          tokens: samples.reduce((sum, sample) => sum + sample.tokens, 0),
          faults: faults.length,
        },
      },
    };
  }

  #point(): SourceLanePoint {
    const { print, rule, lane, lanes } = this.#part;
    return {
      v: 1,
      source: print,
      rule,
      lane: [lane, lanes],
      seq: this.#seq,
      at: this.#position.at ?? 0,
      used: this.#position.used ?? 0,
      ...(this.#isOver ? { over: 1 } : {}),
    };
  }

  async close(): Promise<void> {}
}
