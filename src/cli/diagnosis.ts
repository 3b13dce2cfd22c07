/** What holds a log up, in a sentence, from two looks at it. Pure: what others wrote is taken for what it may be. */
import type { ProducerVitals, PulseEntry, Vitals } from "../index.js";
import { counted, formatMs } from "./terminal.js";

/** A producer that has been quiet for longer than this, and for far longer than it usually is, is named. */
const quietMsMin = 2_500;
const quietTimes = 3;
/** A log without a commit for so long has no process at work on it. */
const silentMs = 20_000;
/** A process that waits for more than this share of its time waits for something. */
const waitShareMin = 0.1;
/** A batch that waits this much of the time is the reason why nothing is committed. */
const stalledShareMin = 0.5;
/** A lane that was taken over is news for so long; a wait, if the log goes on. */
const takeoverMs = 30_000;
const newsMs = 20_000;
/** Of a kind that are named. */
const namedMax = 2;
const deadNamedMax = 5;

/** A source, over all processes that tell of it. */
interface SourceSigns {
  readonly source: string;
  readonly samples: number;
  readonly perSecond: number;
  /** Share of the time for which batches waited for it. */
  readonly waitShare: number;
  readonly readMs: number;
  readonly transformMs: number;
  readonly buffered: number;
  readonly faults: number;
}

/** A rank, by its pulse. */
interface RankSigns {
  readonly name: string;
  readonly step: number;
  readonly lagSteps: number;
  readonly waitShare: number;
  readonly waitingMs: number;
  readonly isLate: boolean;
  readonly isDead: boolean;
  readonly ageMs: number;
  readonly host: string;
}

/** What two looks say. */
export interface Diagnosis {
  /** One sentence: what holds the log up, or that nothing does. */
  readonly sentence: string;
  /** Further sentences, the most urgent first. */
  readonly warnings: readonly string[];
  readonly stepsPerSecond: number;
  /** Until the log is complete, where a pulse says how long it is to be. */
  readonly etaMs: number | undefined;
  readonly quiet: readonly string[];
  readonly sources: readonly SourceSigns[];
  readonly ranks: readonly RankSigns[];
}

/** `before`: an earlier look, some seconds ago; the rates are those between the two. `storeAwayMs`: how long the store has not answered the one who looks. */
export function diagnose(now: Vitals, before: Vitals | undefined, storeAwayMs: number): Diagnosis {
  const elapsedMs = before ? Math.max(1, now.atMs - before.atMs) : 0;
  const { end } = now.info.steps;
  const stepsPerSecond = before ? (1_000 * (end - before.info.steps.end)) / elapsedMs : 0;
  const sources = sourceSigns(now, before);
  const ranks = rankSigns(now, before);
  const quiet = now.info.closed ? [] : quietProducers(now);
  const total = Math.max(0, ...now.pulses.map(({ facts }) => whole(facts["steps"])));
  const etaMs = stepsPerSecond > 0 && total > end ? (1_000 * (total - end)) / stepsPerSecond : undefined;
  const warnings = storeAwayMs > 0 ? [`the store has not answered for ${formatMs(storeAwayMs)}`] : [];
  if (!now.info.closed) warnings.push(...died(now), ...lasting(now, quiet, stepsPerSecond), ...lateOnes(now));
  if (!now.info.closed && warnings.length === 0 && now.commitAgeMs > silentMs)
    warnings.push(`nothing was committed for ${formatMs(now.commitAgeMs)}: ${silence(now, sources)}`);
  const sentence = warnings[0] ?? flowing(now, sources, ranks, stepsPerSecond, before !== undefined);
  return {
    sentence,
    warnings: warnings.slice(1),
    stepsPerSecond,
    etaMs,
    quiet: quiet.map(({ id }) => id),
    sources,
    ranks,
  };
}

/** Why nothing is committed, as far as pulses tell. */
function silence({ pulses }: Vitals, sources: readonly SourceSigns[]): string {
  const [worst] = sources;
  if (worst && worst.waitShare >= stalledShareMin) return `batches wait for source ${worst.source}`;
  return pulses.some((one) => isThere(one) && one.role !== "rank" && one.role !== "reclaimer")
    ? "those who make batches live, and do not say what they wait for"
    : "is a producer running?";
}

/** Who died just now, where it can be seen; and whose lanes another process had to take. */
function died({ pulses, atMs }: Vitals): string[] {
  const found: string[] = [];
  const dead = pulses.filter((one) => one.isDead && !one.isLate).sort((a, b) => b.atMs - a.atMs);
  if (dead.length > 0) {
    const names = dead.slice(0, deadNamedMax).map(({ role, name, pid }) => `${role} ${name} (process ${pid})`);
    const more = dead.length > names.length ? ` and ${dead.length - names.length} more` : "";
    found.push(`${names.join(", ")}${more} died without closing: start again what no process took over`);
  }
  const taken = pulses
    .filter((one) => isThere(one) && typeof one.facts["tookOver"] === "string")
    .map(({ role, name, facts, atMs: toldMs }) => ({
      who: `${role} ${name}`,
      lane: String(facts["tookOver"]).slice(0, 80),
      agoMs: Math.max(0, atMs - toldMs) + whole(facts["tookOverAgoMs"]),
    }))
    .filter(({ agoMs }) => agoMs <= takeoverMs)
    .sort((a, b) => a.agoMs - b.agoMs);
  for (const { who, lane, agoMs } of taken.slice(0, namedMax))
    found.push(
      `the holder of ${lane} stood still while it was wanted: it died, hangs or is slow. ${who} took it over ${formatMs(agoMs)} ago`,
    );
  return found;
}

/** It told something lately, and is not known to be dead. */
function isThere({ isLate, isDead }: PulseEntry): boolean {
  return !isLate && !isDead;
}

/** Who has told nothing for long. */
function lateOnes({ pulses, atMs }: Vitals): string[] {
  const late = pulses.filter(({ isLate }) => isLate).sort((a, b) => b.atMs - a.atMs);
  const [first] = late;
  if (!first) return [];
  return [
    `${late.length} of ${counted(pulses.length, "process")} told nothing for long, such as ${first.role} ${first.name} (${formatMs(Math.max(0, atMs - first.atMs))})`,
  ];
}

/** What stands still, or will. */
function lasting(now: Vitals, quiet: readonly ProducerVitals[], stepsPerSecond: number): string[] {
  const { info, groups, pulses } = now;
  const found: string[] = [];
  // What was told long ago holds only while nothing moves.
  const isNews = ({ atMs }: PulseEntry): boolean => stepsPerSecond === 0 || now.atMs - atMs < newsMs;
  const waiters = pulses.filter((one) => isThere(one) && isNews(one) && typeof one.facts["waitingFor"] === "string");
  for (const { role, name, facts } of waiters.slice(0, namedMax))
    found.push(
      `${role} ${name} waits for ${String(facts["waitingFor"]).slice(0, 80)} (${formatMs(whole(facts["waitingMs"]))} and more)`,
    );
  if (info.waiting && quiet.length > 0) {
    const { lane, batches, missingStep } = info.waiting;
    const age = now.producers.find(({ id }) => id === lane)?.commitAgeMs;
    found.push(
      `${lane} is missing: ${counted(batches, "batch")} of other lanes wait for its step ${missingStep}${age === undefined ? ", and it has never committed" : `; it committed last ${formatMs(age)} ago`}. Restart its process, or let another hold the lane`,
    );
  }
  const named = quiet.filter(({ id }) => !(info.waiting && quiet.length > 0 && id === info.waiting.lane));
  if (named.length > 0) {
    const [first] = named as [ProducerVitals];
    const others = named.length > 1 ? ` (and ${named.length - 1} more)` : "";
    found.push(
      `producer ${first.id}${others} has committed nothing for ${formatMs(first.commitAgeMs ?? 0)}: it died, waits, or cannot reach the store`,
    );
  }
  if (info.maxLag !== undefined) {
    const slowest = [...groups].sort((a, b) => b.lagSteps - a.lagSteps)[0];
    const lag = slowest?.lagSteps ?? info.steps.end - info.steps.trim;
    const who = slowest ? `group ${slowest.group}` : "any group";
    if (lag >= info.maxLag)
      found.push(
        `producers wait for a checkpoint of ${who}: they are ${counted(lag, "step")} ahead, and ${info.maxLag} are allowed`,
      );
    else if (lag >= 0.8 * info.maxLag)
      found.push(
        `${who} is ${counted(lag, "step")} behind; at ${info.maxLag} producers stop until it registers a checkpoint`,
      );
  }
  return found;
}

/** What would help a source that batches wait for. Threads in proportion: with a share w of waiting, 1 / (1 - w) times as many would keep up. */
export function adviceFor(
  { transformMs, readMs, waitShare }: Pick<SourceSigns, "transformMs" | "readMs" | "waitShare">,
  threads: number,
): string {
  if (transformMs <= readMs) return "its shards are slow to read: add processes, or move them closer";
  if (threads === 0) return "its transforms are slow: add threads or processes";
  const more = Math.min(4 * threads, Math.max(1, Math.ceil((threads * waitShare) / Math.max(0.05, 1 - waitShare))));
  return `its transforms are slow: add ${more} loader thread${more === 1 ? "" : "s"}`;
}

/** What the rates say, while everything moves. */
function flowing(
  now: Vitals,
  sources: readonly SourceSigns[],
  ranks: readonly RankSigns[],
  stepsPerSecond: number,
  hasRates: boolean,
): string {
  if (now.info.closed) return `the log is closed at step ${now.info.steps.end}`;
  if (now.producers.length === 0) return "no producer has opened this log yet";
  const waiting = Math.max(0, ...ranks.filter(({ isDead }) => !isDead).map(({ waitShare }) => waitShare));
  const [worst] = [...sources].sort((a, b) => b.waitShare - a.waitShare);
  if (worst && worst.waitShare >= waitShareMin && (waiting >= waitShareMin || ranks.length === 0)) {
    const all = sources.reduce((sum, { perSecond }) => sum + perSecond, 0);
    const threads = now.pulses.reduce((sum, one) => sum + (isThere(one) ? whole(one.facts["threads"]) : 0), 0);
    const advice = adviceFor(worst, threads);
    return `${ranks.length > 0 ? "ranks wait" : "producers wait"}: source ${worst.source} makes ${worst.perSecond.toFixed(1)} of ${all.toFixed(1)} samples/s, and batches wait for it ${Math.round(100 * worst.waitShare)} % of the time; ${advice}`;
  }
  if (waiting >= waitShareMin)
    return `ranks wait ${Math.round(100 * waiting)} % of the time: producers make ${stepsPerSecond.toFixed(1)} steps/s; add producers`;
  const lag = Math.max(0, ...ranks.map(({ lagSteps }) => lagSteps));
  if (ranks.length > 0 && lag > 10)
    return `producers are ahead: ranks have ${counted(lag, "step")} ready, and do not wait`;
  return hasRates ? `nothing waits; ${stepsPerSecond.toFixed(1)} steps/s` : "looking";
}

/** Producers that were at work and are quiet for longer than is usual here. Who closed, and who never began, is not missed. */
function quietProducers({ producers, info, atMs }: Vitals): ProducerVitals[] {
  const open = producers.filter(({ hasLeft, commitAgeMs }) => !hasLeft && commitAgeMs !== undefined);
  const ages = open.map(({ commitAgeMs }) => commitAgeMs as number).sort((a, b) => a - b);
  // Half of them are quicker than this.
  const usual = open.length > 1 ? (ages[Math.floor((ages.length - 1) / 2)] as number) : 0;
  // What was seen of it; else, over the life of the log until it committed last.
  const ownMs = ({ paceMs, seq, commitAgeMs = 0 }: ProducerVitals): number =>
    paceMs ?? Math.max(0, atMs - commitAgeMs - info.createdMs) / Math.max(1, seq);
  const limitOf = (one: ProducerVitals): number => Math.max(quietMsMin, quietTimes * Math.max(usual, ownMs(one)));
  return open
    .filter((one) => (one.commitAgeMs as number) > limitOf(one))
    .sort((a, b) => (b.commitAgeMs as number) - (a.commitAgeMs as number));
}

function rankSigns(now: Vitals, before: Vitals | undefined): RankSigns[] {
  return now.pulses
    .filter(({ role }) => role === "rank")
    .map((pulse) => {
      const { facts } = pulse;
      const earlier = earlierOf(pulse, before);
      const spanMs = earlier ? pulse.atMs - earlier.atMs : pulse.atMs - (pulse.startedMs ?? pulse.atMs);
      const waited = whole(facts["waitedMs"]) - (earlier ? whole(earlier.facts["waitedMs"]) : 0);
      return {
        name: pulse.name,
        step: whole(facts["step"]),
        lagSteps: whole(facts["lagSteps"]),
        waitShare: share(waited, spanMs),
        waitingMs: whole(facts["waitingMs"]),
        isLate: pulse.isLate,
        isDead: pulse.isDead,
        ageMs: Math.max(0, now.atMs - pulse.atMs),
        host: pulse.host ?? "",
      };
    })
    .sort((a, b) => Number(b.isDead) - Number(a.isDead) || b.waitShare - a.waitShare || a.step - b.step);
}

/** Sums over processes; each compared with what it told before. */
function sourceSigns(now: Vitals, before: Vitals | undefined): SourceSigns[] {
  const all = new Map<string, { -readonly [K in keyof SourceSigns]: SourceSigns[K] }>();
  for (const pulse of now.pulses) {
    if (!isThere(pulse)) continue;
    const earlier = earlierOf(pulse, before);
    const spanMs = earlier ? pulse.atMs - earlier.atMs : pulse.atMs - (pulse.startedMs ?? pulse.atMs);
    const known = new Map(listOf(earlier?.facts["sources"]).map((one) => [String(one["source"]), one]));
    for (const one of listOf(pulse.facts["sources"])) {
      const source = String(one["source"]).slice(0, 64);
      const was = known.get(String(one["source"]));
      const grown = (name: string): number => Math.max(0, whole(one[name]) - whole(was?.[name]));
      const sum = all.get(source) ?? {
        source,
        samples: 0,
        perSecond: 0,
        waitShare: 0,
        readMs: 0,
        transformMs: 0,
        buffered: 0,
        faults: 0,
      };
      sum.samples += whole(one["samples"]);
      sum.perSecond += spanMs > 0 ? (1_000 * grown("samples")) / spanMs : 0;
      sum.waitShare = Math.max(sum.waitShare, share(grown("waitMs"), spanMs));
      sum.readMs += whole(one["readMs"]);
      sum.transformMs += whole(one["transformMs"]);
      sum.buffered += whole(one["buffered"]);
      sum.faults += whole(one["faults"]);
      all.set(source, sum);
    }
  }
  return [...all.values()].sort((a, b) => b.waitShare - a.waitShare || (a.source < b.source ? -1 : 1));
}

/** What the same process told in the earlier look, if it has told more since. */
function earlierOf(pulse: PulseEntry, before: Vitals | undefined): PulseEntry | undefined {
  const found = before?.pulses.find(({ incarnation }) => incarnation === pulse.incarnation);
  return found && found.atMs < pulse.atMs ? found : undefined;
}

function share(part: number, whole: number): number {
  return whole > 0 ? Math.min(1, Math.max(0, part / whole)) : 0;
}

function whole(value: unknown): number {
  return typeof value === "number" && Number.isFinite(value) && value > 0 ? value : 0;
}

function listOf(value: unknown): readonly Record<string, unknown>[] {
  if (!Array.isArray(value)) return [];
  return value.filter((one): one is Record<string, unknown> => typeof one === "object" && one !== null).slice(0, 64);
}
