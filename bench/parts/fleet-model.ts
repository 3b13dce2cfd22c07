/**
 * A model of a fleet, second by second: loaders prepare samples of many sources into source logs of bounded length, constructors take them, a trainer takes
 * a batch each step. Samples are a fluid; the autoscaler is the real one. Modelled are threads, the time a process takes to start, and the bound of
 * each log; not modelled are failures, the store, and the main threads.
 */
import {
  decideFleet,
  type FleetCosts,
  type FleetLook,
  type FleetPlan,
  looksMax,
  planFleet,
  type ScaleSettings,
  SeededRandom,
  type SourceProfile,
} from "../../src/plan/index.js";

/**
 * How loaders are chosen. `fixed`: threads of the first phase, each bound to its source. `static`: as many threads, which go where they are needed.
 * `reactive`, `predictive`: the autoscaler, by what batches held, and by the schedule. `peak`: threads for the phase that needs most, all the time.
 */
export type FleetMode = "fixed" | "static" | "reactive" | "predictive" | "peak";

/** A source of the model. */
interface ModelSource {
  readonly isDear: boolean;
  readonly profile: SourceProfile;
}

/** Settings of the model. */
export interface ModelSettings {
  readonly sources: number;
  readonly samplesPerStep: number;
  readonly stepSeconds: number;
  /** From asking for a process to its first sample. */
  readonly startSeconds: number;
  /** Blocks that a source log may be ahead. */
  readonly aheadBlocks: number;
  /** Batches that constructors may be ahead of the trainer. */
  readonly aheadSteps: number;
  /** The step at which 1:9 becomes 9:1, and the last one. */
  readonly changeStep: number;
  readonly steps: number;
  readonly lookSeconds: number;
  readonly threads: number;
}

/** A normal deviate. */
function normal(random: SeededRandom): number {
  const unit = (): number => (random.below(1 << 24) + 1) / (1 << 24);
  return Math.sqrt(-2 * Math.log(unit())) * Math.cos(2 * Math.PI * unit());
}

/** Half of the sources are text (2 ms and 16 kB a sample in the middle), half images (60 ms, 600 kB), each spread by a log-normal. */
function modelSources(count: number): ModelSource[] {
  return Array.from({ length: count }, (_, i) => {
    const isDear = 2 * i >= count;
    const random = new SeededRandom("fleet-model", i);
    const loaderMs = (isDear ? 60 : 2) * Math.exp(0.7 * normal(random));
    const readyBytes = (isDear ? 600_000 : 16_000) * Math.exp(0.3 * normal(random));
    const profile: SourceProfile = {
      source: `${isDear ? "image" : "text"}-${i}`,
      shards: 64,
      shardBytes: 1e11,
      lanesMax: 64,
      samples: 64,
      faults: 0,
      tokens: 2_000,
      pieces: 1,
      readMs: 0.05,
      loaderMs,
      constructorMs: 0,
      reads: 0.01,
      readBytes: readyBytes / 4,
      readyBytes,
      windowBytes: 1_000_000,
    };
    return { isDear, profile };
  });
}

/** Costs of the model's pipeline, with the change of its mixture. */
export function modelCosts({ sources: count, samplesPerStep, changeStep }: ModelSettings): FleetCosts {
  const sources = modelSources(count);
  const dear = sources.filter(({ isDear }) => isDear).length;
  const shares = (share: number): number[] =>
    sources.map(({ isDear }) => (isDear ? share / dear : (1 - share) / (count - dear)));
  return {
    profiles: sources.map(({ profile }) => profile),
    construct: { buildMs: 2_000, batchBytes: 5e8, samples: samplesPerStep, tokens: 0, slots: 0 },
    phases: [
      { name: "1:9", from: 0, shares: shares(0.1) },
      { name: "9:1", from: changeStep, shares: shares(0.9) },
    ],
    samplesPerStep,
    lanes: 16,
    processBytes: 1.2e8,
    threadBytes: 3e7,
    bufferSamplesMax: 64,
    bufferBytesMax: 2 ** 28,
    windowBytesMax: 2 ** 28,
    blockBytes: 4_194_304,
    blockSamples: 4_096,
  };
}

/** One second of a run. */
export interface ModelSecond {
  readonly second: number;
  readonly step: number;
  readonly loaders: number;
  /** Constructors had room for a batch and lacked samples. */
  readonly isConstructorWaiting: boolean;
  readonly isTrainerWaiting: boolean;
}

/** Runs the model until its last step. */
export function runModel(mode: FleetMode, settings: ModelSettings): ModelSecond[] {
  const plan = planFleet(modelCosts(settings), { stepSeconds: settings.stepSeconds, threads: settings.threads });
  return new ModelRun(mode, plan, settings).run();
}

class ModelRun {
  readonly #mode: FleetMode;
  readonly #plan: FleetPlan;
  readonly #settings: ModelSettings;
  /** Thread seconds of a step that is all of this source, and how much of such a step its log may hold. */
  readonly #costs: Float64Array;
  readonly #caps: Float64Array;
  /** Ready, in such steps. */
  readonly #ready: Float64Array;
  /** Of it, what the batch has that is being made. */
  readonly #taken: Float64Array;
  readonly #history: FleetLook[] = [];
  /** When processes that were asked for can work. */
  #starting: number[] = [];
  #active: number;
  #made = 0;
  #trained = 0;
  #stepEnds = 0;

  constructor(mode: FleetMode, plan: FleetPlan, settings: ModelSettings) {
    this.#mode = mode;
    this.#plan = plan;
    this.#settings = settings;
    const sources = Object.values(plan.sources);
    this.#costs = Float64Array.from(sources, ({ threadSeconds }) => threadSeconds);
    this.#caps = Float64Array.from(sources, ({ blocks }) => settings.aheadBlocks / blocks);
    this.#ready = new Float64Array(sources.length);
    this.#taken = new Float64Array(sources.length);
    this.#active = mode === "peak" ? Math.max(this.#needed(0), this.#needed(settings.changeStep)) : this.#needed(0);
  }

  #shares(step: number): readonly number[] {
    return (this.#plan.phases.findLast(({ from }) => from <= step) ?? this.#plan.phases[0])
      ?.shares as readonly number[];
  }

  /** Processes that a fleet of the size of one phase has. */
  #needed(step: number): number {
    const shares = this.#shares(step);
    const threads = shares.reduce((sum, share, i) => sum + share * (this.#costs[i] as number), 0);
    return Math.ceil(threads / this.#settings.stepSeconds / 0.75 / this.#settings.threads);
  }

  run(): ModelSecond[] {
    const { steps, lookSeconds } = this.#settings;
    const seconds: ModelSecond[] = [];
    // The fleet has been running: logs are full.
    this.#ready.set(this.#caps);
    for (let second = 0; this.#trained < steps; second++) {
      this.#start(second);
      this.#load();
      const isConstructorWaiting = this.#construct();
      const isTrainerWaiting = this.#train(second);
      if (second % lookSeconds === 0) this.#scale(second);
      const loaders = this.#active + this.#starting.length;
      seconds.push({ second, step: this.#trained, loaders, isConstructorWaiting, isTrainerWaiting });
    }
    return seconds;
  }

  #start(second: number): void {
    this.#active += this.#starting.filter((at) => at <= second).length;
    this.#starting = this.#starting.filter((at) => at > second);
  }

  /** A second of all threads. */
  #load(): void {
    const threads = this.#active * this.#settings.threads;
    const shares = this.#shares(this.#made);
    if (this.#mode === "fixed") {
      const first = this.#shares(0);
      const loads = first.map((share, i) => share * (this.#costs[i] as number));
      const all = loads.reduce((a, b) => a + b, 0);
      loads.forEach((load, i) => {
        const made = (threads * load) / all / (this.#costs[i] as number);
        this.#ready[i] = Math.min(this.#caps[i] as number, (this.#ready[i] as number) + made);
      });
      return;
    }
    // Threads go where the lead is shortest: they raise the lowest leads to one level, as high as a second of theirs reaches.
    const fill = (level: number, isDone: boolean): number => {
      let spent = 0;
      for (let i = 0; i < shares.length; i++) {
        const goal = Math.min(this.#caps[i] as number, level * (shares[i] as number));
        const more = Math.max(0, goal - (this.#ready[i] as number));
        spent += more * (this.#costs[i] as number);
        if (isDone) this.#ready[i] = (this.#ready[i] as number) + more;
      }
      return spent;
    };
    let [low, high] = [0, 4_096];
    if (fill(high, false) <= threads) low = high;
    for (let turn = 0; turn < 26 && low < high; turn++) {
      const middle = (low + high) / 2;
      if (fill(middle, false) <= threads) low = middle;
      else high = middle;
    }
    fill(low, true);
  }

  /** Takes what is there for the next batch, and makes what can be made; whether samples were lacking. */
  #construct(): boolean {
    while (this.#made < this.#trained + 1 + this.#settings.aheadSteps) {
      const shares = this.#shares(this.#made);
      let isLacking = false;
      shares.forEach((share, i) => {
        const more = Math.min(share - (this.#taken[i] as number), this.#ready[i] as number);
        this.#ready[i] = (this.#ready[i] as number) - more;
        this.#taken[i] = (this.#taken[i] as number) + more;
        isLacking ||= (this.#taken[i] as number) < share - 1e-12;
      });
      if (isLacking) return true;
      this.#taken.fill(0);
      this.#made++;
    }
    return false;
  }

  #train(second: number): boolean {
    if (second < this.#stepEnds) return false;
    if (this.#made <= this.#trained) return true;
    this.#trained++;
    this.#stepEnds = second + this.#settings.stepSeconds;
    return false;
  }

  #scale(second: number): void {
    const { mode, plan } = { mode: this.#mode, plan: this.#plan };
    if (mode !== "reactive" && mode !== "predictive") return;
    const shares = this.#shares(this.#made);
    const loaders = this.#active + this.#starting.length;
    this.#history.push({
      atMs: 1_000 * second,
      loaders,
      constructors: plan.constructors.processes,
      step: this.#made,
      shares: this.#shares(Math.max(0, this.#made - 1)),
      leads: shares.map((share, i) => {
        const [ready, cap] = [this.#ready[i] as number, this.#caps[i] as number];
        return ready < 0.75 * cap ? ready / share : undefined;
      }),
    });
    if (this.#history.length > looksMax) this.#history.shift();
    const rules: ScaleSettings = {
      demand: mode === "predictive" ? "schedule" : "seen",
      startMs: 1_000 * this.#settings.startSeconds,
    };
    const wanted = decideFleet(plan, this.#history, 1_000 * second, rules).loaders;
    for (let i = loaders; i < wanted; i++) this.#starting.push(second + this.#settings.startSeconds);
    const fewer = loaders - wanted;
    if (fewer > 0) {
      const unstarted = Math.min(fewer, this.#starting.length);
      this.#starting.splice(this.#starting.length - unstarted, unstarted);
      this.#active -= fewer - unstarted;
    }
  }
}
