/** What a version may do to checkpoints: never move one, bring one back, trim past one, or drop one that `keepLast` keeps; and when it may starve. */
import type { CheckpointGroup, Manifest } from "../../src/format/index.js";
import { measureLag } from "../../src/lifecycle/index.js";
import { Violation } from "./violation.js";

/** Checks the step from one version to the next, and gives the number of checkpoints it released. */
export function checkCheckpoints(
  before: Manifest,
  after: Manifest,
  rows: number,
  keepLast: number,
  isAsked: (name: string) => boolean,
): number {
  let released = 0;
  for (const [name, group] of after.checkpoints) {
    const old = before.checkpoints.get(name);
    for (const [id, mark] of group.live)
      if (mark.row < after.steps.trim * rows)
        throw new Violation("checkpoint", `version ${after.version} trims to ${after.steps.trim}, past ${name}/${id}`);
    if (old === group) continue;
    for (const [id, mark] of group.live) {
      const was = old?.live.get(id);
      if (was !== undefined && was.row !== mark.row)
        throw new Violation("checkpoint", `version ${after.version} moves ${name}/${id}`);
      if (was === undefined && old?.released.includes(id))
        throw new Violation("checkpoint", `version ${after.version} brings ${name}/${id} back`);
    }
    checkDropped(name, old, group, after.version, keepLast, isAsked);
    released += Math.max(0, group.released.length - (old?.released.length ?? 0));
  }
  return released;
}

/** Checkpoints go when newer ones of their group come, the oldest first and never more than `keepLast` asks for. */
function checkDropped(
  name: string,
  old: CheckpointGroup | undefined,
  group: CheckpointGroup,
  version: number,
  keepLast: number,
  isAsked: (name: string) => boolean,
): void {
  const known = new Set(old?.released);
  const dropped = group.released.filter((id) => !known.has(id));
  const unasked = dropped.filter((id) => !isAsked(`${name}/${id}`));
  const lost = [...(old?.live.keys() ?? [])].filter((id) => !group.live.has(id) && !dropped.includes(id));
  if (lost.length > 0) throw new Violation("checkpoint", `version ${version} forgets ${name}/${lost.join(", ")}`);
  // Whoever names a checkpoint may release it at any time.
  if (unasked.length === 0) return;
  const oldestKept = Math.min(...[...group.live.values()].map((mark) => mark.at));
  // One that was never live before came in this very version.
  for (const id of unasked)
    if ((old?.live.get(id)?.at ?? version) > oldestKept)
      throw new Violation("checkpoint", `version ${version} drops ${name}/${id} for older ones`);
  if (group.live.size < keepLast)
    throw new Violation("checkpoint", `version ${version} leaves ${group.live.size} of ${name}, not ${keepLast}`);
}

/** Nobody says that everybody waits for everybody while a batch may still be appended. True: this version says it. */
export function checkStarving(before: Manifest, after: Manifest, rows: number): boolean {
  if (after.starving === undefined || after.starving === before.starving) return false;
  const { steps } = measureLag(before, rows);
  const { maxLag } = before.settings ?? {};
  if (maxLag === undefined || steps < maxLag || after.starving !== before.steps.end || before.closed)
    throw new Violation("lag", `version ${after.version} starves at ${after.starving}: lag ${steps} of ${maxLag}`);
  return true;
}
