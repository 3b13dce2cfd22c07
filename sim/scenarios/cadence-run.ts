/** Measuring cadences: many real producers on the simulated store with S3's latencies, without faults. */
import {
  activeProducers,
  type CadenceSettings,
  createPublisher,
  openProducer,
  poolProducers,
} from "../../src/cadence/index.js";
import {
  decodeManifest,
  encodeNamespace,
  type Manifest,
  manifestKey,
  type NamespaceSpec,
  namespaceKey,
  type ProducerState,
  parseManifestKey,
} from "../../src/format/index.js";
import { Log } from "../../src/log/index.js";
import { Producer } from "../../src/producer/index.js";
import { hedgedPutBytesMax, type ObjectStore, withHedging, withRetry } from "../../src/store/index.js";
import { type ProcessContext, Simulation } from "../world/simulation.js";

/** What to measure. */
export interface CadenceRunOptions {
  readonly cadence: CadenceSettings;
  /** Producers, or how many there are over time: `[fromMinute, producers]`. */
  readonly producers: number | readonly (readonly [number, number])[];
  readonly minutes: number;
  readonly warmUpSeconds?: number | undefined;
  readonly payloadBytes?: number | undefined;
  readonly batchesPerSecond?: number | undefined;
  readonly seed?: number | undefined;
  /** Charge every manifest transfer as if the manifest held all descriptors, as the paper's does. */
  readonly unsealed?: boolean | undefined;
  /** Charge intents as if each had a body that the carrier must GET, for comparison with descriptors in names. */
  readonly bodies?: boolean | undefined;
  /** Whoever appends awaits the ticket of every batch: then acknowledgements are timed too. */
  readonly isAwaited?: boolean | undefined;
  /** How often `onMinute` is told; 60 unless told. Shorter for watching what happens within a minute. */
  readonly reportSeconds?: number | undefined;
  /** Told once a virtual minute. */
  readonly onMinute?: ((minute: CadenceMinute) => void) | undefined;
}

/** One virtual minute. */
export interface CadenceMinute {
  readonly minute: number;
  readonly batches: number;
  readonly attempts: number;
  readonly commits: number;
  readonly meanCommitMs: number;
  /** Committed within 1,024 versions, and the N of the policies. */
  readonly active: number;
  readonly pool: number;
  /** Calls of all processes. */
  readonly calls: number;
}

/** What came out. Times in seconds, `visible` from uploaded to visible, `appended` from `append` to visible, `ack` from visible to acknowledged. */
export interface CadenceRun {
  readonly batches: number;
  readonly mbPerS: number;
  readonly success: number;
  readonly visibleP50: number;
  readonly visibleP99: number;
  readonly visibleMax: number;
  readonly appendedP50: number;
  readonly appendedP99: number;
  /** Not a number unless tickets are awaited. */
  readonly ackP50: number;
  readonly ackP99: number;
  readonly requestsPerBatch: number;
  /** The least number of batches that any one producer got in, as a share of the mean. */
  readonly leastShare: number;
  readonly manifestBytes: number;
}

/** Bytes of a descriptor in a manifest that is never sealed. */
const unsealedDescriptorBytes = 95;
const bytesPerMs = 90_000;
const encodedBytesMax = 1_000;
const decodedMax = 64;
/** Thousands that commit in turn, as with DAC, are not silent, though each is unheard of for thousands of versions. */
const nobodySilent = { silentVersions: Number.POSITIVE_INFINITY, inlineProducersMin: 256 };

/** Runs it. */
export async function runCadence(options: CadenceRunOptions): Promise<CadenceRun> {
  const run = new CadenceMeasurement(options);
  await run.run();
  return run.result();
}

/** The same manifest; producers that did not commit since `before` are the same objects in both. */
function sharing(manifest: Manifest, before: Manifest | undefined): Manifest {
  if (!before) return manifest;
  const producers = new Map<string, ProducerState>();
  for (const [id, state] of manifest.producers) {
    const known = before.producers.get(id);
    producers.set(id, known?.at === state.at ? known : state);
  }
  return { ...manifest, producers };
}

function seconds(sortedMs: readonly number[], share: number): number {
  return (sortedMs[Math.min(sortedMs.length - 1, Math.floor(share * sortedMs.length))] ?? Number.NaN) / 1_000;
}

class CadenceMeasurement {
  readonly #options: CadenceRunOptions;
  readonly #payloadBytes: number;
  readonly #payload: Uint8Array;
  readonly #simulation: Simulation;
  readonly #spec: NamespaceSpec = {
    format: 1,
    uuid: "00000000-0000-4000-8000-000000000001",
    grid: { rows: 1, chunks: 1 },
    order: { kind: "commit" },
    created: 0,
    rest: {},
  };
  readonly #warmUpMs: number;
  readonly #endMs: number;
  readonly #uploadedAtMs = new Map<string, number>();
  readonly #committedSeq = new Map<string, number>();
  readonly #perProducer = new Map<string, number>();
  readonly #latenciesMs: number[] = [];
  readonly #appendedAtMs = new Map<string, number>();
  readonly #appendedMs: number[] = [];
  /** When a batch whose ticket is awaited became visible. */
  readonly #visibleAtMs = new Map<string, number>();
  readonly #ackMs: number[] = [];
  #end = 0;
  #manifestBytes = 0;
  #attempts = 0;
  #commits = 0;
  #callsAtWarmUp = 0;
  #minute = { batches: 0, attempts: 0, commits: 0, commitMs: 0, callsBefore: 0 };
  readonly #decoded = new Map<number, Manifest>();
  #latest: Manifest | undefined;

  constructor(options: CadenceRunOptions) {
    this.#options = options;
    this.#payloadBytes = options.payloadBytes ?? 1_000_000;
    // Encoding a megabyte of zeros thousands of times a virtual second would measure our own CPU: its transfer is charged by size instead.
    this.#payload = new Uint8Array(Math.min(this.#payloadBytes, encodedBytesMax));
    this.#warmUpMs = (options.warmUpSeconds ?? 60) * 1_000;
    this.#endMs = this.#warmUpMs + options.minutes * 60_000;
    const prefixOf = (key: string): string => key.split("/", 2).join("/");
    this.#simulation = new Simulation({
      seed: options.seed ?? 1,
      latency: "s3",
      trace: { ringEvents: 0 },
      store: {
        ceiling: {
          prefixOf: (key) =>
            key.startsWith("batch/") || key.startsWith("intent/") ? prefixOf(key) : (key.split("/", 1)[0] as string),
        },
        copies: "none",
        // Nobody reads them here: the log is only written. What lost attempts leave behind would be gigabytes.
        forgets: (key) => key.startsWith("batch/") || key.startsWith("index/"),
      },
    });
  }

  async run(): Promise<void> {
    const { world, store } = this.#simulation;
    await store.direct().put(namespaceKey, encodeNamespace(this.#spec));
    store.onApply = ({ kind, key, changed }) => {
      if (kind === "create" && changed && key.startsWith("manifest/")) this.#seeManifest(key);
    };
    const phases =
      typeof this.#options.producers === "number" ? [[0, this.#options.producers] as const] : this.#options.producers;
    for (const [minute, count] of phases) world.after(minute * 60_000, () => this.#resize(count));
    world.after(this.#warmUpMs, () => {
      this.#callsAtWarmUp = this.#simulation.calls;
    });
    const reportMs = (this.#options.reportSeconds ?? 60) * 1_000;
    for (let m = 1; m * reportMs <= this.#endMs; m++) world.after(m * reportMs, () => this.#reportMinute(m));
    await world.run({ untilMs: this.#endMs });
  }

  result(): CadenceRun {
    const sorted = this.#latenciesMs.sort((a, b) => a - b);
    const appended = this.#appendedMs.sort((a, b) => a - b);
    const acks = this.#ackMs.sort((a, b) => a - b);
    const counts = [...this.#perProducer.values()];
    const mean = counts.reduce((a, b) => a + b, 0) / Math.max(1, counts.length);
    return {
      batches: sorted.length,
      mbPerS: (sorted.length * this.#payloadBytes) / 1e6 / (this.#options.minutes * 60),
      success: this.#attempts === 0 ? 1 : this.#commits / this.#attempts,
      visibleP50: seconds(sorted, 0.5),
      visibleP99: seconds(sorted, 0.99),
      visibleMax: seconds(sorted, 1),
      appendedP50: seconds(appended, 0.5),
      appendedP99: seconds(appended, 0.99),
      ackP50: seconds(acks, 0.5),
      ackP99: seconds(acks, 0.99),
      requestsPerBatch: (this.#simulation.calls - this.#callsAtWarmUp) / Math.max(1, sorted.length),
      leastShare: Math.min(...counts) / mean,
      manifestBytes: this.#manifestBytes,
    };
  }

  #wanted = 0;

  #resize(count: number): void {
    const before = this.#wanted;
    this.#wanted = count;
    for (let k = before; k < count; k++) {
      this.#simulation.spawn(`p${k}`, (context) => this.#produce(context, k));
    }
  }

  async #produce({ env, store: client }: ProcessContext, k: number): Promise<void> {
    const periodMs = 1_000 / (this.#options.batchesPerSecond ?? 1);
    await env.sleep(periodMs * env.random());
    const retrying = withRetry(this.#charged(client, env), env);
    const hedged = withHedging(retrying, env);
    // Batches are a size class of their own, though only a little of them is encoded here.
    const batches = this.#payloadBytes > hedgedPutBytesMax ? retrying : withHedging(retrying, env);
    const put: ObjectStore["put"] = (key, body, o) => (key.startsWith("batch/") ? batches : hedged).put(key, body, o);
    const store = { ...hedged, put };
    const openOrigin = (): Promise<never> => Promise.reject(new Error("no forks here"));
    const log = new Log({
      store,
      env,
      spec: this.#spec,
      openOrigin,
      silence: nobodySilent,
      decode: (...args) => this.#decodeOnce(...args),
    });
    const opening = await openProducer(log, `p${k}`);
    const publisher = createPublisher(log, this.#options.cadence, {
      onAttempt: (attempt) => this.#seeAttempt(attempt),
    });
    const onUpload = ({ seq }: { seq: number }): void =>
      void this.#uploadedAtMs.set(`p${k}/${seq}`, this.#simulation.world.nowMs);
    const producer = new Producer({ log, opening, publisher, observer: { onUpload } });
    let due = env.monotonic();
    for (let i = 0; k < this.#wanted; i++) {
      this.#appendedAtMs.set(`p${k}/${producer.nextSeq}`, this.#simulation.world.nowMs);
      const ticket = await producer.append([this.#payload], { resumePoint: i });
      if (this.#options.isAwaited) void ticket.committed.then(() => this.#seeAck(`p${k}/${ticket.seq}`));
      due += periodMs;
      const waitMs = due - env.monotonic();
      if (waitMs > 0) await env.sleep(waitMs);
      else due = env.monotonic();
    }
    await producer.close();
  }

  /** Thousands of processes in one: a version is decoded once, and shares what did not change with the one before, or their copies would not fit into memory. */
  #decodeOnce(...args: Parameters<typeof decodeManifest>): Manifest {
    const version = args[3];
    let manifest = this.#decoded.get(version);
    if (!manifest) {
      manifest = sharing(decodeManifest(...args), this.#latest);
      this.#decoded.set(version, manifest);
      const oldest = this.#decoded.keys().next().value;
      if (this.#decoded.size > decodedMax && oldest !== undefined) this.#decoded.delete(oldest);
    }
    return manifest;
  }

  /** Charges the transfer of bytes that are not there: the rest of a payload and, when `unsealed`, all descriptors in the manifest. */
  #charged(client: ObjectStore, env: ProcessContext["env"]): ObjectStore {
    const pay = (): Promise<void> => env.sleep((this.#end * unsealedDescriptorBytes) / bytesPerMs);
    const isManifest = (key: string): boolean => this.#options.unsealed === true && parseManifestKey(key) !== undefined;
    const payloadMs = (this.#payloadBytes - this.#payload.length) / bytesPerMs;
    return {
      uri: client.uri,
      create: async (key, body, o) => {
        if (isManifest(key)) await pay();
        return await client.create(key, body, o);
      },
      get: async (key, o) => {
        const bytes = await client.get(key, o);
        if (bytes && isManifest(key)) await pay();
        return bytes;
      },
      put: async (key, body, o) => {
        if (key.startsWith("batch/")) await env.sleep(payloadMs);
        await client.put(key, body, o);
      },
      getRange: (key, start, length, o) => client.getRange(key, start, length, o),
      list: async (prefix, o) => {
        const page = await client.list(prefix, o);
        if (this.#options.bodies && prefix.startsWith("intent/")) {
          await Promise.all(page.objects.map(({ key }) => client.get(key, o)));
        }
        return page;
      },
      delete: (keys, o) => client.delete(keys, o),
    };
  }

  #seeAttempt({ outcome, fragileMs }: { outcome: string; fragileMs?: number | undefined }): void {
    if (fragileMs === undefined) return;
    const won = outcome === "committed" || outcome === "created";
    this.#minute.attempts++;
    this.#minute.commitMs += fragileMs;
    if (won) this.#minute.commits++;
    if (this.#simulation.world.nowMs < this.#warmUpMs) return;
    this.#attempts++;
    if (won) this.#commits++;
  }

  /** Everything this version holds and the one before did not is visible now. */
  #seeManifest(key: string): void {
    const bytes = this.#simulation.store.get(key) as Uint8Array;
    const manifest = this.#decodeOnce(bytes, key, this.#spec.uuid, parseManifestKey(key) as Manifest["version"]);
    this.#latest = manifest;
    this.#manifestBytes = bytes.length;
    this.#end = manifest.steps.end;
    const now = this.#simulation.world.nowMs;
    for (const [id, state] of manifest.producers) {
      if (state.at !== manifest.version) continue;
      for (let seq = this.#committedSeq.get(id) ?? 0; seq < state.seq; seq++) this.#seeBatch(id, seq, now);
      this.#committedSeq.set(id, state.seq);
    }
    // Old versions are of no use here; the real reclaimer is not part of this measurement.
    if (manifest.version > 2_000)
      void this.#simulation.store.direct().delete([manifestKey((manifest.version - 2_000) as Manifest["version"])]);
  }

  #seeBatch(id: string, seq: number, nowMs: number): void {
    const name = `${id}/${seq}`;
    const uploadedAtMs = this.#uploadedAtMs.get(name) ?? nowMs;
    this.#uploadedAtMs.delete(name);
    this.#minute.batches++;
    const appendedAtMs = this.#appendedAtMs.get(name) ?? nowMs;
    this.#appendedAtMs.delete(name);
    if (nowMs < this.#warmUpMs) return;
    if (this.#options.isAwaited) this.#visibleAtMs.set(name, nowMs);
    this.#appendedMs.push(nowMs - appendedAtMs);
    this.#latenciesMs.push(nowMs - uploadedAtMs);
    this.#perProducer.set(id, (this.#perProducer.get(id) ?? 0) + 1);
  }

  #seeAck(name: string): void {
    const visibleAtMs = this.#visibleAtMs.get(name);
    if (visibleAtMs === undefined) return;
    this.#visibleAtMs.delete(name);
    this.#ackMs.push(this.#simulation.world.nowMs - visibleAtMs);
  }

  #reportMinute(minute: number): void {
    const { batches, attempts, commits, commitMs } = this.#minute;
    this.#options.onMinute?.({
      minute,
      batches,
      attempts,
      commits,
      meanCommitMs: attempts === 0 ? 0 : commitMs / attempts,
      active: this.#latest ? activeProducers(this.#latest) : 0,
      pool: this.#latest ? poolProducers(this.#latest) : 0,
      calls: this.#simulation.calls - this.#minute.callsBefore,
    });
    this.#minute = { batches: 0, attempts: 0, commits: 0, commitMs: 0, callsBefore: this.#simulation.calls };
  }
}
