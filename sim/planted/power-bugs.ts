/** Planted bugs that only a power cut shows, caught by the scenario `power`: syncs that are missing. */
import type { PlantedBug } from "./planted.js";

function bug(name: string, file: string, find: string, replace: string): PlantedBug {
  return { name, hazard: "power", scenario: "power", edits: [{ file, find, replace }] };
}

const boundary = "src/log/boundary-chain.js";

/** Every planted bug of this kind. */
export const powerBugs: readonly PlantedBug[] = [
  bug(
    "a file store answers before the folder of a new name is synced",
    "sim/store/sim-call.js",
    "client.store.sync(key);",
    ";",
  ),
  bug(
    "a batch is acknowledged on a version that may still vanish",
    "src/log/head.js",
    "await this.#store.sync?.(manifestKey(manifest.version), options);",
    "",
  ),
  bug(
    "versions are deleted on a marker that may still vanish",
    boundary,
    "const { n } = this.#newest;\n                await this.#store.sync?.(boundaryKey(n), options);",
    "const { n } = this.#newest;",
  ),
  bug(
    "a manifest names a marker that may still vanish",
    boundary,
    "return this.#store.sync ? this.#kept : this.#newest.n;",
    "return this.#newest.n;",
  ),
];
