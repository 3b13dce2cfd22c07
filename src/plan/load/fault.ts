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
}

/** Where it happened. `shard`: the rest of a shard cannot be read. `sample`: one cannot be read. `transform`: a transform failed on one. `length`: one is too long. */
export type FaultStage = "source" | "shard" | "sample" | "transform" | "length";

/** What was left out, recorded with the batch that would have held it. JSON-safe. */
export interface Fault {
  readonly source: string;
  /** Of the sample; of the shard for stage "shard". */
  readonly id: string;
  readonly stage: FaultStage;
  readonly reason: string;
  readonly attempts: number;
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
  length: "LIMIT",
} as const satisfies Record<FaultStage, ErrorCode>;

/** The failure of a pipeline whose policy does not leave things out. */
export function stopFor({ source, id, stage, reason, attempts }: Fault, cause?: unknown): BatchWeaveError {
  const code = cause instanceof BatchWeaveError ? cause.code : codes[stage];
  return new BatchWeaveError(
    code,
    `Source ${source} failed at ${stage} ${id}${attempts > 1 ? ` (${attempts} attempts)` : ""}: ${reason.replace(/\.$/, "")}. Repair it, or say what to do with onFault: "skip" or "retry" in the source.`,
    { source, id, stage, attempts },
    cause,
  );
}

/** The text of whatever was thrown. */
export function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
