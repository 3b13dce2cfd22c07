/** Which of its ancestors' steps a fork shares, and under which numbers. Pure. */
import { asStep, indexFanout, type NamespaceSpec, type OriginRange, type Step } from "../format/index.js";
import { keptRanges, type SkipRange } from "./skip.js";

/** The plan of a fork, in terms of its parent. */
export interface ForkPlan {
  /** The first step shared, as the fork numbers it: below the first skipped step numbers stay what they are. */
  readonly trim: Step;
  /** The same step of the parent. */
  readonly parentTrim: Step;
  /** The first step of the fork's own. */
  readonly firstOwn: Step;
  /** Where the fork's tail begins: at a multiple of 64. */
  readonly tailStart: Step;
  /** All shared steps: fork step `at` is parent step `from`. */
  readonly shared: readonly OriginRange[];
  /** Shared steps below the tail that the parent itself inherited: by position in the parent's origins. */
  readonly inherited: readonly (readonly OriginRange[])[];
  /** Shared steps below the tail whose descriptors the parent's own index holds. */
  readonly own: readonly OriginRange[];
}

function range(at: number, count: number, from: number): OriginRange {
  return { at: asStep(at), count, from: asStep(from) };
}

/** Plans a fork of the steps `[trim, at)` of `parent` without `skip`, which is sorted and joined. */
export function planFork(parent: NamespaceSpec, trim: number, at: number, skip: readonly SkipRange[]): ForkPlan {
  const shared: OriginRange[] = [];
  // Skipped steps count whether the trim has passed them or not: how a fork numbers its steps must not depend on when it was made.
  const first = trim - skip.reduce((sum, { from, to }) => sum + Math.max(0, Math.min(to, trim) - from), 0);
  let next = first;
  for (const { from, to } of keptRanges(trim, at, skip)) {
    shared.push(range(next, to - from, from));
    next += to - from;
  }
  const tailStart = next - (next % indexFanout);
  const below = shared.map((r) => range(r.at, Math.min(r.count, tailStart - r.at), r.from)).filter((r) => r.count > 0);
  const origins = parent.fork?.origins ?? [];
  const inherited = origins.map((origin) => compose(below, origin.ranges));
  const ownStart = parent.fork ? parent.fork.tail.start : 0;
  const own = compose(below, [range(ownStart, Number.MAX_SAFE_INTEGER - ownStart, ownStart)]);
  return {
    trim: asStep(first),
    parentTrim: asStep(trim),
    firstOwn: asStep(next),
    tailStart: asStep(tailStart),
    shared,
    inherited,
    own,
  };
}

/** `outer` maps a fork's steps to its parent's, `inner` the parent's to an ancestor's: together the fork's to the ancestor's. */
function compose(outer: readonly OriginRange[], inner: readonly OriginRange[]): OriginRange[] {
  const found: OriginRange[] = [];
  for (const o of outer) {
    for (const i of inner) {
      const low = Math.max(o.from, i.at);
      const high = Math.min(o.from + o.count, i.at + i.count);
      if (low < high) found.push(range(o.at + low - o.from, high - low, i.from + low - i.at));
    }
  }
  return found.sort((a, b) => a.at - b.at);
}

/**
 * Where step `s` of an ancestor, or the next one that is shared, is here. `ranges` are an ancestor's: the first and the last have count 0 and
 * say where what is shared begins and ends. Undefined outside of that.
 */
export function translateStep(ranges: readonly OriginRange[], s: number): { step: number; exact: boolean } | undefined {
  const [first, ...others] = ranges;
  if (!first || s < first.from) return undefined;
  for (const { at, count, from } of others) {
    if (count === 0 ? from < s : from + count <= s) continue;
    return s < from ? { step: at, exact: false } : { step: at + s - from, exact: true };
  }
  return undefined;
}

/** How the parent's and its ancestors' steps are numbered in the fork: what `namespace.json` says for cursors and for people. */
export function planAncestors(
  parent: NamespaceSpec,
  parentUri: string,
  plan: ForkPlan,
  at: number,
): { uuid: string; uri: string; ranges: OriginRange[] }[] {
  const direct = [range(plan.trim, 0, plan.parentTrim), ...plan.shared, range(plan.firstOwn, 0, at)];
  const further = (parent.fork?.ancestors ?? []).flatMap(({ uuid, uri, ranges }) => {
    /** The ancestor's step that is step `s` of the parent; its end is the parent's first own step. */
    const ancestorStep = (s: number): number | undefined => {
      const found = ranges.find((r) => (r.count === 0 ? s === r.at : s >= r.at && s < r.at + r.count));
      return found && found.from + s - found.at;
    };
    const begin = ancestorStep(plan.parentTrim);
    const end = ranges.at(-1);
    // The fork may end before what the ancestor shares with the parent does, or begin after it.
    const cut = ancestorStep(at);
    const next = cut === undefined ? end && translateStep(direct, end.at)?.step : plan.firstOwn;
    const until = cut ?? end?.from;
    if (begin === undefined || next === undefined || until === undefined) return [];
    return [
      { uuid, uri, ranges: [range(plan.trim, 0, begin), ...compose(plan.shared, ranges), range(next, 0, until)] },
    ];
  });
  return [{ uuid: parent.uuid, uri: parentUri, ranges: direct }, ...further];
}

/** Parent step of a fork step that is shared. */
export function parentStep(plan: ForkPlan, step: number): Step | undefined {
  for (const r of plan.shared) if (step >= r.at && step < r.at + r.count) return asStep(r.from + step - r.at);
  return undefined;
}
