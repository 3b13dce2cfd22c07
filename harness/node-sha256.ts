/** Node's own SHA-256, in the shape that AWS's signer wants. */
import { createHash, createHmac, type Hash, type Hmac } from "node:crypto";

export class NodeSha256 {
  readonly #hash: Hash | Hmac;
  constructor(secret?: Uint8Array | string) {
    this.#hash = secret === undefined ? createHash("sha256") : createHmac("sha256", secret);
  }
  update(data: Uint8Array | string): void {
    this.#hash.update(data);
  }
  async digest(): Promise<Uint8Array> {
    return this.#hash.digest();
  }
  reset(): void {}
}
