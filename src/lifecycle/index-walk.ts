/** Walking the step index of a manifest or a pin's root: every object that covers a range of steps, none missing. */

import { inParallel } from "../flow/index.js";
import {
  asStep,
  corrupt,
  type Descriptor,
  decodeNode,
  decodeSegment,
  type IndexLevel,
  type IndexNode,
  indexFanout,
  type NodeRef,
  nodeRefKey,
  type Run,
  stepsPerNode,
} from "../format/index.js";
import type { Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** What can be walked: a manifest, or the root that a pin holds. */
interface StepTree {
  readonly index: readonly IndexLevel[];
  readonly tail: Run;
}

/** A range of steps `[from, to)` of a tree of the log's own namespace. */
interface StepRange {
  readonly tree: StepTree;
  readonly from: number;
  readonly to: number;
}

/** An index object and the first step it covers. Level 0 are segments. */
interface IndexObject {
  readonly ref: NodeRef;
  readonly level: number;
  readonly start: number;
}

/**
 * Every index object that covers steps of the range, parents before children. Throws when one is missing or the sealed part of the
 * range is not covered: the reclaimer must know all of it.
 */
export async function indexObjects(log: Log, range: StepRange, options?: CallOptions): Promise<IndexObject[]> {
  const to = Math.min(range.to, range.tree.tail.start);
  if (range.from >= to) return [];
  const found: IndexObject[] = [];
  for (let level = 0; level < range.tree.index.length; level++) {
    const { start, refs } = range.tree.index[level] as IndexLevel;
    for (let i = 0; i < refs.length; i++)
      await descend(log, refs[i] as NodeRef, level, start + i, { from: range.from, to }, found, options);
  }
  const segments = found.filter((object) => object.level === 0).length;
  const expected = Math.ceil(to / indexFanout) - Math.floor(range.from / indexFanout);
  if (segments !== expected)
    corrupt(
      `The step index of ${log.store.uri}`,
      `steps ${range.from} to ${to - 1} need ${expected} segments and it names ${segments}`,
    );
  return found;
}

async function descend(
  log: Log,
  ref: NodeRef,
  level: number,
  number: number,
  range: { from: number; to: number },
  found: IndexObject[],
  options: CallOptions | undefined,
): Promise<void> {
  const steps = stepsPerNode(level);
  const start = number * steps;
  if (start >= range.to || start + steps <= range.from) return;
  found.push({ ref, level, start });
  if (level === 0) return;
  const from = { store: log.store, namespace: log.spec.uuid };
  const node: IndexNode = await log.index.readObject(from, ref, decodeNode, options);
  if (node.level !== level || node.start !== start) corrupt(nodeRefKey(ref), `it does not cover step ${start}`);
  for (let i = 0; i < indexFanout; i++) {
    const child = node.refs[i];
    if (child) await descend(log, child, level - 1, number * indexFanout + i, range, found, options);
  }
}

/** Calls `visit` with every descriptor of the range; reads a segment per 64 steps, a few at a time. Not in order. */
export async function visitSteps(
  log: Log,
  range: StepRange,
  visit: (descriptor: Descriptor, step: number) => void,
  inFlightMax: number,
  options?: CallOptions,
): Promise<void> {
  const segments = (await indexObjects(log, range, options)).filter((object) => object.level === 0);
  await inParallel(segments, inFlightMax, async ({ ref, start }) => {
    visitRun(await readSegment(log, ref, start, options), range, visit);
  });
  visitRun(range.tree.tail, range, visit);
}

/** Reads a segment and checks that it is the one expected. */
async function readSegment(log: Log, ref: NodeRef, start: number, options?: CallOptions): Promise<Run> {
  const from = { store: log.store, namespace: log.spec.uuid };
  const run: Run = await log.index.readObject(from, ref, decodeSegment, options);
  if (run.start !== start) corrupt(nodeRefKey(ref), `it holds step ${run.start}, and the index expects ${start}`);
  return run;
}

function visitRun(
  run: Run,
  { from, to }: { from: number; to: number },
  visit: (descriptor: Descriptor, step: number) => void,
): void {
  const first = Math.max(0, from - run.start);
  const end = Math.min(run.batches.length, to - run.start);
  for (let i = first; i < end; i++) visit(run.batches[i] as Descriptor, asStep(run.start + i));
}
