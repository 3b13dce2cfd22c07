/** Manifests as the processes of one run see them: stored bytes are decoded by their first reader, and the others share the result. */
import { decodeManifest, type Manifest } from "../../src/format/index.js";

/** Remembers what stored bytes mean. Needs a store whose readers share them. */
export class DecodedManifests {
  readonly #byBytes = new WeakMap<Uint8Array, Manifest>();

  /** As `decodeManifest`; a reader who expects another namespace or version decodes, and fails, by itself. */
  readonly decode: typeof decodeManifest = (bytes, where, namespace, version) => {
    const known = this.#byBytes.get(bytes);
    if (known !== undefined && known.namespace === namespace && known.version === version) return known;
    const manifest = decodeManifest(bytes, where, namespace, version);
    this.#byBytes.set(bytes, manifest);
    return manifest;
  };
}
