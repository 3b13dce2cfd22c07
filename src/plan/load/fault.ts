/** What goes wrong with single samples and shards, and what is done about it. Nothing is left out without a record. */
import { BatchWeaveError, type ErrorCode } from "../../index.js";

/** `stop`: the pipeline fails. `skip`: leave it out, record it. `retry`: try again, then do as `afterRetries` says. */
export interface FaultPolicy {
  /** Default "stop". */
  readonly onFault?: "skip" | "retry" | "stop" | undefined;
  /** With "retry": further attempts at most. Default 3. */
  readonly retriesMax?: number | undefined;
  /** With "retry": wait before an attempt, doubled each time. Default 100. */
  readonly retryDelayMs?: number | undefined;
  /** With "retry": what to do when every attempt failed. Default "stop". */
  readonly afterRetries?: "skip" | "stop" | undefined;
  /**
   * Where faults are left out: the share of a source's samples, of the last one to two thousand and from a hundred on, and of its shards, from two on,
   * that may be faulty. More is a broken pipeline, and stops it. Default 0.1; 1 allows all.
   */
  readonly faultShareMax?: number | undefined;
}

/** {@link FaultPolicy.faultShareMax} where a source says nothing. */
export const faultShareDefault = 0.1;

/**
 * Where it happened. `source`: no sample of a source can be read. `shard`: the rest of a shard cannot be read. `sample`: one cannot be read.
 * `transform`: a transform failed on one, or made garbage of it. `empty`: one has no tokens. `length`: one is too long.
 */
export type FaultStage = "source" | "shard" | "sample" | "transform" | "empty" | "length";

/** What was left out, recorded with the batch that would have held it. JSON-safe. */
export interface Fault {
  readonly source: string;
  /** Of the sample; of the shard for stage "shard". */
  readonly id: string;
  readonly stage: FaultStage;
  readonly reason: string;
  readonly attempts: number;
  /** Tokens that were dropped, where that is known: of samples that are too long. */
  readonly tokens?: number | undefined;
}

/** How many there are, by source and stage. */
export function countFaults(faults: readonly Pick<Fault, "source" | "stage">[]): Record<string, number> {
  const counts = new Map<string, number>();
  for (const { source, stage } of faults) {
    const key = `${source} ${stage}`;
    counts.set(key, (counts.get(key) ?? 0) + 1);
  }
  return Object.fromEntries([...counts].sort(([a], [b]) => (a < b ? -1 : 1)));
}

/** How often to try, and whether to leave out in the end. */
export function attemptsOf(policy: FaultPolicy | undefined): {
  readonly attempts: number;
  readonly isSkipped: boolean;
} {
  const { onFault = "stop", retriesMax = 3, afterRetries = "stop" } = policy ?? {};
  if (onFault === "retry") return { attempts: 1 + retriesMax, isSkipped: afterRetries === "skip" };
  return { attempts: 1, isSkipped: onFault === "skip" };
}

/** What a fault is when nothing says it better: damaged data, or a transform that does not do for them. */
const codes = {
  source: "CORRUPT",
  shard: "CORRUPT",
  sample: "CORRUPT",
  transform: "INVALID_ARGUMENT",
  empty: "INVALID_ARGUMENT",
  length: "LIMIT",
} as const satisfies Record<FaultStage, ErrorCode>;

/** The failure of a pipeline whose policy does not leave things out. */
export function stopFor({ source, id, stage, reason, attempts }: Fault, cause?: unknown): BatchWeaveError {
  const code = cause instanceof BatchWeaveError ? cause.code : codes[stage];
  return new BatchWeaveError(
    code,
    `Source ${source} failed at ${stage} ${id}${attempts > 1 ? ` (${attempts} attempts)` : ""}: ${reason}. Repair it, or say what to do with onFault: "skip" or "retry" in the source.`,
    { source, id, stage, attempts },
    cause,
  );
}

/** The failure of a pipeline that cannot work at all: something it needs is missing. No policy leaves that out. */
export function stopForSetup(source: string, code: ErrorCode, reason: string): BatchWeaveError {
  return new BatchWeaveError(code, `Source ${source} cannot be prepared: ${reason}`, { source });
}

/** The text of whatever was thrown. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
