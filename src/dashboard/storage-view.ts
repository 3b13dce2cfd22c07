/** What the kept part of a log takes, worked out from a few of its steps, and what keeps it. Pure. */
import type { NamespaceInfo } from "../index.js";
import type { StorageHold } from "./views.js";

/** So few steps are all counted. */
const exactMax = 256;
const placesMax = 8;
/** Steps of one index object: looking at all of them costs no more than looking at one. */
const runSteps = 64;
const holdsMax = 50;

/** Which steps are looked at: all of a short log, else runs spread evenly over it. */
export function samplePlaces(trim: number, end: number): { readonly from: number; readonly to: number }[] {
  if (end <= trim) return [];
  if (end - trim <= exactMax) return [{ from: trim, to: end }];
  const places = new Set<number>();
  for (let i = 0; i < placesMax; i++) {
    const at = trim + Math.floor(((end - 1 - trim) * i) / (placesMax - 1));
    places.add(at - (at % runSteps));
  }
  return [...places].map((from) => ({ from: Math.max(trim, from), to: Math.min(end, from + runSteps) }));
}

/** What keeps the log, the oldest first, each with the bytes that go once it is gone: up to the next hold. */
export function holdsOf({ checkpoints, forks, steps }: NamespaceInfo, bytesPerStep: number): StorageHold[] {
  const holds = checkpoints
    .map(({ group, id, step }) => ({
      kind: "checkpoint" as const,
      name: `${group} / ${id}`,
      from: step,
      to: steps.end,
    }))
    .sort((a, b) => a.from - b.from);
  const pinned = forks.map(({ uri, from, to }) => ({ kind: "fork" as const, name: uri, from, to }));
  const [oldest, second] = holds;
  // Only the oldest checkpoint decides the trim; the others keep nothing that it does not.
  const freed = oldest ? (second ?? { from: steps.end }).from - Math.max(steps.trim, oldest.from) : 0;
  const shown = [...holds, ...pinned].slice(0, holdsMax).map((hold) => {
    if (hold.kind === "fork") {
      const kept = Math.max(0, Math.min(hold.to, steps.trim) - hold.from);
      return { ...hold, bytes: Math.round(kept * bytesPerStep) };
    }
    return { ...hold, bytes: hold === oldest ? Math.round(Math.max(0, freed) * bytesPerStep) : 0 };
  });
  if (holds.length > 0) return shown;
  return [{ kind: "none", name: "no checkpoint", from: steps.trim, to: steps.end, bytes: 0 }, ...shown];
}
