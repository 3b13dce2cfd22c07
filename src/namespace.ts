/** A namespace handle: the log of batches behind one URI, and what users do with it. */
import { type CadenceSettings, createPublisher, type PublisherObserver } from "./cadence/index.js";
import { type Consumer, type ConsumerSettings, type JobEnvironment, openConsumer } from "./consumer/index.js";
import { consumerMetrics } from "./consumer-metrics.js";
import { assertName, type Grid, type Manifest, type Order } from "./format/index.js";
import {
  type BatchInfo,
  type BatchListing,
  inspectBatch,
  listBatches,
  type NamespaceInfo,
  readInfo,
  readSlice,
} from "./inspect.js";
import { type Log, laneNumber } from "./log/index.js";
import type { Metrics } from "./observe/index.js";
import { Producer, type ProducerObserver, type ProducerSettings } from "./producer/index.js";
import type { CallOptions } from "./store/index.js";

/** Options of {@link Namespace.producer}. */
export interface ProducerOptions extends ProducerSettings {
  /** Stable id; whoever opens it last holds it. In lanes order: `lane-0`, `lane-1`… */
  readonly id: string;
  /** False: refuse with FENCED when another process opens the id at the same time, instead of fencing it. */
  readonly takeover?: boolean | undefined;
  readonly cadence?: CadenceSettings | undefined;
  readonly signal?: AbortSignal | undefined;
}

/** Options of {@link Namespace.consumer}. */
export interface ConsumerOptions extends ConsumerSettings {
  /** Where mesh and rank come from when they are not given. Default: the process's own environment. */
  readonly environment?: JobEnvironment | undefined;
  /** Ends the consumer: a pending and every later `next()` rejects with its reason. */
  readonly signal?: AbortSignal | undefined;
}

/** One namespace. Cheap; holds no connection and no lock. */
export class Namespace {
  readonly uri: string;
  readonly metrics: Metrics;
  readonly #log: Log;

  constructor(uri: string, log: Log, metrics: Metrics) {
    this.uri = uri;
    this.metrics = metrics;
    this.#log = log;
  }

  get uuid(): string {
    return this.#log.spec.uuid;
  }

  get grid(): Grid {
    return this.#log.spec.grid;
  }

  get order(): Order {
    return this.#log.spec.order;
  }

  /** Opens a producer id, fencing whoever held it, and reads its resume point. */
  async producer(options: ProducerOptions): Promise<Producer> {
    const { id, takeover, cadence, signal, ...settings } = options;
    assertName(id, "Producer id");
    const { order } = this.#log.spec;
    if (order.kind === "lanes") laneNumber(id, order.lanes);
    const opening = await this.#log.open(id, { signal, takeover });
    const publisher = createPublisher(this.#log, cadence, this.#publisherMetrics());
    return new Producer({ log: this.#log, opening, publisher, observer: this.#producerMetrics() }, settings);
  }

  /** Opens one rank's view of the log. Mesh and rank default to what the launcher of the job says in the environment. */
  async consumer(options: ConsumerOptions = {}): Promise<Consumer> {
    const { environment = process.env, signal, ...settings } = options;
    const observer = consumerMetrics(this.metrics, this.grid);
    return await openConsumer(this.#log, settings, { environment, signal, observer });
  }

  /** The state of the log at its head. */
  async info(options?: CallOptions): Promise<NamespaceInfo> {
    return await readInfo(this.uri, this.#log, options);
  }

  /** The batches of the log in order, from step `from` up to, not including, `to`. */
  batches(
    range: { readonly from?: number | undefined; readonly to?: number | undefined } = {},
    options?: CallOptions,
  ): AsyncIterable<BatchListing> {
    return listBatches(this.#log, range, options);
  }

  /** What the batch at a step is: who made it, where it is stored, and its slices without their bytes. */
  async inspect(step: number, options?: CallOptions): Promise<BatchInfo> {
    return await inspectBatch(this.#log, step, options);
  }

  /** The bytes of one slice, checked and decoded. */
  async readSlice(
    place: { readonly step: number; readonly row: number; readonly chunk: number },
    options?: CallOptions,
  ): Promise<Uint8Array> {
    return await readSlice(this.#log, place, options);
  }

  /** Closes the log: no batch after the current end. Lanes: batches above a missing step are refused unless dropped. */
  async close(
    options: { readonly dropWaiting?: boolean | undefined; readonly signal?: AbortSignal | undefined } = {},
  ): Promise<{ readonly end: number }> {
    const manifest = await this.#log.close(options);
    return { end: manifest.steps.end };
  }

  #publisherMetrics(): PublisherObserver {
    const { metrics } = this;
    return {
      onAttempt({ outcome, fragileMs }) {
        metrics.count("batchweave_commits_total", "Commit attempts by outcome.", 1, { outcome });
        if (fragileMs !== undefined)
          metrics.observeMs(
            "batchweave_commit_window_seconds",
            "From reading the base to the end of the PUT.",
            fragileMs,
          );
      },
    };
  }

  #producerMetrics(): ProducerObserver {
    const { metrics } = this;
    return {
      onUpload: ({ bytes, durationMs }) => {
        metrics.count("batchweave_uploaded_bytes_total", "Payload bytes uploaded.", bytes);
        metrics.observeMs("batchweave_upload_seconds", "Time per batch upload.", durationMs);
      },
      onCommit: ({ latencyMs }) => {
        metrics.count("batchweave_batches_committed_total", "Batches seen committed.");
        metrics.observeMs("batchweave_commit_latency_seconds", "From accepted to seen committed.", latencyMs);
      },
    };
  }
}

export type { Manifest };
