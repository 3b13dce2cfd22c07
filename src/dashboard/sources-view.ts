/** What the newest steps are made of, against what the schedule wants; and balance. Pure. */
import type { LineageSample, NamespaceInfo } from "../index.js";
import type { CostsView, SourceRow, SourcesView } from "./views.js";

/** A step as the view needs it. */
interface LookedAt {
  readonly step: number;
  readonly user: unknown;
  readonly samples: readonly LineageSample[] | undefined;
}

const sourcesMax = 200;

/** The notes of a pipeline, as far as they are what they should be: a producer may store anything with a batch. */
interface Notes {
  readonly phase?: unknown;
  readonly schedule?: { readonly unit?: unknown; readonly shares?: unknown } | null;
  readonly costs?: { readonly before?: unknown; readonly after?: unknown } | null;
  readonly imbalance?: {
    readonly before?: { readonly ranks?: unknown } | null;
    readonly after?: { readonly ranks?: unknown } | null;
  } | null;
  readonly faultCounts?: unknown;
}

function notesOf(user: unknown): Notes {
  return typeof user === "object" && user !== null ? (user as Notes) : {};
}

function numbersOf(value: unknown): readonly number[] | undefined {
  return Array.isArray(value) && value.length <= 4_096 && value.every((one) => Number.isFinite(one))
    ? value
    : undefined;
}

/** Costs by consumer, where the batch tells. */
export function costsOf(user: unknown): CostsView | undefined {
  const { costs } = notesOf(user);
  const [before, after] = [numbersOf(costs?.before), numbersOf(costs?.after)];
  return before && after && before.length === after.length ? { before, after } : undefined;
}

/** Numbers by name; what is none is left out. */
function countsOf(value: unknown): [string, number][] {
  if (typeof value !== "object" || value === null) return [];
  return Object.entries(value).filter((entry): entry is [string, number] => Number.isFinite(entry[1]));
}

/** The view over some steps in a row. */
export function sourcesView(steps: readonly LookedAt[], info: NamespaceInfo): SourcesView {
  const rows = new Map<string, { samples: number; tokens: number; faults: number; wanted: number }>();
  const row = (source: string): { samples: number; tokens: number; faults: number; wanted: number } => {
    const known = rows.get(source) ?? { samples: 0, tokens: 0, faults: 0, wanted: 0 };
    rows.set(source, known);
    return known;
  };
  let withSchedule = 0;
  let unit: SourcesView["unit"] = "tokens";
  let stepsWithLineage = 0;
  for (const { samples, user } of steps) {
    if (samples) stepsWithLineage++;
    for (const { source, tokens } of samples ?? []) {
      const counts = row(source);
      counts.samples++;
      counts.tokens += tokens;
    }
    const { schedule, faultCounts } = notesOf(user);
    const shares = countsOf(schedule?.shares);
    if (shares.length > 0) withSchedule++;
    if (schedule?.unit === "samples") unit = "samples";
    for (const [source, share] of shares) row(source).wanted += share;
    for (const [key, count] of countsOf(faultCounts))
      row(key.slice(0, Math.max(0, key.lastIndexOf(" ")))).faults += count;
  }
  const total = [...rows.values()].reduce((sum, counts) => sum + counts[unit], 0);
  const sources = [...rows]
    .map(
      ([source, counts]): SourceRow => ({
        source,
        samples: counts.samples,
        tokens: counts.tokens,
        share: total === 0 ? 0 : counts[unit] / total,
        wanted: withSchedule === 0 ? undefined : counts.wanted / withSchedule,
        faults: counts.faults,
      }),
    )
    .sort((a, b) => b.share - a.share)
    .slice(0, sourcesMax);
  const phase = notesOf(steps.at(-1)?.user).phase;
  return {
    from: steps[0]?.step ?? info.steps.end,
    to: info.steps.end,
    stepsWithLineage,
    unit,
    phase: typeof phase === "string" ? phase : undefined,
    sources,
    balance: steps.flatMap(({ step, user }) => {
      const { imbalance } = notesOf(user);
      const [before, after] = [imbalance?.before?.ranks, imbalance?.after?.ranks];
      if (typeof before !== "number" || typeof after !== "number") return [];
      return [{ step, before, after, costs: costsOf(user) }];
    }),
  };
}
