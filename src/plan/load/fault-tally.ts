/** The faults of one source in one process, counted and told as they come. Says when they are too many for chance: then the pipeline is broken. */
import { BatchWeaveError } from "../../index.js";
import { type Fault, faultShareDefault } from "./fault.js";

/** A share is judged from so many samples on. */
const samplesMin = 100;
/** Counts are halved here, so that a source which goes bad late is noticed as soon as one that begins badly. */
const samplesMax = 2_000;
/** Faults one after another at most, whatever share is allowed: an endless source of nothing but faults must end. */
const inRowMax = 10_000;

/** Dropped tokens are judged from so many samples on, or so many sequences. */
const sequencesMin = 100;

/** What a tally must know of its source. */
export interface TallySource {
  readonly name: string;
  readonly shards: readonly string[];
  readonly settings: { readonly faultShareMax?: number | undefined };
}

/** What may be lost of samples that are longer than a sequence of `tokensMax`. */
export interface DropLimits {
  readonly tokensMax: number;
  readonly droppedShareMax: number;
}

/** Counts faults of one source, over all lanes of the process. */
export class FaultTally {
  readonly #source: TallySource;
  readonly #onFault: ((fault: Fault) => void) | undefined;
  readonly #shards = new Set<string>();
  #count = 0;
  #recent = { faults: 0, samples: 0 };
  #inRow = 0;
  #tokens = 0;
  #dropped = 0;
  #samples = 0;

  constructor(source: TallySource, onFault?: ((fault: Fault) => void) | undefined) {
    this.#source = source;
    this.#onFault = onFault;
  }

  /** All faults so far. */
  get count(): number {
    return this.#count;
  }

  /** Tokens dropped so far. */
  get dropped(): number {
    return this.#dropped;
  }

  /** A sample that is good so far, with the tokens that are left of it. */
  good(tokens: number): void {
    this.#inRow = 0;
    this.#tokens += tokens;
    this.#samples++;
    this.#see(0);
  }

  /** Tokens of a sample that was too long. Throws when too large a share is lost so. */
  drop(tokens: number, limits: DropLimits): void {
    this.#dropped += tokens;
    this.judgeDropped(limits, false);
  }

  /** Throws when too large a share of tokens was dropped. At the `end` of a source there is no need to wait for more samples. */
  judgeDropped({ tokensMax, droppedShareMax }: DropLimits, isEnd: boolean): void {
    const total = this.#tokens + this.#dropped;
    const isEnough = isEnd || this.#samples >= samplesMin || total >= sequencesMin * tokensMax;
    if (!isEnough || this.#dropped <= droppedShareMax * total) return;
    const { name } = this.#source;
    throw new BatchWeaveError(
      "LIMIT",
      `Source ${name}: ${this.#dropped} of ${total} tokens (${Math.round((100 * this.#dropped) / total)} %) were dropped, because their samples are longer than a sequence of ${tokensMax}, and droppedShareMax allows ${100 * droppedShareMax} %. Say tooLong: "split" in construct, use longer sequences, or raise droppedShareMax.`,
      { source: name, dropped: this.#dropped, tokens: total },
    );
  }

  /** One that is left out. Throws when these are too many. */
  add(fault: Fault): void {
    this.#count++;
    this.#inRow++;
    this.#onFault?.(fault);
    // Empty samples and those that are too long are no sign of anything broken; what is lost by length has a limit of its own.
    const isBad = fault.stage !== "empty" && fault.stage !== "length";
    if (isBad && fault.stage !== "shard") this.#see(1);
    // Several lanes may meet the same broken shard, each at a place of its own: it is one.
    if (fault.stage === "shard") this.#shards.add(fault.id.replace(/ at \S*$/, ""));
    if (isBad) this.#judge(fault);
    if (this.#inRow >= inRowMax)
      throw this.#refusal(fault, `${inRowMax} of its samples one after another cannot be used`, "");
  }

  #see(faults: number): void {
    const { faults: bad, samples } = this.#recent;
    const scale = samples >= samplesMax ? 0.5 : 1;
    this.#recent = { faults: scale * bad + faults, samples: scale * samples + 1 };
  }

  #judge(fault: Fault): void {
    const { faultShareMax = faultShareDefault } = this.#source.settings;
    if (faultShareMax >= 1) return;
    const allowed = `, and faultShareMax allows ${100 * faultShareMax} %`;
    const { faults, samples } = this.#recent;
    if (fault.stage === "source") throw this.#refusal(fault, "it has no sample that can be read", "");
    // A single shard that is broken is an accident even where there are few.
    const [broken, shards] = [this.#shards.size, this.#source.shards.length];
    if (broken > 1 && broken > faultShareMax * shards)
      throw this.#refusal(fault, `${broken} of its ${shards} shards cannot be read to their end`, allowed);
    if (samples >= samplesMin && faults > faultShareMax * samples)
      throw this.#refusal(fault, `${Math.round(faults)} of ${Math.round(samples)} samples are faulty`, allowed);
  }

  #refusal({ id, stage, reason }: Fault, what: string, allowed: string): BatchWeaveError {
    const { name } = this.#source;
    return new BatchWeaveError(
      "LIMIT",
      `Source ${name}: ${what}${allowed}. The last is ${stage} ${id}: ${reason}. Mend the source or its transforms, or raise faultShareMax in it.`,
      { source: name, faults: this.#count, id, stage },
    );
  }
}
