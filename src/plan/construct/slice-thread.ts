/** Building slices in a thread of their own: a batch of millions of tokens takes a tenth of a second and more, in which a process would neither read, commit nor say that it lives. */
import { Worker } from "node:worker_threads";
import { BatchWeaveError, type ErrorCode, type Grid, type Mesh } from "../../index.js";
import { threadOptions } from "../load/thread-options.js";
import type { ConstructInput, ConstructSettings, DataConstructor } from "./data-constructor.js";
import { encodeSliceMessage, movable, type SliceMessage } from "./slice-message.js";

/** What the slices of a pipeline look like. */
export interface SliceShape {
  readonly grid: Grid;
  readonly mesh: Mesh;
  readonly settings: ConstructSettings;
}

/** Asks for `count` slices of a batch, which comes with the first request for it; for none: nothing more is wanted of it. */
export interface SliceRequest {
  readonly id: number;
  readonly batch: number;
  readonly content?: SliceMessage | undefined;
  readonly count: number;
}

/** As many slices as were asked for, or as there are. */
export interface SliceAnswer {
  readonly id: number;
  readonly slices: readonly Uint8Array[];
  readonly error?: { readonly code: ErrorCode | undefined; readonly message: string } | undefined;
}

interface Waiting {
  readonly resolve: (slices: readonly Uint8Array[]) => void;
  readonly reject: (error: Error) => void;
}

/** Smaller batches are built where they are: sending them takes as long. */
const bytesMin = 1_048_576;

/** Builds the slices of a pipeline's batches, in a thread where that is worth it. The slices are the same wherever they are built. Dispose it. */
export class SliceThread implements AsyncDisposable {
  readonly #construct: DataConstructor;
  readonly #shape: SliceShape;
  readonly #isInline: boolean;
  readonly #url: URL;
  readonly #waiting = new Map<number, Waiting>();
  #worker: Worker | undefined;
  #ids = 0;
  #lost: BatchWeaveError | undefined;

  /** `isInline`: no thread, whatever the size. */
  constructor(
    construct: DataConstructor,
    shape: SliceShape,
    isInline: boolean,
    url: URL = new URL("./slice-worker.js", import.meta.url),
  ) {
    this.#construct = construct;
    this.#shape = shape;
    this.#isInline = isInline;
    this.#url = url;
  }

  /** All slices of a batch in row-major order. */
  async build(content: ConstructInput): Promise<readonly Uint8Array[]> {
    if (this.#isInline || this.#construct.bytesOf(content) < bytesMin) return this.#construct.build(content);
    return await this.#ask(this.#ids++, Number.POSITIVE_INFINITY, content);
  }

  /** The same slices, one after another: what was given is not held. */
  async *slices(content: ConstructInput): AsyncGenerator<Uint8Array> {
    if (this.#isInline) {
      yield* this.#construct.slices(content);
      return;
    }
    const batch = this.#ids++;
    try {
      let [slice] = await this.#ask(batch, 1, content);
      for (; slice; [slice] = await this.#ask(batch, 1)) yield slice;
    } finally {
      if (this.#worker && !this.#lost) await this.#ask(batch, 0);
    }
  }

  async #ask(batch: number, count: number, content?: ConstructInput | undefined): Promise<readonly Uint8Array[]> {
    if (this.#lost) throw this.#lost;
    this.#worker ??= this.#start();
    const worker = this.#worker;
    const id = this.#ids++;
    const message = content && encodeSliceMessage(content);
    return await new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      const request: SliceRequest = { id, batch, content: message, count };
      worker.postMessage(request, message ? movable(message) : []);
    });
  }

  #start(): Worker {
    const worker = new Worker(this.#url, { ...threadOptions(), workerData: this.#shape });
    worker.on("message", ({ id, slices, error }: SliceAnswer) => {
      const waiting = this.#waiting.get(id);
      this.#waiting.delete(id);
      if (error)
        waiting?.reject(error.code ? new BatchWeaveError(error.code, error.message) : new Error(error.message));
      else waiting?.resolve(slices);
    });
    worker.on("error", (error) => this.#lose(error.message, error));
    worker.on("exit", (code) => this.#lose(`exit code ${code}`));
    return worker;
  }

  /** Without its thread a pipeline ends; the process that follows makes the same batches again. */
  #lose(reason: string, cause?: unknown): void {
    const isMissing = /MODULE_NOT_FOUND$/.test((cause as NodeJS.ErrnoException | undefined)?.code ?? "");
    this.#lost ??= new BatchWeaveError(
      "LIMIT",
      `The thread that builds slices ended (${reason}). ${isMissing ? "Install the package again; a bundle must keep that file beside it, or do without threads (workers: { threads: 0 })." : "Give the process more memory, or make batches smaller."}`,
      {},
      cause,
    );
    for (const { reject } of this.#waiting.values()) reject(this.#lost);
    this.#waiting.clear();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#lost ??= new BatchWeaveError("CLOSED", "The pipeline was closed while a batch was being built.");
    await this.#worker?.terminate();
  }
}
