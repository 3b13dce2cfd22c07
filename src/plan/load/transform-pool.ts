/**
 * Worker threads that run transforms, shared by all sources of a process: threads do not multiply with sources. A transform that throws,
 * hangs or eats memory costs its own sample only: the thread is ended, the sample named, and the rest of its group run again.
 */
import { Worker } from "node:worker_threads";
import { BatchWeaveError, type Env } from "../../index.js";
import type { Transform } from "./transform.js";
import { type ChainInput, type ChainOutput, runChain } from "./transform-chain.js";
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

interface Task {
  readonly chain: readonly Transform[];
  readonly inputs: readonly ChainInput[];
  readonly outputs: (ChainOutput | undefined)[];
  readonly resolve: (outputs: ChainOutput[]) => void;
  readonly reject: (error: unknown) => void;
  /** Indices still without an output. */
  left: number[];
}

interface Thread {
  readonly worker: Worker;
  readonly progress: Int32Array;
  task: Task | undefined;
  /** Groups it has finished. */
  done: number;
  /** Which samples of the task are running, and what was last seen of its progress. */
  running: number[];
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
  readonly #queue: Task[] = [];
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
    this.#timeoutMs = settings.timeoutMs ?? 60_000;
    this.#heapMiBMax = settings.heapMiBMax ?? 512;
    this.#growthBytesMax = settings.growthBytesMax ?? 4 * 2 ** 30;
    this.#workerUrl = workerUrl;
  }

  /** Threads that are running. */
  get threads(): number {
    return this.#threads.size;
  }

  /** Runs a group of samples through a chain. One output per input, in order; a failed one has `error`. */
  async run(chain: readonly Transform[], inputs: readonly ChainInput[]): Promise<ChainOutput[]> {
    if (chain.length === 0 || this.#threadsMax === 0) {
      const outputs: ChainOutput[] = [];
      for (const input of inputs) outputs.push(await runChain(chain, input));
      await this.#yield();
      return outputs;
    }
    return await new Promise((resolve, reject) => {
      const outputs = inputs.map(() => undefined);
      this.#queue.push({ chain, inputs, outputs, resolve, reject, left: inputs.map((_, i) => i) });
      this.#pump();
    });
  }

  /** Transforms on the calling thread may leave it no turn for anything else, such as a signal: now and then they let go. */
  async #yield(): Promise<void> {
    if (this.#env.monotonic() - this.#yieldedMs < yieldMs) return;
    await this.#env.sleep(0);
    this.#yieldedMs = this.#env.monotonic();
  }

  #pump(): void {
    while (this.#queue.length > 0 && !this.#closed) {
      const idle = [...this.#threads].find((thread) => thread.task === undefined);
      if (!idle && this.#threads.size >= this.#threadsMax) return;
      this.#start(idle ?? this.#spawn(), this.#queue.shift() as Task);
    }
  }

  #spawn(): Thread {
    const shared = new SharedArrayBuffer(8);
    const worker = new Worker(this.#workerUrl, {
      workerData: { progress: shared },
      resourceLimits: { maxOldGenerationSizeMb: this.#heapMiBMax },
    });
    const thread: Thread = {
      worker,
      progress: new Int32Array(shared),
      task: undefined,
      done: 0,
      running: [],
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

  #start(thread: Thread, task: Task): void {
    thread.task = task;
    thread.running = task.left;
    Atomics.store(thread.progress, 0, 0);
    const count = Atomics.load(thread.progress, 1);
    thread.seen = { begun: count, count, atMs: this.#env.monotonic(), rss: process.memoryUsage.rss() };
    const inputs = task.left.map((i) => task.inputs[i] as ChainInput);
    try {
      thread.worker.postMessage({ chain: task.chain, inputs } satisfies WorkerTask);
    } catch (cause) {
      thread.task = undefined;
      const names = task.chain.map((step) => step.name).join(", ");
      task.reject(
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

  #finish(thread: Thread, outputs: ChainOutput[]): void {
    const { task, running } = thread;
    if (!task) return;
    thread.task = undefined;
    thread.done++;
    running.forEach((i, k) => {
      task.outputs[i] = outputs[k];
    });
    task.resolve(task.outputs as ChainOutput[]);
    this.#pump();
  }

  /** A thread is gone, or must go: the sample it was at is to blame, the others of its group run again elsewhere. */
  #lose(thread: Thread, reason: string): void {
    if (!this.#threads.delete(thread)) return;
    void thread.worker.terminate();
    const { task, running } = thread;
    thread.task = undefined;
    if (this.#closed) return;
    const hasBegun = task !== undefined && Atomics.load(thread.progress, 1) !== thread.seen.begun;
    if (!hasBegun && thread.done > 0) {
      // Something that an earlier transform started and did not wait for: its sample is through, and nobody's else is to blame.
      warnOfStray(reason);
      if (task) this.#queue.unshift(task);
      this.#pump();
      return;
    }
    if (!task) return;
    if (!hasBegun) {
      const message = `A thread for transforms could not begin its work: it ${reason}. Check the modules of ${task.chain.map((step) => step.name).join(", ")}.`;
      task.reject(new BatchWeaveError("INVALID_ARGUMENT", message));
      return;
    }
    const at = Math.min(Atomics.load(thread.progress, 0), running.length - 1);
    const culprit = running[at] as number;
    const names = task.chain.map((step) => step.name).join(" > ");
    task.outputs[culprit] = { error: `${names} ${reason}`, ms: 0, bytes: [] };
    task.left = running.filter((i) => i !== culprit);
    if (task.left.length === 0) task.resolve(task.outputs as ChainOutput[]);
    else this.#queue.unshift(task);
    this.#pump();
  }

  /** Looks at busy threads now and then, for as long as there are any. */
  async #watch(): Promise<void> {
    if (this.#watching) return;
    this.#watching = true;
    try {
      while (!this.#closed && [...this.#threads].some((thread) => thread.task)) {
        await this.#env.sleep(Math.min(250, this.#timeoutMs / 4));
        for (const thread of [...this.#threads]) if (thread.task) this.#look(thread);
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
    for (const task of [...this.#queue, ...threads.flatMap((thread) => thread.task ?? [])]) task.reject(closed);
  }
}
