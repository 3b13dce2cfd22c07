/** Lineage look-ups: which samples a step held, and which steps held a sample. */
import { BatchWeaveError } from "../errors.js";
import { inParallel } from "../flow/index.js";
import {
  asStep,
  batchKey,
  checkBlock,
  decodeFooter,
  decodeLineage,
  decodeMetadata,
  type Extent,
  type LineageSample,
  lineageBlock,
  type Manifest,
} from "../format/index.js";
import type { BatchPlace, Log } from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** The samples of a step, in the batch's order; undefined when its producer recorded none. Four small reads, none of them a slice. */
export async function readSamples(
  log: Log,
  manifest: Manifest,
  step: number,
  options?: CallOptions,
): Promise<LineageSample[] | undefined> {
  const place = await log.locate(manifest, asStep(step), options);
  const { descriptor, namespace } = place;
  const last = descriptor.extents.length - 1;
  const key = batchKey(descriptor, last);
  const extent = descriptor.extents[last] as Extent;
  const read = (start: number, length: number): Promise<Uint8Array> => readRange(place, key, start, length, options);
  const footerBytes = await read(extent.table, extent.size - extent.table);
  const firstCell = descriptor.extents.slice(0, last).reduce((sum, { cells }) => sum + cells, 0);
  const footer = decodeFooter(footerBytes, key, namespace, descriptor, { extent: last, firstCell }, extent);
  const { metadata: block } = footer;
  const lineage = lineageBlock(decodeMetadata(await read(block.offset, block.length), key, block), key);
  if (!lineage) return undefined;
  const bytes = await read(lineage.offset, lineage.length);
  checkBlock(bytes, key, lineage, "lineage");
  return decodeLineage(bytes, key);
}

async function readRange(
  { store }: BatchPlace,
  key: string,
  start: number,
  length: number,
  options?: CallOptions,
): Promise<Uint8Array> {
  const bytes = await store.getRange(key, start, length, options);
  if (bytes) return bytes;
  throw new BatchWeaveError(
    "MISSING_OBJECT",
    `${key} is referenced by the log and is not in ${store.uri}. If a reclaim passed meanwhile, its step is gone; otherwise restore it.`,
    { key },
  );
}

/** Where to look for a sample. */
export interface FindSettings {
  /** First step. Default: the trim. */
  readonly from?: number | undefined;
  /** First step not searched. Default: the end. */
  readonly to?: number | undefined;
  /** Only this source. Default: any. */
  readonly source?: string | undefined;
  /** Stop after so many. Default 1,000. */
  readonly matchesMax?: number | undefined;
  /** Steps read at a time. Default 16. */
  readonly stepsInFlightMax?: number | undefined;
}

/** One occurrence. */
export interface SampleMatch {
  readonly step: number;
  /** Place among the samples of that step. */
  readonly index: number;
  readonly sample: LineageSample;
}

/** What {@link findSample} found. */
export interface FindResult {
  /** By step. */
  readonly matches: readonly SampleMatch[];
  /** Steps searched, from `from` up to `to`. */
  readonly from: number;
  readonly to: number;
  /** Of these, steps without lineage: a sample may have been in them. */
  readonly stepsWithoutLineage: number;
  /** The search stopped at `matchesMax`. */
  readonly truncated: boolean;
}

const windowSteps = 1_024;

/** Whether a batch's sample is the one with that id, or a piece of it (FORMAT.md, section 12). */
function isOf(found: string, id: string): boolean {
  return found === id || (found.startsWith(`${id}#`) && /^#\d+\/\d+$/.test(found.slice(id.length)));
}

/** Finds the steps that held a sample, or pieces of it. It reads the lineage of every step in between: name a range when you can. */
export async function findSample(
  log: Log,
  manifest: Manifest,
  id: string,
  settings: FindSettings = {},
  options?: CallOptions,
): Promise<FindResult> {
  const { trim, end } = manifest.steps;
  const from = Math.max(settings.from ?? trim, trim);
  const to = Math.min(settings.to ?? end, end);
  const matchesMax = settings.matchesMax ?? 1_000;
  const matches: SampleMatch[] = [];
  let stepsWithoutLineage = 0;
  let searched = from;
  for (; searched < to && matches.length < matchesMax; searched = Math.min(searched + windowSteps, to)) {
    const steps = Array.from({ length: Math.min(windowSteps, to - searched) }, (_, i) => searched + i);
    const found: SampleMatch[] = [];
    await inParallel(steps, settings.stepsInFlightMax ?? 16, async (step) => {
      const samples = await readSamples(log, manifest, step, options);
      if (!samples) stepsWithoutLineage++;
      samples?.forEach((sample, index) => {
        if (isOf(sample.id, id) && (settings.source === undefined || sample.source === settings.source))
          found.push({ step, index, sample });
      });
    });
    matches.push(...found.sort((a, b) => a.step - b.step || a.index - b.index));
  }
  return {
    matches: matches.slice(0, matchesMax),
    from,
    to: Math.max(from, searched),
    stepsWithoutLineage,
    truncated: matches.length > matchesMax || searched < to,
  };
}
