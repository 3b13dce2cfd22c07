/** The one thing simulated processes share: a map from keys to bytes that survives all of them. */
import { crc32 } from "../../src/format/index.js";
import type { Body, CreateOutcome, ListPage, ObjectStore } from "../../src/store/index.js";
import type { CallKind } from "../world/call-kind.js";
import type { Rng } from "../world/random.js";
import { RateCeiling, type RateCeilingOptions } from "../world/rate-ceiling.js";
import { KeyIndex } from "./key-index.js";
import { ListingPast, rewound } from "./listing-past.js";
import { Unsynced } from "./unsynced.js";

/** Options of {@link SimStore}. */
export interface SimStoreOptions {
  /** True for a broken store in which a conditional create always writes. */
  readonly ignoresPreconditions?: boolean | undefined;
  /** Request ceilings per prefix; none unless given. */
  readonly ceiling?: RateCeilingOptions | undefined;
  /**
   * Bodies are copied on the way in and out, so that nobody can change what is stored by keeping a buffer. `in`: only on the way in;
   * readers share the stored bytes, and {@link SimStore.assertUntouched} finds out whether one of them wrote into them. `none` is for
   * measurements of scale, where all batches share one payload.
   */
  readonly copies?: "both" | "in" | "none" | undefined;
  /** Writes of these keys take their time and effect and are then forgotten; reading or listing them is an error. None unless told. */
  readonly forgets?: ((key: string) => boolean) | undefined;
  /** Listings can be had as they were up to so many ms ago. Nothing is remembered unless told. */
  readonly remembersMs?: number | undefined;
  /**
   * Puts of these keys go in parts: until the last one is there, or for ever, they are uploads that somebody may abort; or, on a disk, files under
   * their own name. None unless told.
   */
  readonly inParts?: ((key: string) => boolean) | undefined;
  /** It is a folder of files on one machine, whose power can be {@link SimStore.cut}. Every write survives unless told. */
  readonly isDisk?: boolean | undefined;
}

/** A put of which only parts are there. */
export interface Upload {
  readonly key: string;
  aborted: boolean;
}

/** A write as it took effect. */
export interface Applied {
  readonly kind: CallKind | "abort";
  readonly key: string;
  /** False for a conditional create that found the key taken, or a delete of nothing. */
  readonly changed: boolean;
  /** True for a put of the very bytes that are there already, or of a key that was free. */
  readonly same?: boolean | undefined;
}

/** Bytes at rest. */
export interface StoredObject {
  readonly size: number;
  readonly parts: readonly Uint8Array[];
  /** CRC-32 when it was packed, where readers share the bytes. */
  readonly check?: number | undefined;
}

/** Keys a LIST page holds at most. */
export const pageKeysMax = 1000;

/** What the store holds, changed only by requests as they are applied. */
export class SimStore {
  readonly ceiling: RateCeiling | undefined;
  readonly #copies: "both" | "in" | "none";
  /** Told of every write as it takes effect: where an oracle watches continuously. */
  onApply: ((applied: Applied) => void) | undefined;
  readonly #objects = new Map<string, StoredObject>();
  readonly #keys = new KeyIndex();
  readonly #ignoresPreconditions: boolean;
  readonly #forgets: (key: string) => boolean;
  readonly #inParts: ((key: string) => boolean) | undefined;
  readonly #uploads = new Set<Upload>();
  readonly #past: ListingPast | undefined;
  readonly #unsynced: Unsynced | undefined;
  #cuts = 0;

  constructor(options: SimStoreOptions = {}) {
    this.#ignoresPreconditions = options.ignoresPreconditions ?? false;
    this.ceiling = options.ceiling === undefined ? undefined : new RateCeiling(options.ceiling);
    this.#copies = options.copies ?? "both";
    this.#forgets = options.forgets ?? (() => false);
    this.#inParts = options.inParts;
    this.#past = options.remembersMs === undefined ? undefined : new ListingPast(options.remembersMs);
    this.#unsynced = options.isDisk ? new Unsynced() : undefined;
  }

  /** Tells the store what time it is, if it is to remember. */
  set clock(nowMs: () => number) {
    if (this.#past !== undefined) this.#past.nowMs = nowMs;
  }

  /** Whether there are uploads that somebody may abort. */
  get hasUploads(): boolean {
    return this.#inParts !== undefined && !this.isDisk;
  }

  /** Whether it is a folder of files, so that names may be there that are not durable yet. */
  get isDisk(): boolean {
    return this.#unsynced !== undefined;
  }

  /** Power cuts so far: a request that was sent before the last one never arrives. */
  get cuts(): number {
    return this.#cuts;
  }

  /** Objects stored. */
  get size(): number {
    return this.#objects.size;
  }

  /** What a request carries: fixed when it is sent, as on a wire. */
  pack(key: string, body: Body): StoredObject {
    const parts = body instanceof Uint8Array ? [body] : body;
    let size = 0;
    for (const part of parts) size += part.length;
    if (this.#forgets(key)) return { size, parts: [] };
    if (this.#copies === "none") return { size, parts };
    const bytes = join(parts, size);
    return { size, parts: [bytes], check: this.#copies === "in" ? crc32(bytes) : undefined };
  }

  /** Applies a conditional create. */
  create(key: string, object: StoredObject): CreateOutcome {
    if (this.#objects.has(key) && !this.#ignoresPreconditions) {
      this.onApply?.({ kind: "create", key, changed: false });
      return "exists";
    }
    this.#write(key, object);
    this.onApply?.({ kind: "create", key, changed: true });
    return "created";
  }

  /** Applies an unconditional write. */
  put(key: string, object: StoredObject): void {
    const same = this.onApply === undefined || this.#isSame(key, object);
    this.#write(key, object);
    this.onApply?.({ kind: "put", key, changed: true, same });
  }

  /** The first part of a put is there; undefined when the key is written in one go. */
  beginUpload(key: string): Upload | undefined {
    if (this.#inParts?.(key) !== true) return undefined;
    const upload = { key, aborted: false };
    this.#uploads.add(upload);
    return upload;
  }

  /** The last part is there. False: somebody aborted the upload, and nothing may be written. */
  completeUpload(upload: Upload | undefined): boolean {
    if (upload === undefined) return true;
    this.#uploads.delete(upload);
    return !upload.aborted;
  }

  /** Aborts uploads below a prefix; gives their number. */
  abortUploads(prefix: string, only: (key: string) => boolean): number {
    let count = 0;
    for (const upload of this.#uploads) {
      if (!upload.key.startsWith(prefix) || !only(upload.key)) continue;
      upload.aborted = true;
      this.#uploads.delete(upload);
      this.onApply?.({ kind: "abort", key: upload.key, changed: true });
      count++;
    }
    return count;
  }

  /** Applies a delete of one key. */
  delete(key: string): void {
    const before = this.#objects.get(key);
    const size = before?.size;
    const changed = this.#objects.delete(key);
    if (changed) {
      this.#unsynced?.note(key, before);
      this.#past?.note(key, size);
      this.#keys.remove(key);
    }
    this.onApply?.({ kind: "delete", key, changed });
  }

  /** The whole object. */
  get(key: string): Uint8Array | undefined {
    const object = this.#found(key);
    if (object === undefined) return undefined;
    if (object.parts.length === 1 && this.#copies !== "both") return object.parts[0];
    return join(object.parts, object.size);
  }

  /** Part of an object. */
  getRange(key: string, start: number, length: number): Uint8Array | undefined {
    const object = this.#found(key);
    if (object === undefined) return undefined;
    const { parts } = object;
    const from = Math.min(start, object.size);
    const to = Math.min(start + length, object.size);
    if (parts.length === 1) {
      const only = parts[0] as Uint8Array;
      return this.#copies === "both" ? only.slice(from, to) : only.subarray(from, to);
    }
    return join(parts, object.size).subarray(from, to);
  }

  /** One page of a listing; as of some time ago, if told, as far as the store remembers. */
  list(prefix: string, startAfter: string, limit: number, asOfMs?: number): ListPage {
    this.#assertKept(prefix);
    const most = Math.min(limit, pageKeysMax);
    const before = asOfMs === undefined ? undefined : this.#past?.since(asOfMs);
    const keys = this.#keys.page(prefix, startAfter, most + 1 + (before?.size ?? 0));
    const listed = keys.map((key) => ({ key, size: (this.#objects.get(key) as StoredObject).size }));
    const objects = before === undefined ? listed : rewound(listed, before, prefix, startAfter);
    return { objects: objects.slice(0, most), more: objects.length > most };
  }

  /** Bytes of a key's object; undefined when there is none. */
  sizeOf(key: string): number | undefined {
    return this.#objects.get(key)?.size;
  }

  /** Every key with this prefix, in order: for oracles. */
  keys(prefix = ""): string[] {
    return this.#keys.page(prefix, "", Number.POSITIVE_INFINITY);
  }

  /** Throws when somebody wrote into bytes that he was given to read. */
  assertUntouched(): void {
    for (const [key, { parts, check }] of this.#objects) {
      if (check !== undefined && crc32(parts[0] as Uint8Array) !== check)
        throw new Error(`a reader changed the bytes of ${key}, which others read too`);
    }
  }

  /** Flips one bit at rest: what no transport checksum will ever notice. Returns what puts it right again. */
  corrupt(key: string, offset: number): () => void {
    const before = this.#objects.get(key) as StoredObject;
    const bytes = this.get(key)?.slice();
    if (bytes === undefined || offset >= bytes.length) throw new RangeError(`no byte ${offset} in ${key}`);
    bytes[offset] = (bytes[offset] as number) ^ 0x10;
    this.#objects.set(key, { size: bytes.length, parts: [bytes] });
    return () => void this.#objects.set(key, before);
  }

  /** Names in the folder of `key` survive power loss from here on. */
  sync(key: string): void {
    this.#unsynced?.sync(key);
  }

  /** The power goes: what nobody synced is gone, or empty, or back, as far as the disk had not come to it by itself. Gives how many names changed. */
  cut(rng: Rng): number {
    this.#cuts++;
    const lost = this.#unsynced?.cut(rng) ?? new Map<string, StoredObject | undefined>();
    // What was being written under its own name is there, without its bytes.
    for (const { key } of this.#uploads) if (rng.chance(0.5)) lost.set(key, { size: 0, parts: [new Uint8Array(0)] });
    this.#uploads.clear();
    for (const [key, before] of lost) {
      if (this.#objects.has(key)) this.#keys.remove(key);
      this.#objects.delete(key);
      if (before === undefined) continue;
      this.#objects.set(key, before);
      this.#keys.add(key);
    }
    return lost.size;
  }

  /** The store as seen by nobody in particular: no time, no faults. For oracles and for setting a scene. */
  direct(): ObjectStore {
    return {
      uri: "sim://direct",
      create: async (key, body) => this.create(key, this.pack(key, body)),
      put: async (key, body) => this.put(key, this.pack(key, body)),
      get: async (key) => this.get(key),
      getRange: async (key, start, length) => this.getRange(key, start, length),
      list: async (prefix, options) => this.list(prefix, options?.startAfter ?? "", options?.limit ?? pageKeysMax),
      delete: async (keys) => {
        for (const key of keys) this.delete(key);
      },
    };
  }

  #write(key: string, object: StoredObject): void {
    if (this.#forgets(key)) return;
    const before = this.#objects.get(key);
    this.#unsynced?.note(key, before);
    this.#objects.set(key, object);
    if (before !== undefined) return;
    this.#past?.note(key, undefined);
    this.#keys.add(key);
  }

  #isSame(key: string, object: StoredObject): boolean {
    const before = this.#objects.get(key);
    if (before === undefined) return true;
    return (
      before.size === object.size &&
      Buffer.compare(join(before.parts, before.size), join(object.parts, object.size)) === 0
    );
  }

  #found(key: string): StoredObject | undefined {
    this.#assertKept(key);
    return this.#objects.get(key);
  }

  #assertKept(key: string): void {
    if (this.#forgets(key)) throw new Error(`the simulated store was told to forget ${key}, and now somebody reads it`);
  }
}

function join(parts: readonly Uint8Array[], size: number): Uint8Array {
  // Not slice(): that of a Buffer shares its memory.
  if (parts.length === 1) return new Uint8Array(parts[0] as Uint8Array);
  const out = new Uint8Array(size);
  let at = 0;
  for (const part of parts) {
    out.set(part, at);
    at += part.length;
  }
  return out;
}
