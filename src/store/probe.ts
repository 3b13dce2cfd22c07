/**
 * Asks a store whether it keeps the rules we depend on. Some S3-compatible servers accept a precondition and ignore it: two writers would
 * then both believe they committed.
 */
import type { Env } from "../env/index.js";
import { BatchWeaveError } from "../errors.js";
import type { CallOptions, CreateOutcome, ObjectStore } from "./object-store.js";

/** One rule and whether it held. */
export interface ProbeCase {
  readonly name: string;
  readonly ok: boolean;
  /** What was seen. */
  readonly detail: string;
}

/** What {@link probeStore} found. */
export interface ProbeReport {
  readonly uri: string;
  /** Every rule held. */
  readonly safe: boolean;
  readonly cases: readonly ProbeCase[];
}

/** Settings of {@link probeStore}. */
export interface ProbeSettings {
  /** Races to run. Default 3. */
  rounds?: number | undefined;
  /** Simultaneous creators in each race. Default 32. */
  writers?: number | undefined;
}

/** Keys of every probe start with this. */
export const probePrefix = "probe/";

/** Bytes each racer stores: more than one network packet, so that a torn object would show. */
const racerBytes = 4096;

interface Probe {
  readonly store: ObjectStore;
  readonly folder: string;
  readonly options: CallOptions;
}

/** Thrown by a rule that does not hold. */
class Broken extends Error {}

/**
 * Runs every rule under a throwaway prefix (`probe/<id>/`) and removes what it wrote. Failures of the store itself (denied, unavailable, full)
 * are thrown as they are: they say nothing about the rules.
 */
export async function probeStore(
  store: ObjectStore,
  env: Env,
  settings: ProbeSettings = {},
  options: CallOptions = {},
): Promise<ProbeReport> {
  const probe: Probe = { store, folder: `${probePrefix}${env.id()}/`, options };
  const rules: readonly (readonly [string, () => Promise<string>])[] = [
    ["conditional create: one winner of many", () => createRace(probe, settings.rounds ?? 3, settings.writers ?? 32)],
    ["conditional create never overwrites", () => createOnExisting(probe)],
    ["read after write", () => readAfterWrite(probe)],
    ["list in byte order, with start-after and limit", () => listing(probe)],
    ["ranges at the edges", () => ranges(probe)],
    ["delete, and delete of what is absent", () => deletion(probe)],
  ];
  const cases: ProbeCase[] = [];
  try {
    for (const [name, rule] of rules) cases.push(await judge(name, rule));
  } finally {
    await cleanUp(probe);
  }
  return { uri: store.uri, safe: cases.every((one) => one.ok), cases };
}

/** Throws UNSAFE_STORE naming every broken rule. */
export function assertSafe(report: ProbeReport): void {
  const broken = report.cases.filter((one) => !one.ok);
  if (broken.length === 0) return;
  const list = broken.map((one) => `"${one.name}" (${one.detail})`).join("; ");
  throw new BatchWeaveError(
    "UNSAFE_STORE",
    `${report.uri} breaks a rule that BatchWeave depends on: ${list}; data would be lost or repeated here, so use another store or a version of this one that keeps it.`,
    { uri: report.uri, broken: broken.map((one) => one.name) },
  );
}

async function judge(name: string, rule: () => Promise<string>): Promise<ProbeCase> {
  try {
    return { name, ok: true, detail: await rule() };
  } catch (e) {
    if (e instanceof Broken) return { name, ok: false, detail: e.message };
    throw e;
  }
}

function check(holds: boolean, detail: string): asserts holds {
  if (!holds) throw new Broken(detail);
}

async function createRace(probe: Probe, rounds: number, writers: number): Promise<string> {
  let unknown = 0;
  for (let round = 0; round < rounds; round++) {
    const key = `${probe.folder}race-${round}`;
    const bodies = Array.from({ length: writers }, (_, writer) => racerBody(round, writer));
    // All requests are under way before any is answered: each call reaches its first await before the next begins.
    const calls = bodies.map((body) => probe.store.create(key, body, probe.options));
    await Promise.allSettled(calls); // or a failure would start the clean-up while creates are still under way
    const outcomes = await Promise.all(calls);
    unknown += outcomes.filter((outcome) => outcome === "unknown").length;
    const stored = await probe.store.get(key, probe.options);
    judgeRace(outcomes, bodies, stored, round);
  }
  return `${rounds} rounds of ${writers} creators, one winner each${unknown > 0 ? `, ${unknown} answers unknown` : ""}`;
}

/** At most one "created", and what is stored is whole and the winner's (or, when no creator was told so, of one whose answer was unknown). */
function judgeRace(
  outcomes: readonly CreateOutcome[],
  bodies: readonly Uint8Array[],
  stored: Uint8Array | undefined,
  round: number,
): void {
  const winners = outcomes.flatMap((outcome, writer) => (outcome === "created" ? [writer] : []));
  check(
    winners.length <= 1,
    `${winners.length} of ${outcomes.length} simultaneous creators of one key were told they created it`,
  );
  const allowed =
    winners.length === 1 ? winners : outcomes.flatMap((outcome, writer) => (outcome === "unknown" ? [writer] : []));
  check(allowed.length > 0, `all ${outcomes.length} simultaneous creators of a new key were told it exists`);
  check(stored !== undefined, `the object of round ${round} is missing right after its creation`);
  check(
    allowed.some((writer) => isSame(stored, bodies[writer])),
    `the bytes stored in round ${round} are not the winner's`,
  );
}

function racerBody(round: number, writer: number): Uint8Array {
  const body = new Uint8Array(racerBytes).fill(writer);
  body.set(new TextEncoder().encode(`round ${round} writer ${writer};`));
  return body;
}

async function createOnExisting({ store, folder, options }: Probe): Promise<string> {
  const key = `${folder}existing`;
  const first = text("first");
  const created = await store.create(key, first, options);
  check(created !== "exists", "a key that no client had written was said to exist");
  const second = await store.create(key, text("second"), options);
  const stored = await store.get(key, options);
  check(second !== "created", "a second create of the same key was told it created it");
  check(isSame(stored, first), "a second create of the same key replaced the first object");
  return `second create: ${second}; the first object is untouched`;
}

async function readAfterWrite({ store, folder, options }: Probe): Promise<string> {
  for (let i = 0; i < 8; i++) {
    const key = `${folder}fresh-${i}`;
    check((await store.get(key, options)) === undefined, "a key that no client had written was found");
    await store.put(key, text(`body ${i}`), options);
    check(isSame(await store.get(key, options), text(`body ${i}`)), "a read right after a write did not see it");
    const page = await store.list(key, options);
    check(page.objects.length === 1, "a list right after a write did not show it");
  }
  return "8 objects seen by get and list at once, also after a miss";
}

async function listing({ store, folder, options }: Probe): Promise<string> {
  // In byte order: "-" and "." before "/", digits, capitals, "_", small letters after it.
  const names = ["a", "b-", "b.", "b/a", "b/b", "b0", "bA", "b_", "ba", "c"].map((name) => `${folder}list/${name}`);
  await Promise.all([...names].reverse().map((key) => store.put(key, text(key), options)));
  const all = await store.list(`${folder}list/`, options);
  const keys = all.objects.map((one) => one.key);
  check(
    keys.length === names.length && keys.every((key, i) => key === names[i]),
    `listed ${keys.length} of ${names.length} keys or out of byte order`,
  );
  check(
    all.objects.every((one) => one.size === one.key.length),
    "a listed size is wrong",
  );
  const startAfter = names[2] as string;
  const page = await store.list(`${folder}list/`, { ...options, startAfter, limit: 3 });
  const got = page.objects.map((one) => one.key);
  check(got.length === 3 && got.every((key, i) => key === names[i + 3]), "start-after or limit is ignored");
  check(page.more, "a page that is not the last says it is");
  const last = await store.list(`${folder}list/`, { ...options, startAfter: names[names.length - 1] });
  check(last.objects.length === 0 && !last.more, "listing after the last key does not end");
  return `${names.length} keys in order`;
}

async function ranges({ store, folder, options }: Probe): Promise<string> {
  const key = `${folder}range`;
  const whole = Uint8Array.from({ length: 1000 }, (_, i) => i % 251);
  await store.put(key, whole, options);
  for (const [start, length] of [
    [0, 1],
    [0, 1000],
    [999, 1],
    [500, 500],
    [990, 100],
    [1000, 1],
    [5000, 10],
    [10, 0],
  ] as const) {
    const got = await store.getRange(key, start, length, options);
    check(
      isSame(got, whole.subarray(start, start + length)),
      `range [${start}, +${length}) of 1000 bytes gave ${got ? `${got.byteLength} bytes` : "nothing"}`,
    );
  }
  check(
    (await store.getRange(`${folder}absent`, 0, 1, options)) === undefined,
    "a range of an absent object gave bytes",
  );
  return "8 ranges right, past the end too";
}

async function deletion({ store, folder, options }: Probe): Promise<string> {
  const keys = [`${folder}gone-1`, `${folder}gone-2`];
  for (const key of keys) await store.put(key, text(key), options);
  await store.delete([...keys, `${folder}never-there`], options);
  for (const key of keys)
    check((await store.get(key, options)) === undefined, "an object is still there after its deletion");
  check((await store.list(`${folder}gone`, options)).objects.length === 0, "a deleted object is still listed");
  check(
    (await store.create(keys[0] as string, text("again"), options)) !== "exists",
    "a deleted key cannot be created again",
  );
  return "gone from get and list; absent keys are fine";
}

/** Removes everything under the probe's prefix; runs without the caller's signal, because an abort must not leave litter. */
async function cleanUp({ store, folder }: Probe): Promise<void> {
  for (;;) {
    const { objects, more } = await store.list(folder);
    if (objects.length > 0) await store.delete(objects.map((one) => one.key));
    if (!more) return;
  }
}

function text(value: string): Uint8Array {
  return new TextEncoder().encode(value);
}

function isSame(a: Uint8Array | undefined, b: Uint8Array | undefined): boolean {
  return a !== undefined && b !== undefined && a.byteLength === b.byteLength && a.every((byte, i) => byte === b[i]);
}
