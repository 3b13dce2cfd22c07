/** A memory store whose range reads a test can count, hold up or damage. */
import { type CallOptions, MemoryStore } from "../../src/store/index.js";

/** One range read, as it was asked for. */
export interface RangeCall {
  readonly key: string;
  readonly start: number;
  readonly length: number;
}

/** Called with what would be answered; may change it, throw, or take its time. */
export type Interfere = (
  bytes: Uint8Array | undefined,
  call: RangeCall,
  options: CallOptions | undefined,
) => Uint8Array | undefined | Promise<Uint8Array | undefined>;

export class WatchedStore extends MemoryStore {
  readonly calls: RangeCall[] = [];
  /** Bytes that readers got, manifests and index objects included. */
  bytesRead = 0;
  inFlight = 0;
  inFlightMax = 0;
  interfere: Interfere = (bytes) => bytes;

  /** Range reads of slices and footers. */
  get batchCalls(): RangeCall[] {
    return this.calls.filter((call) => call.key.startsWith("batch/"));
  }

  override async get(key: string, options?: CallOptions): Promise<Uint8Array | undefined> {
    const bytes = await super.get(key, options);
    this.bytesRead += bytes?.length ?? 0;
    return bytes;
  }

  override async getRange(
    key: string,
    start: number,
    length: number,
    options?: CallOptions,
  ): Promise<Uint8Array | undefined> {
    const call = { key, start, length };
    this.calls.push(call);
    this.inFlightMax = Math.max(this.inFlightMax, ++this.inFlight);
    try {
      const bytes = await this.interfere(await super.getRange(key, start, length, options), call, options);
      this.bytesRead += bytes?.length ?? 0;
      return bytes;
    } finally {
      this.inFlight--;
    }
  }

  /** Changes one stored byte. */
  async damage(key: string, offset: number): Promise<void> {
    const bytes = (await super.get(key)) as Uint8Array;
    bytes[offset] = (bytes[offset] as number) ^ 0xff;
    await super.put(key, bytes);
  }

  /** Cuts an object off. */
  async truncate(key: string, length: number): Promise<void> {
    await super.put(key, ((await super.get(key)) as Uint8Array).slice(0, length));
  }
}
