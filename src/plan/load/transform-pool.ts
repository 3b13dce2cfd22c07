/**
 * Worker threads that run transforms, shared by all sources of a process: threads do not multiply with sources. A transform that throws,
 * hangs or eats memory costs its own sample only: the thread is ended, the sample named, and the rest of its group run again.
 */
import { Worker } from "node:worker_threads";
import { BatchWeaveError, type Env } from "../../index.js";
import { threadOptions } from "./thread-options.js";
import type { Transform } from "./transform.js";
import { type ChainInput, type ChainOutput, runChain } from "./transform-chain.js";
import { type TransformPortion, TransformQueue, type TransformTask } from "./transform-queue.js";
import type { StrayFailure, WorkerTask } from "./transform-worker.js";

/** Limits of a {@link TransformPool}. */
export interface TransformPoolSettings {
  /** Worker threads; 0 runs transforms on the calling thread, without the limits below. Default 2. */
  readonly threads?: number | undefined;
  /** A sample that takes longer hangs. Default 60,000. */
  readonly timeoutMs?: number | undefined;
  /** JavaScript heap of a thread at most. Default 512. */
  readonly heapMiBMax?: number | undefined;
  /** Growth of the whole process during a transform at most (buffers are outside the heap). Default 4 GiB. */
  readonly growthBytesMax?: number | undefined;
}

interface Thread {
  readonly worker: Worker;
  readonly progress: Int32Array;
  portion: TransformPortion | undefined;
  /** Portions it has finished. */
  done: number;
  /** What was last seen of its progress. */
  seen: { readonly begun: number; readonly count: number; readonly atMs: number; readonly rss: number };
}

function warnOfStray(reason: string): void {
  process.emitWarning(`A thread for transforms ${reason}, outside of any sample. Await everything a transform starts.`);
}

/** Starting a thread and loading its modules may take so long, whatever a sample may. */
const startMsMax = 60_000;

/** Between turns for everything else, where transforms run on the calling thread. */
const yieldMs = 20;

/** A pool of transform threads. */
export class TransformPool implements AsyncDisposable {
  readonly #env: Env;
  readonly #threadsMax: number;
  readonly #timeoutMs: number;
  readonly #heapMiBMax: number;
  readonly #growthBytesMax: number;
  readonly #workerUrl: URL;
  readonly #threads = new Set<Thread>();
  readonly #queue: TransformQueue;
  /** Transforms on the calling thread: how many samples of a source are in them, and who waits for a turn. */
  readonly #inline = new Map<string, { samples: number; readonly waiting: (() => void)[] }>();
  #yieldedMs = 0;
  #watching = false;
  #closed = false;

  constructor(
    env: Env,
    settings: TransformPoolSettings = {},
    workerUrl: URL = new URL("./transform-worker.js", import.meta.url),
  ) {
    this.#env = env;
    this.#threadsMax = settings.threads ?? 2;
    this.#queue = new TransformQueue(this.#threadsMax);
    this.#timeoutMs = settings.timeoutMs ?? 60_000;
    this.#heapMiBMax = settings.heapMiBMax ?? 512;
    this.#growthBytesMax = settings.growthBytesMax ?? 4 * 2 ** 30;
    this.#workerUrl = workerUrl;
  }

  /** Threads that are running. */
  get threads(): number {
    return this.#threads.size;
  }

  /**
   * Runs a group of samples of one source through a chain. One output per input, in order; a failed one has `error`. `inFlightMax`: samples of
   * that source in transforms at a time, over all calls.
   */
  async run(
    chain: readonly Transform[],
    inputs: readonly ChainInput[],
    inFlightMax: number = Number.POSITIVE_INFINITY,
  ): Promise<ChainOutput[]> {
    if (chain.length === 0 || this.#threadsMax === 0 || inputs.length === 0) {
      const outputs: ChainOutput[] = [];
      for (const input of inputs) outputs.push(await this.#runInline(chain, input, inFlightMax));
      await this.#yield();
      return outputs;
    }
    return await new Promise((resolve, reject) => {
      const outputs = inputs.map(() => undefined);
      const waiting = inputs.map((_, i) => i);
      this.#queue.push({ chain, inputs, outputs, resolve, reject, waiting, left: inputs.length }, inFlightMax);
      this.#pump();
    });
  }

  async #runInline(chain: readonly Transform[], input: ChainInput, inFlightMax: number): Promise<ChainOutput> {
    const turns = this.#inline.get(input.source) ?? { samples: 0, waiting: [] };
    this.#inline.set(input.source, turns);
    while (turns.samples >= inFlightMax) await new Promise<void>((resolve) => turns.waiting.push(resolve));
    turns.samples++;
    try {
      return await runChain(chain, input);
    } finally {
      turns.samples--;
      turns.waiting.shift()?.();
    }
  }

  /** Transforms on the calling thread may leave it no turn for anything else, such as a signal: now and then they let go. */
  async #yield(): Promise<void> {
    if (this.#env.monotonic() - this.#yieldedMs < yieldMs) return;
    await this.#env.sleep(0);
    this.#yieldedMs = this.#env.monotonic();
  }

  #pump(): void {
    while (!this.#closed) {
      const idle = [...this.#threads].find((thread) => thread.portion === undefined);
      if (!idle && this.#threads.size >= this.#threadsMax) return;
      const portion = this.#queue.next();
      if (!portion) return;
      this.#start(idle ?? this.#spawn(), portion);
    }
  }

  #spawn(): Thread {
    const shared = new SharedArrayBuffer(8);
    const worker = new Worker(this.#workerUrl, {
      ...threadOptions(),
      workerData: { progress: shared },
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMiBMax },
    });
    const thread: Thread = {
      worker,
      progress: new Int32Array(shared),
      portion: undefined,
      done: 0,
      seen: { begun: -1, count: -1, atMs: 0, rss: 0 },
    };
    worker.on("message", (message: ChainOutput[] | StrayFailure) => {
      if ("stray" in message) warnOfStray(`had a failure: ${message.stray}`);
      else this.#finish(thread, message);
    });
    worker.on("error", (error: NodeJS.ErrnoException) => {
      const isMemory = error.code === "ERR_WORKER_OUT_OF_MEMORY";
      this.#lose(
        thread,
        isMemory ? `used more than ${this.#heapMiBMax} MiB of heap` : `ended its thread: ${error.message}`,
      );
    });
    worker.on("exit", (code) => this.#lose(thread, `ended its thread with exit code ${code}`));
    worker.on("messageerror", (error) =>
      this.#lose(thread, `gave a value that cannot leave its thread: ${error.message}`),
    );
    this.#threads.add(thread);
    return thread;
  }

  #start(thread: Thread, portion: TransformPortion): void {
    const { task, indices } = portion;
    thread.portion = portion;
    Atomics.store(thread.progress, 0, 0);
    const count = Atomics.load(thread.progress, 1);
    thread.seen = { begun: count, count, atMs: this.#env.monotonic(), rss: process.memoryUsage.rss() };
    const inputs = indices.map((i) => task.inputs[i] as ChainInput);
    try {
      thread.worker.postMessage({ chain: task.chain, inputs } satisfies WorkerTask);
    } catch (cause) {
      thread.portion = undefined;
      const names = task.chain.map((step) => step.name).join(", ");
      this.#fail(
        portion,
        new BatchWeaveError(
          "INVALID_ARGUMENT",
          `A sample or the options of ${names} cannot be sent to a worker thread: functions and handles cannot travel.`,
          {},
          cause,
        ),
      );
      return;
    }
    void this.#watch();
  }

  #fail(portion: TransformPortion, error: BatchWeaveError): void {
    this.#queue.release(portion);
    this.#queue.drop(portion.task);
    portion.task.reject(error);
  }

  #finish(thread: Thread, outputs: ChainOutput[]): void {
    const { portion } = thread;
    if (!portion) return;
    thread.portion = undefined;
    thread.done++;
    const ms = outputs.reduce((sum, output) => sum + output.ms, 0) / outputs.length;
    this.#queue.release(portion, { ms });
    portion.indices.forEach((i, k) => {
      this.#put(portion.task, i, outputs[k] as ChainOutput);
    });
    this.#pump();
  }

  #put(task: TransformTask, i: number, output: ChainOutput): void {
    task.outputs[i] = output;
    if (--task.left === 0) task.resolve(task.outputs as ChainOutput[]);
  }

  /** A thread is gone, or must go: the sample it was at is to blame, the others of its portion run again elsewhere. */
  #lose(thread: Thread, reason: string): void {
    if (!this.#threads.delete(thread)) return;
    void thread.worker.terminate();
    const { portion } = thread;
    thread.portion = undefined;
    if (this.#closed) return;
    const hasBegun = portion !== undefined && Atomics.load(thread.progress, 1) !== thread.seen.begun;
    if (!hasBegun && thread.done > 0) {
      // Something that an earlier transform started and did not wait for: its sample is through, and no other is to blame.
      warnOfStray(reason);
      if (portion) this.#queue.release(portion, { again: portion.indices });
    } else if (portion && !hasBegun) {
      const names = portion.task.chain.map((step) => step.name).join(", ");
      const message = `A thread for transforms could not begin its work: it ${reason}. Check the modules of ${names}.`;
      this.#fail(portion, new BatchWeaveError("INVALID_ARGUMENT", message));
    } else if (portion) {
      const { task, indices } = portion;
      const culprit = indices[Math.min(Atomics.load(thread.progress, 0), indices.length - 1)] as number;
      const names = task.chain.map((step) => step.name).join(" > ");
      this.#queue.release(portion, { again: indices.filter((i) => i !== culprit) });
      this.#put(task, culprit, { error: `${names} ${reason}`, ms: 0, bytes: [] });
    }
    this.#pump();
  }

  /** Looks at busy threads now and then, for as long as there are any. */
  async #watch(): Promise<void> {
    if (this.#watching) return;
    this.#watching = true;
    try {
      while (!this.#closed && [...this.#threads].some((thread) => thread.portion)) {
        await this.#env.sleep(Math.min(250, this.#timeoutMs / 4));
        for (const thread of [...this.#threads]) if (thread.portion) this.#look(thread);
      }
    } finally {
      this.#watching = false;
    }
  }

  #look(thread: Thread): void {
    const count = Atomics.load(thread.progress, 1);
    const now = this.#env.monotonic();
    const rss = process.memoryUsage.rss();
    if (count !== thread.seen.count) thread.seen = { ...thread.seen, count, atMs: now, rss };
    // A thread that has not begun is still starting or loading modules: that is not the first sample's fault.
    const limitMs = count === thread.seen.begun ? Math.max(this.#timeoutMs, startMsMax) : this.#timeoutMs;
    if (now - thread.seen.atMs > limitMs) this.#lose(thread, `hung for more than ${limitMs} ms`);
    else if (rss - thread.seen.rss > this.#growthBytesMax)
      this.#lose(thread, `made the process grow by more than ${this.#growthBytesMax} bytes`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    const threads = [...this.#threads];
    this.#threads.clear();
    await Promise.all(threads.map(({ worker }) => worker.terminate()));
    const closed = new BatchWeaveError("CLOSED", "The transform pool was closed while samples were in it.");
    const running = threads.flatMap(({ portion }) => portion?.task ?? []);
    for (const task of [...this.#queue.clear(), ...running]) task.reject(closed);
  }
}
