/** One request on its way: sent, arrived, applied, answered, with whatever goes wrong in between. */
import { BatchWeaveError } from "../../src/errors.js";
import type { CreateOutcome, ListPage } from "../../src/store/index.js";
import type { Abortable } from "../world/aborts.js";
import { type CallKind, callKinds, isWrite } from "../world/call-kind.js";
import type { CallFault } from "../world/faults.js";
import { ProcessEvent } from "../world/process-event.js";
import { hashString } from "../world/random.js";
import { traceCodes } from "../world/trace.js";
import type { SimClient } from "./sim-client.js";
import type { SimStore, StoredObject, Upload } from "./sim-store.js";

const stages = ["send", "arrive", "apply", "respond"] as const;
const sending = 0;
const arriving = 1;
const applying = 2;
const responding = 3;

/** Shares of a call's time before it arrives, and at most until it is applied; the rest is the way back. */
const arriveShare = 0.25;
const applyShareMax = 0.9;

const stageNames: readonly (readonly string[])[] = callKinds.map((kind) => stages.map((stage) => `${kind}.${stage}`));

/** What came of a call. */
const verdicts = ["pending", "ok", "slowDown", "conflict", "error", "refused", "timeout", "full"] as const;
type Verdict = (typeof verdicts)[number];

/** Settles the caller's promise. */
interface Caller {
  resolve(value: unknown): void;
  reject(reason: unknown): void;
}

/** What the six calls carry, in one shape so that the engine sees one kind of object. */
export interface CallArguments {
  readonly kind: CallKind;
  /** The key; the prefix of a list; the first key of a delete. */
  readonly key: string;
  readonly object?: StoredObject | undefined;
  readonly keys?: readonly string[] | undefined;
  readonly start?: number | undefined;
  /** Bytes of a range, keys of a page. */
  readonly length?: number | undefined;
  readonly startAfter?: string | undefined;
  /** Nothing depends on it: it is not synced. */
  readonly hint?: boolean | undefined;
}

/** A request. The same object is scheduled for each of its stages. */
export class SimCall extends ProcessEvent implements Abortable {
  readonly client: SimClient;
  readonly what: CallArguments;
  readonly kindNumber: number;
  readonly index: number;
  readonly fault: CallFault | undefined;
  caller: Caller | undefined;
  signal: AbortSignal | undefined;
  /** True once the caller has its answer, or never will. */
  settled = false;
  /** True once it holds a connection. */
  dispatched = false;
  #stage = sending;
  #verdict: Verdict = "pending";
  #value: unknown;
  #totalMs = 0;
  #applyShare = 0;
  #silent = false;
  #deadlineMs = 0;
  #timeout: CallTimeout | undefined;
  #upload: Upload | undefined;
  readonly #cuts: number;
  readonly #fingerprint: number;

  constructor(client: SimClient, what: CallArguments, index: number, fault: CallFault | undefined) {
    super(client.process);
    this.client = client;
    this.what = what;
    this.kindNumber = callKinds.indexOf(what.kind);
    this.index = index;
    this.fault = fault;
    this.#cuts = client.store.cuts;
    this.#fingerprint = hashString(what.key, client.process.number) ^ (what.object?.size ?? 0);
  }

  /** Leaves the process. Time, loss and doubling of the way there are decided here. */
  send(): void {
    const { client, process } = this;
    const { world } = process;
    const { faults, latency } = client;
    if (process.paused) {
      this.#stage = sending;
      process.accepts(this);
      return;
    }
    this.#record(sending);
    if (this.fault === "refused") {
      this.#answer("refused", undefined, 1);
      return;
    }
    const sampled = latency.sampleMs(this.what.kind, client.latencyRng);
    this.#silent = sampled === Number.POSITIVE_INFINITY;
    this.#totalMs = this.#silent ? latency.sampleMs(this.what.kind, client.latencyRng) : sampled;
    if (this.#totalMs === Number.POSITIVE_INFINITY) this.#totalMs = 1000;
    this.#applyShare = arriveShare + (applyShareMax - arriveShare) * client.latencyRng.next();
    this.#deadlineMs = world.nowMs + client.timeoutMs;
    let travelMs = client.uploadMs(this.what.object?.size ?? 0) + arriveShare * this.#totalMs;
    if (this.fault === "requestLost") {
      // Some parts arrived, perhaps.
      if (this.what.kind === "put") client.store.beginUpload(this.what.key);
      this.#awaitTimeout();
      return;
    }
    if (this.fault !== undefined) {
      const rng = faults.detail(process, this.index);
      if (this.fault === "requestLate") travelMs += Math.max(client.timeoutMs, faults.lateMs(rng));
      if (this.fault === "slow") this.#totalMs += rng.between(1000, 8000);
      if (this.fault === "duplicate")
        this.#double(travelMs + (rng.chance(0.5) ? rng.between(0, 1000) : faults.lateMs(rng)));
      if (this.fault === "duplicateAnswer") {
        this.#double(travelMs);
        // The copy is sent after the first one's answer was lost somewhere on the way.
        travelMs += this.#totalMs;
      }
    }
    this.#next(arriving, travelMs);
  }

  override fire(): void {
    // Whoever sent it went with the power, and so did it.
    if (this.#cuts !== this.client.store.cuts) return;
    switch (this.#stage) {
      case sending:
        if (this.process.accepts(this)) this.send();
        return;
      case arriving:
        this.#arrive();
        return;
      case applying:
        this.#apply();
        return;
      default:
        if (this.process.accepts(this)) this.deliver();
    }
  }

  /** The answer reaches the process. */
  override deliver(): void {
    if (this.settled) return;
    if (this.fault === "crashBeforeAnswer") {
      this.#record(responding);
      this.process.world.crash(this.process);
      return;
    }
    this.settle(this.#verdict);
  }

  /** Gives the caller what there is to give. */
  settle(verdict: Verdict): void {
    if (this.settled) return;
    this.settled = true;
    this.#verdict = verdict;
    this.#record(responding);
    const { client, what } = this;
    if (this.#timeout !== undefined && verdict !== "timeout") this.process.world.cancel(this.#timeout);
    if (this.signal !== undefined) this.process.world.aborts.remove(this.signal, this);
    client.release();
    this.process.world.settle();
    // A file store has synced before it answers.
    if (verdict === "ok" && isWrite(what.kind) && !what.hint)
      for (const key of what.keys ?? [what.key]) client.store.sync(key);
    if (verdict === "ok") this.caller?.resolve(this.#value);
    // Whatever is not a plain answer leaves it open whether a conditional create took effect, unless it was never sent.
    else if (what.kind === "create" && verdict !== "refused" && verdict !== "full") {
      client.stats.unknownCreates++;
      this.caller?.resolve("unknown" satisfies CreateOutcome);
    } else this.caller?.reject(unavailable(what, verdict));
    this.caller = undefined;
  }

  onAbort(reason: unknown): void {
    if (this.settled || !this.process.alive) return;
    this.settled = true;
    if (this.#timeout !== undefined) this.process.world.cancel(this.#timeout);
    this.client.abandon(this);
    this.caller?.reject(reason);
    this.caller = undefined;
  }

  #arrive(): void {
    this.#record(arriving);
    const { what, client } = this;
    const { world } = this.process;
    const refusal: Verdict | undefined =
      this.fault === "conflict" || this.fault === "slowDown" || this.fault === "full"
        ? this.fault
        : this.fault === "errorBeforeApply"
          ? "error"
          : client.store.ceiling?.admits(what.kind, what.key, what.keys?.length ?? 1, world.nowMs) === false
            ? "slowDown"
            : undefined;
    if (refusal === undefined) {
      if (what.kind === "put") this.#upload = client.store.beginUpload(what.key);
      this.#next(applying, (this.#applyShare - arriveShare) * this.#totalMs);
      return;
    }
    client.stats.refusals++;
    this.#answer(refusal, undefined, (1 - arriveShare) * this.#totalMs);
  }

  #apply(): void {
    const { client, what } = this;
    const { world } = this.process;
    if (this.caller === undefined && this.settled && world.nowMs > this.#deadlineMs) client.stats.lateLandings++;
    if (!client.store.completeUpload(this.#upload)) {
      this.#answer("error", undefined, (1 - this.#applyShare) * this.#totalMs);
      return;
    }
    const value = perform(client.store, what, this);
    this.#record(applying, value);
    if (this.fault === "crashAfterApply") world.crash(this.process);
    else if (this.fault === "responseLost" || this.#silent) this.#awaitTimeout();
    else {
      const failed = this.fault === "errorAfterApply" || this.fault === "partialDelete";
      const bytes = value instanceof Uint8Array ? value.length : 0;
      this.#answer(failed ? "error" : "ok", value, client.downloadMs(bytes) + (1 - this.#applyShare) * this.#totalMs);
    }
  }

  #answer(verdict: Verdict, value: unknown, delayMs: number): void {
    if (this.settled) return;
    this.#verdict = verdict;
    this.#value = value;
    this.#next(responding, delayMs);
  }

  #next(stage: number, delayMs: number): void {
    const { world } = this.process;
    this.#stage = stage;
    world.schedule(this, delayMs);
    // Most calls are answered in time, so their timeouts are never even scheduled.
    if (world.nowMs + delayMs > this.#deadlineMs && stage !== sending && this.#deadlineMs > 0) this.#awaitTimeout();
  }

  #awaitTimeout(): void {
    if (this.settled || this.#timeout !== undefined || this.caller === undefined) return;
    this.#timeout = new CallTimeout(this);
    this.process.world.schedule(this.#timeout, Math.max(0, this.#deadlineMs - this.process.world.nowMs));
  }

  /** Sends a copy that nobody waits for. */
  #double(travelMs: number): void {
    const copy = new SimCall(this.client, this.what, this.index, undefined);
    copy.settled = true;
    copy.#totalMs = this.#totalMs;
    copy.#applyShare = this.#applyShare;
    copy.#deadlineMs = Number.POSITIVE_INFINITY;
    copy.#next(arriving, travelMs);
  }

  #record(stage: number, value?: unknown): void {
    const { world } = this.process;
    const { trace } = world;
    const result =
      stage === applying ? resultNumber(value) : stage === responding ? verdicts.indexOf(this.#verdict) : 0;
    trace.hashEvent(world.nowMs, traceCodes.calls + this.kindNumber * 4 + stage, this.#fingerprint + result);
    if (!trace.wordy || (stage < applying && !trace.complete)) return;
    const name = (stageNames[this.kindNumber] as readonly string[])[stage] as string;
    const told = stage === applying ? resultText(value) : stage === responding ? this.#verdict : (this.fault ?? "");
    trace.describe(world.nowMs, this.process.label, name, this.what.key, told);
  }
}

/** The caller's patience, scheduled only for calls that will outlast it. */
class CallTimeout extends ProcessEvent {
  override readonly isTimer = true;
  readonly #call: SimCall;

  constructor(call: SimCall) {
    super(call.process);
    this.#call = call;
  }

  override deliver(): void {
    if (this.#call.settled) return;
    this.#call.client.stats.timeouts++;
    this.#call.settle("timeout");
  }
}

/** Takes effect on the store; returns what the answer will carry. */
function perform(store: SimStore, what: CallArguments, call: SimCall): unknown {
  const { key } = what;
  switch (what.kind) {
    case "create":
      return store.create(key, what.object as StoredObject);
    case "put":
      return store.put(key, what.object as StoredObject);
    case "get":
      return damage(store.get(key), call);
    case "getRange":
      return damage(store.getRange(key, what.start ?? 0, what.length ?? 0), call);
    case "list":
      return shorten(store.list(key, what.startAfter ?? "", what.length ?? 1000, asOfMs(call)), call);
    case "delete": {
      const keys = what.keys ?? [];
      const { client, process, index } = call;
      const rng = call.fault === "partialDelete" ? client.faults.detail(process, index) : undefined;
      for (const each of keys) if (rng === undefined || rng.chance(0.5)) store.delete(each);
      return undefined;
    }
  }
}

/** The moment that a listing shows; undefined for now. */
function asOfMs({ fault, client, process, index }: SimCall): number | undefined {
  if (fault !== "staleList") return undefined;
  return process.world.nowMs - client.faults.staleMs(client.faults.detail(process, index));
}

/** A read as it comes off a bad wire. */
function damage(bytes: Uint8Array | undefined, call: SimCall): Uint8Array | undefined {
  if (bytes === undefined || bytes.length === 0) return bytes;
  if (call.fault !== "truncated" && call.fault !== "corrupted" && call.fault !== "damagedGet") return bytes;
  const rng = call.client.faults.detail(call.process, call.index);
  const at = rng.below(bytes.length);
  if (call.fault === "truncated" || (call.fault === "damagedGet" && rng.chance(0.3))) return bytes.slice(0, at);
  const out = new Uint8Array(bytes);
  out[at] = (out[at] as number) ^ (1 << rng.below(8));
  return out;
}

/** A page that ends early but says so, which every store may do. */
function shorten(page: ListPage, call: SimCall): ListPage {
  if (call.fault !== "shortPage" || page.objects.length < 2) return page;
  const rng = call.client.faults.detail(call.process, call.index);
  return { objects: page.objects.slice(0, 1 + rng.below(page.objects.length - 1)), more: true };
}

function resultNumber(value: unknown): number {
  if (value === undefined) return 0;
  if (typeof value === "string") return value.length;
  if (value instanceof Uint8Array) return 100 + value.length;
  return 50 + (value as ListPage).objects.length;
}

function resultText(value: unknown): string | number {
  if (value === undefined) return "nothing";
  if (typeof value === "string") return value;
  if (value instanceof Uint8Array) return value.length;
  return `${(value as ListPage).objects.length} keys${(value as ListPage).more ? ", more" : ""}`;
}

function unavailable(what: CallArguments, verdict: Verdict): BatchWeaveError {
  const { kind, key } = what;
  if (verdict === "full")
    return new BatchWeaveError("STORE_FULL", `${kind} ${key}: no room is left`, { key, call: kind });
  return new BatchWeaveError("STORE_UNAVAILABLE", `${kind} ${key}: ${verdict}; try again`, {
    key,
    call: kind,
    verdict,
  });
}
