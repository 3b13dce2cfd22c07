/** How far producers are ahead of checkpoints, and when producers and ranks wait for each other. Pure. */
import { BatchWeaveError } from "../errors.js";
import type { Manifest } from "../format/index.js";
import { newestFirst } from "../log/index.js";

/** How far the log is ahead of the slowest training run. */
export interface Lag {
  /** Steps between the newest checkpoint of the slowest group, or the trim, and the end. */
  readonly steps: number;
  readonly from: number;
  /** The slowest group; undefined when no checkpoint is live. */
  readonly group: string | undefined;
  /** Groups with live checkpoints. */
  readonly groups: number;
  /** Steps between the two newest checkpoints of that group, where it has two. */
  readonly interval: number | undefined;
}

/** Measures the lag of a verified manifest. */
export function measureLag(manifest: Manifest, rows: number): Lag {
  const { trim, end } = manifest.steps;
  let slowest: { group: string; from: number; interval: number | undefined } | undefined;
  let groups = 0;
  for (const [group, { live }] of manifest.checkpoints) {
    const [newest, before] = newestFirst(live).map(([, { row }]) => Math.floor(row / rows));
    // A group whose checkpoints are all released is a finished run: it holds nothing up.
    if (newest === undefined) continue;
    groups++;
    const interval = before === undefined ? undefined : Math.abs(newest - before);
    if (!slowest || newest < slowest.from) slowest = { group, from: newest, interval };
  }
  const from = slowest?.from ?? trim;
  return { steps: end - from, from, group: slowest?.group, groups, interval: slowest?.interval };
}

/** What one side waits for, in a sentence, at the moment it begins to wait. */
export function describeLagWait(who: "producer" | "rank", maxLag: number, lag: Lag, end: number): string {
  const newest =
    lag.group === undefined
      ? `no checkpoint is live, and the log begins at step ${lag.from}`
      : `the newest checkpoint of group ${lag.group} is at step ${lag.from}`;
  const waits =
    who === "producer" ? "Waiting for a checkpoint" : `Waiting for step ${end}, and producers for a checkpoint`;
  return `${waits}: they may be maxLag = ${maxLag} steps ahead of it, the log ends at step ${end}, and ${newest}.`;
}

/** LAG_DEADLOCK, in the same words on both sides. */
export function lagDeadlock(who: string, manifest: Manifest, lag: Lag, waitedMs: number): BatchWeaveError {
  const maxLag = manifest.settings?.maxLag ?? 0;
  const interval =
    lag.interval !== undefined
      ? `${lag.interval} steps (as between the last two of group ${lag.group})`
      : "longer than that, or no rank registers any";
  const since =
    lag.group === undefined
      ? `no checkpoint is live (the log begins at step ${lag.from})`
      : `the newest checkpoint of group ${lag.group} is at step ${lag.from}`;
  return new BatchWeaveError(
    "LAG_DEADLOCK",
    `${who} waited ${Math.round(waitedMs / 1_000)} s: producers may be maxLag = ${maxLag} steps ahead of the newest checkpoint and the log ends at step ${manifest.steps.end}, while ${since}, so no batch and no checkpoint can come. The checkpoint interval is ${interval}. Set maxLag above the checkpoint interval, or register checkpoints more often.`,
    {
      maxLag,
      checkpointInterval: lag.interval,
      lag: lag.steps,
      checkpointStep: lag.from,
      group: lag.group,
      end: manifest.steps.end,
      waitedMs,
    },
  );
}
