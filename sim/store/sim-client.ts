/** One process's way to the simulated store: 64 connections, a network card, a timeout. */
import { BatchWeaveError } from "../../src/errors.js";
import {
  type AbortUploadsOptions,
  type Body,
  type CallOptions,
  type CreateOutcome,
  isKey,
  type ListOptions,
  type ListPage,
  type ObjectStore,
  type WriteOptions,
} from "../../src/store/index.js";
import type { FaultInjector } from "../world/faults.js";
import type { LatencyModel } from "../world/latency.js";
import type { Rng } from "../world/random.js";
import type { SimProcess } from "../world/world.js";
import { type CallArguments, SimCall } from "./sim-call.js";
import { pageKeysMax, type SimStore } from "./sim-store.js";

/** What really happened on the wire, over all clients of a run. */
export interface CallStats {
  /** Calls by kind. */
  readonly calls: Record<CallArguments["kind"], number>;
  bytesSent: number;
  bytesReceived: number;
  /** Calls whose caller gave up. */
  timeouts: number;
  /** Conditional creates without a verdict. */
  unknownCreates: number;
  /** Requests that took effect after their caller had given up. */
  lateLandings: number;
  /** 409, 429, 500 before applying, 503. */
  refusals: number;
  /** Calls that had to wait for a connection. */
  queued: number;
}

/** Everything at zero. */
export function emptyCallStats(): CallStats {
  return {
    calls: { create: 0, put: 0, get: 0, getRange: 0, list: 0, delete: 0 },
    bytesSent: 0,
    bytesReceived: 0,
    timeouts: 0,
    unknownCreates: 0,
    lateLandings: 0,
    refusals: 0,
    queued: 0,
  };
}

/** Options of {@link SimClient}. */
export interface SimClientOptions {
  readonly store: SimStore;
  readonly latency: LatencyModel;
  readonly faults: FaultInjector;
  readonly stats: CallStats;
  /** After this long a call without an answer is given up; 15 s unless told. */
  readonly timeoutMs?: number | undefined;
  /** Calls under way at once; 64 unless told. */
  readonly connectionsMax?: number | undefined;
}

/** The store as one process sees it. A dead process's calls go nowhere and never return. */
export class SimClient implements ObjectStore {
  readonly uri: string;
  readonly process: SimProcess;
  readonly store: SimStore;
  readonly latency: LatencyModel;
  readonly faults: FaultInjector;
  readonly stats: CallStats;
  readonly timeoutMs: number;
  readonly latencyRng: Rng;
  readonly #faultRng: Rng;
  readonly #connectionsMax: number;
  #open = 0;
  #calls = 0;
  #queue: SimCall[] = [];
  #queueHead = 0;
  #sendFreeMs = 0;
  #receiveFreeMs = 0;
  /** Only of a store that takes objects in parts. */
  readonly abortUploads?: NonNullable<ObjectStore["abortUploads"]>;
  /** Only of a disk. */
  readonly sync?: NonNullable<ObjectStore["sync"]>;

  constructor(process: SimProcess, options: SimClientOptions) {
    this.process = process;
    this.uri = `sim://store/${process.label}`;
    this.store = options.store;
    this.latency = options.latency;
    this.faults = options.faults;
    this.stats = options.stats;
    this.timeoutMs = options.timeoutMs ?? 15_000;
    this.#connectionsMax = options.connectionsMax ?? 64;
    this.latencyRng = process.world.rng(`latency/${process.label}`);
    this.#faultRng = process.world.rng(`faults/${process.label}`);
    if (options.store.hasUploads) this.abortUploads = (prefix, _, call) => this.#abortUploads(prefix, call);
    if (options.store.isDisk) this.sync = (key, call) => this.#sync(key, call);
  }

  create(key: string, body: Body, options?: CallOptions): Promise<CreateOutcome> {
    return this.#write("create", key, body, options);
  }

  put(key: string, body: Body, options?: WriteOptions): Promise<void> {
    return this.#write("put", key, body, options);
  }

  get(key: string, options?: CallOptions): Promise<Uint8Array | undefined> {
    return this.#call({ kind: "get", key }, options);
  }

  getRange(key: string, start: number, length: number, options?: CallOptions): Promise<Uint8Array | undefined> {
    return this.#call({ kind: "getRange", key, start, length }, options);
  }

  list(prefix: string, options?: ListOptions): Promise<ListPage> {
    const length = options?.limit ?? pageKeysMax;
    return this.#call({ kind: "list", key: prefix, startAfter: options?.startAfter, length }, options);
  }

  delete(keys: readonly string[], options?: WriteOptions): Promise<void> {
    return this.#call({ kind: "delete", key: keys[0] ?? "", keys: [...keys], hint: options?.hint }, options);
  }

  /** As {@link SimClient.#abortUploads}. */
  async #sync(key: string, options: CallOptions = {}): Promise<void> {
    await this.#call({ kind: "list", key, length: 1 }, options);
    this.store.sync(key);
  }

  /** One request that takes the time, and meets the faults, of a listing. */
  async #abortUploads(prefix: string, options: AbortUploadsOptions = {}): Promise<number> {
    await this.#call({ kind: "list", key: prefix, length: 1 }, options);
    return this.store.abortUploads(prefix, options.only ?? (() => true));
  }

  /** Time until the last byte of an upload has left, with this process's other uploads in front of it. */
  uploadMs(bytes: number): number {
    if (bytes === 0) return 0;
    this.stats.bytesSent += bytes;
    const { nowMs } = this.process.world;
    this.#sendFreeMs = Math.max(this.#sendFreeMs, nowMs) + bytes / this.latency.processBytesPerMs;
    return Math.max(this.#sendFreeMs - nowMs, bytes / this.latency.connectionBytesPerMs);
  }

  /** As {@link SimClient.uploadMs}, for the way back. */
  downloadMs(bytes: number): number {
    if (bytes === 0) return 0;
    this.stats.bytesReceived += bytes;
    const { nowMs } = this.process.world;
    this.#receiveFreeMs = Math.max(this.#receiveFreeMs, nowMs) + bytes / this.latency.processBytesPerMs;
    return Math.max(this.#receiveFreeMs - nowMs, bytes / this.latency.connectionBytesPerMs);
  }

  /** A call is over: its connection goes to the next one waiting. */
  release(): void {
    this.#open--;
    while (this.#queueHead < this.#queue.length) {
      const next = this.#queue[this.#queueHead++] as SimCall;
      if (this.#queueHead > 1024 && this.#queueHead * 2 > this.#queue.length) {
        this.#queue = this.#queue.slice(this.#queueHead);
        this.#queueHead = 0;
      }
      if (next.settled) continue;
      this.#dispatch(next);
      return;
    }
  }

  /** A call was aborted, on the wire or still waiting for a connection. */
  abandon(call: SimCall): void {
    if (call.dispatched) this.release();
  }

  // biome-ignore lint/suspicious/noExplicitAny: create and put know what their call resolves to.
  #write(kind: "create" | "put", key: string, body: Body, options: WriteOptions | undefined): Promise<any> {
    return this.#call({ kind, key, object: this.store.pack(key, body), hint: options?.hint }, options);
  }

  // biome-ignore lint/suspicious/noExplicitAny: each of the six callers knows what its call resolves to.
  #call(what: CallArguments, options: CallOptions | undefined): Promise<any> {
    const { process } = this;
    // A dead process may still be in the middle of a synchronous stretch; nothing it asks for from here on happens.
    if (!process.alive) return new Promise(() => {});
    const signal = options?.signal;
    if (signal?.aborted) return Promise.reject(signal.reason);
    const wrong = mistake(what);
    if (wrong !== undefined) return Promise.reject(wrong);
    const index = this.#calls++;
    this.stats.calls[what.kind]++;
    const fault = this.faults.forCall(process, what.kind, what.key, index, this.#faultRng);
    if (fault === "crashBeforeSend") {
      // Or in the middle of sending it.
      if (what.kind === "put") this.store.beginUpload(what.key);
      process.world.crash(process);
      return new Promise(() => {});
    }
    if (fault === "stall") this.faults.stall(process, what.kind, what.key, index);
    else if (fault === "ambush") this.faults.ambush(process, what.key, index);
    const call = new SimCall(this, what, index, fault);
    return new Promise((resolve, reject) => {
      call.caller = { resolve, reject };
      if (signal !== undefined) {
        call.signal = signal;
        process.world.aborts.add(signal, call);
      }
      if (this.#open < this.#connectionsMax) this.#dispatch(call);
      else {
        this.stats.queued++;
        this.#queue.push(call);
      }
    });
  }

  #dispatch(call: SimCall): void {
    this.#open++;
    call.dispatched = true;
    call.send();
  }
}

/** What every real store refuses, so that code which asks for it fails here too. */
function mistake(what: CallArguments): BatchWeaveError | undefined {
  const { kind, key, keys = [key], start = 0, length = 1 } = what;
  const bad = kind === "list" ? undefined : keys.find((each) => !isKey(each));
  if (bad !== undefined) return new BatchWeaveError("INVALID_ARGUMENT", `"${bad}" is not a key`, { key: bad });
  const least = kind === "list" ? 1 : 0;
  if (Number.isSafeInteger(start) && Number.isSafeInteger(length) && start >= 0 && length >= least) return undefined;
  return new BatchWeaveError("INVALID_ARGUMENT", `${kind} of start ${start}, length ${length}: not whole numbers`, {
    key,
  });
}
