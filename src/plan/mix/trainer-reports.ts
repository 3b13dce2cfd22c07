/** Numbers that trainers report, for a mix callback: the newest report beside the training log, looked at now and then. */
import {
  isBatchWeaveError,
  makeCursor,
  type Namespace,
  type NamespaceOptions,
  openNamespace,
  reportLogUri,
  systemEnv,
} from "../../index.js";

/** How reports are read. */
export interface TrainerReportSettings extends NamespaceOptions {
  /** Between two looks at least. Default 5,000. */
  readonly pollMs?: number | undefined;
}

/** Old reports are let go of after so many. */
const keptMax = 256;

/**
 * Gives `metrics` of a pipeline what its trainers report (`consumer.report`, `dataset.report`): `metrics: trainerReports("s3://train/runs/7b")`. The values of the
 * newest report, and as `step` the step it was made at; nothing before the first. A store that fails now and then costs nothing but freshness.
 */
export function trainerReports(
  uri: string,
  settings: TrainerReportSettings = {},
): (step: number) => Promise<Readonly<Record<string, number>>> {
  const { pollMs = 5_000, ...options } = settings;
  const env = options.env ?? systemEnv;
  let ns: Namespace | undefined;
  let known: Readonly<Record<string, number>> = {};
  let [lookedMs, seen, trimmed] = [Number.NEGATIVE_INFINITY, 0, 0];
  const look = async (): Promise<void> => {
    ns ??= await openNamespace(reportLogUri(uri), options);
    const { steps } = await ns.info();
    if (steps.end === seen || steps.end === steps.trim) return;
    const bytes = await ns.readSlice({ step: steps.end - 1, row: 0, chunk: 0 });
    known = parseReport(bytes) ?? known;
    seen = steps.end;
    if (seen - trimmed < keptMax) return;
    trimmed = seen;
    await ns.checkpoint(`seen-${seen}`, makeCursor(ns.uuid, seen - 1, 0), { group: "reader", keepLast: 1 });
    await ns.reclaim();
  };
  return async () => {
    if (env.monotonic() - lookedMs < pollMs) return known;
    lookedMs = env.monotonic();
    await look().catch((error: unknown) => {
      // No trainer has reported yet, or the store does not answer: what was known before is good enough. A wrong address is not.
      if (isBatchWeaveError(error) && error.remedy === "fix" && error.code !== "NO_NAMESPACE") throw error;
    });
    return known;
  };
}

/** The numbers of a report; undefined where it is none. */
function parseReport(bytes: Uint8Array): Readonly<Record<string, number>> | undefined {
  try {
    const { v, step, values } = JSON.parse(Buffer.from(bytes).toString("utf8")) as Record<string, unknown>;
    if (v !== 1 || typeof values !== "object" || values === null) return undefined;
    const numbers = Object.entries(values).filter((entry): entry is [string, number] => typeof entry[1] === "number");
    return { ...Object.fromEntries(numbers), step: Number(step) };
  } catch {
    return undefined;
  }
}
