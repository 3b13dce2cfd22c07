/** After a run: a last reclaim must leave nothing that is not needed, and a bit that flips at rest must be noticed, never served. */
import { BatchWeaveError } from "../../src/errors.js";
import {
  batchPrefix,
  crc32,
  indexPrefix,
  nodeRefKey,
  parseBatchKey,
  parseIndexKey,
  parseManifestKey,
} from "../../src/format/index.js";
import { reclaim, verifyLog } from "../../src/lifecycle/index.js";
import type { Handle } from "../actors/weave-stage.js";
import { indexRefs } from "../store/index-refs.js";
import type { SimStore } from "../store/sim-store.js";
import { keyInLife } from "../world/life-key.js";
import type { Rng } from "../world/random.js";
import type { ChainOracle } from "./chain-oracle.js";
import { Violation } from "./violation.js";

/** What an autopsy needs. */
export interface Autopsy {
  readonly store: SimStore;
  readonly oracle: ChainOracle;
  readonly rng: Rng;
  /** Opens the namespace anew: nothing may be remembered from before the damage. */
  readonly open: () => Promise<Handle>;
  /** Everything of the namespace is below; what belongs to others is not. */
  readonly isOurs: (key: string) => boolean;
}

const extentNumber = /\.\d+\.tgb$/;

/** Objects that are spoiled in a run. */
const spoiledMax = 6;
/** Names that may be left besides what the head needs: the last versions, and what was uploaded on them. */
const versionsLeftMax = 4;

/** Reclaims once more, with no grace, and looks at every name that is left. Returns how many there are. */
export async function requireNoLeak({ store, oracle, open, isOurs }: Autopsy): Promise<number> {
  for (let round = 0; round < 3; round++) await reclaim((await open()).log, { graceMs: 0, keepVersions: 1 });
  const head = oracle.head;
  if (head === undefined) return 0;
  const needed = oracle.liveKeys(head);
  if (head.version - oracle.boundary > versionsLeftMax)
    throw new Violation("leak", `the boundary is ${oracle.boundary} after a last reclaim; the head is ${head.version}`);
  const lasts = new Set([...oracle.producers.lastKeys(head)].map((key) => key.replace(extentNumber, "")));
  const keys = store.keys().filter(isOurs);
  for (const whole of keys) {
    const key = keyInLife(whole);
    // Of a producer's last batch all extents stay, though its resume point is in one.
    if (needed.has(key) || lasts.has(key.replace(extentNumber, ""))) continue;
    const version = parseManifestKey(key);
    const base = key.startsWith(batchPrefix)
      ? parseBatchKey(key)?.name.base
      : key.startsWith(indexPrefix)
        ? parseIndexKey(key)?.base
        : undefined;
    const isLeft =
      (version !== undefined && version <= oracle.boundary) ||
      (base !== undefined && base < head.orphanCutoff) ||
      key.startsWith("intent/");
    if (isLeft)
      throw new Violation(
        "leak",
        `${whole} is left after a last reclaim, and version ${head.version} does not need it`,
      );
  }
  return keys.length;
}

/** Flips one bit of a few objects, one after another. Returns how many. */
export async function requireNotice(autopsy: Autopsy): Promise<number> {
  const { store, oracle, rng } = autopsy;
  const head = oracle.head;
  if (head === undefined) return 0;
  const names = new Set<string>();
  for (const { keys } of oracle.steps.slice(head.steps.trim)) for (const key of keys) names.add(key);
  for (const ref of indexRefs(head)) names.add(nodeRefKey(ref));
  const wanted = store.keys().filter((whole) => {
    const key = keyInLife(whole);
    return autopsy.isOurs(whole) && (names.has(key) || parseManifestKey(key) === head.version);
  });
  let spoiled = 0;
  for (; spoiled < spoiledMax && wanted.length > 0; spoiled++) {
    const key = rng.pick(wanted);
    const offset = rng.below(store.sizeOf(key) as number);
    const repair = store.corrupt(key, offset);
    await requireNoticed(autopsy, `${key}, byte ${offset}`);
    repair();
  }
  return spoiled;
}

async function requireNoticed({ open, oracle, rng }: Autopsy, what: string): Promise<void> {
  let handle: Handle;
  let isOk: boolean;
  try {
    handle = await open();
    isOk = (await verifyLog(handle.log, { level: "bytes" })).ok;
  } catch (error) {
    if (error instanceof BatchWeaveError) return;
    throw error;
  }
  if (isOk) throw new Violation("damage", `one bit of ${what} is another, and verify finds nothing`);
  const { trim, end } = oracle.head?.steps ?? { trim: 0, end: 0 };
  const { log, namespace } = handle;
  const { rows, chunks } = log.spec.grid;
  for (let step: number = trim; step < end; step++) {
    const row = rng.below(rows);
    const chunk = rng.below(chunks);
    let bytes: Uint8Array;
    try {
      bytes = await namespace.readSlice({ step, row, chunk });
    } catch (error) {
      if (error instanceof BatchWeaveError) continue;
      throw error;
    }
    if (crc32(bytes) !== oracle.steps[step]?.cells[row * chunks + chunk])
      throw new Violation("damage", `one bit of ${what} is another, and step ${step} is served wrong`);
  }
}
