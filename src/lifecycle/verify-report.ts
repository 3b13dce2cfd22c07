/** What verify says. */
import { isBatchWeaveError } from "../errors.js";
import type { DeadCounts } from "./tally.js";

/** What is wrong, in one word. */
export type VerifyCode =
  /** A referenced object is not there. */
  | "missing"
  /** An object fails its checksum or shape, or is not what its reference says. */
  | "corrupt"
  /** A producer's batches are not contiguous, or do not end where its state says. */
  | "sequence"
  /** Versions or boundary markers that should follow each other do not. */
  | "chain"
  /** A checkpoint outside of the log. */
  | "checkpoint"
  /** A pin without its fork, or a fork without its pin. */
  | "pin"
  /** Slices whose encoding this platform cannot decode: not damaged as far as can be told. */
  | "unchecked";

/** One thing that is wrong. Warnings endanger nothing. */
export interface VerifyProblem {
  readonly severity: "error" | "warning";
  readonly code: VerifyCode;
  readonly message: string;
  readonly key?: string | undefined;
  readonly step?: number | undefined;
}

/** How much was looked at. */
export interface VerifyCounts {
  steps: number;
  batchObjects: number;
  bytes: number;
  /** Slices whose stored bytes passed and that could not be decoded here. */
  uncheckedSlices: number;
  indexObjects: number;
  tables: number;
  producers: number;
  checkpoints: number;
  pins: number;
  manifests: number;
  boundaryMarkers: number;
  /** Objects that nothing references and that the next reclaim may delete. */
  reclaimableObjects: number;
  /** Objects that nothing references yet: uploads under way, or not old enough. */
  pendingObjects: number;
}

/** What verify found. */
export interface VerifyReport {
  /** No errors; warnings may be there. */
  readonly ok: boolean;
  readonly level: "footers" | "bytes";
  readonly version: number;
  readonly steps: { readonly trim: number; readonly end: number };
  readonly counts: Readonly<VerifyCounts>;
  readonly problems: readonly VerifyProblem[];
  /** Further problems that are not listed. */
  readonly problemsOmitted: number;
  /** With `repair`: what was removed. */
  readonly repaired: DeadCounts | undefined;
}

/** Collects problems, up to a limit. */
export class Findings {
  readonly counts: VerifyCounts = {
    steps: 0,
    batchObjects: 0,
    bytes: 0,
    uncheckedSlices: 0,
    indexObjects: 0,
    tables: 0,
    producers: 0,
    checkpoints: 0,
    pins: 0,
    manifests: 0,
    boundaryMarkers: 0,
    reclaimableObjects: 0,
    pendingObjects: 0,
  };
  readonly problems: VerifyProblem[] = [];
  readonly #problemsMax: number;
  errors = 0;
  omitted = 0;

  constructor(problemsMax: number) {
    this.#problemsMax = problemsMax;
  }

  add(problem: VerifyProblem): void {
    if (problem.severity === "error") this.errors++;
    if (this.problems.length < this.#problemsMax) this.problems.push(problem);
    else this.omitted++;
  }

  error(code: VerifyCode, message: string, where: { key?: string; step?: number } = {}): void {
    this.add({ severity: "error", code, message, ...where });
  }

  /** True once the object was named in a finding about the step it holds. */
  isNamed(key: unknown): boolean {
    return this.problems.some((problem) => problem.step !== undefined && problem.key === key);
  }

  /** Runs one check; what it throws about damaged or missing objects is a finding, anything else passes on. */
  async check(work: () => Promise<void>, step?: number): Promise<void> {
    try {
      await work();
    } catch (error) {
      if (!isBatchWeaveError(error) || !(error.code in codes)) throw error;
      const key = error.details["key"];
      this.error(codes[error.code as keyof typeof codes], error.message, {
        ...(typeof key === "string" ? { key } : {}),
        ...(step === undefined ? {} : { step }),
      });
    }
  }
}

/** Refusals of the format and the log that mean damage. */
const codes = {
  CORRUPT: "corrupt",
  MISSING_OBJECT: "missing",
  UNSUPPORTED_FORMAT: "corrupt",
  UNSUPPORTED_ENCODING: "corrupt",
  WRONG_NAMESPACE: "corrupt",
} as const satisfies Record<string, VerifyCode>;
