/**
 * The one error class, its table of codes, and the guard.
 *
 * Owns: every code a user can meet, what the user must do about it (`remedy`) and the CLI's exit status.
 * May import: nothing.
 * Promises: a message says what happened, to what, and what to do; abort reasons are never wrapped in it.
 */

/** What the user must do: try again, load newer state, stop this process, fix the input, or report a defect. */
export type Remedy = "retry" | "refresh" | "stop" | "fix" | "report";

/** Every code, in one table. `exit` is the CLI's exit status (2: the input or the store's content is at fault; 1: anything else). */
export const errorCodes = {
  INVALID_ARGUMENT: { remedy: "fix", exit: 2 },
  UNKNOWN_SCHEME: { remedy: "fix", exit: 2 },
  MISSING_PACKAGE: { remedy: "fix", exit: 2 },
  NO_NAMESPACE: { remedy: "fix", exit: 2 },
  GRID_MISMATCH: { remedy: "fix", exit: 2 },
  NOT_EMPTY: { remedy: "fix", exit: 2 },
  MESH_MISMATCH: { remedy: "fix", exit: 2 },
  WRONG_NAMESPACE: { remedy: "fix", exit: 2 },
  UNSUPPORTED_FORMAT: { remedy: "fix", exit: 2 },
  UNSUPPORTED_ENCODING: { remedy: "fix", exit: 2 },
  /** Bytes that fail their checksum or their shape. */
  CORRUPT: { remedy: "report", exit: 2 },
  /** An object that live state references is not there. */
  MISSING_OBJECT: { remedy: "report", exit: 2 },
  /** A newer incarnation holds this producer id. Pending batches are neither in nor out until the head is read again. */
  FENCED: { remedy: "stop", exit: 1 },
  /** The log was closed; nothing can be appended. */
  CLOSED: { remedy: "stop", exit: 1 },
  /** The namespace was deleted while this process had it open, or its deletion is under way. */
  DELETED: { remedy: "stop", exit: 1 },
  /** The same seq with other bytes, or a gap in the sequence. */
  SEQUENCE_CONFLICT: { remedy: "report", exit: 1 },
  /** An upload fell behind the orphan cutoff and its bytes are no longer held: open again and continue from the resume point. */
  UPLOAD_EXPIRED: { remedy: "retry", exit: 1 },
  /** Rows that the reader wants were trimmed. */
  RECLAIMED: { remedy: "fix", exit: 2 },
  CHECKPOINT_RELEASED: { remedy: "fix", exit: 2 },
  CHECKPOINT_CONFLICT: { remedy: "fix", exit: 2 },
  NO_CHECKPOINT: { remedy: "fix", exit: 2 },
  /** A documented limit was reached (live checkpoints, pins, resume point bytes...). */
  LIMIT: { remedy: "fix", exit: 2 },
  /** Waited too long for a batch. */
  WAIT_TIMEOUT: { remedy: "retry", exit: 1 },
  /** Producers wait for a checkpoint while ranks wait for a batch: maxLag is shorter than the checkpoint interval. */
  LAG_DEADLOCK: { remedy: "fix", exit: 1 },
  /** The store breaks a rule we depend on, such as ignoring preconditions. */
  UNSAFE_STORE: { remedy: "fix", exit: 2 },
  STORE_DENIED: { remedy: "fix", exit: 2 },
  STORE_FULL: { remedy: "fix", exit: 1 },
  STORE_UNAVAILABLE: { remedy: "retry", exit: 1 },
  /** What runs a fleet (Kubernetes, Slurm, Ray) could not be reached, or refused. */
  ENGINE_FAILED: { remedy: "fix", exit: 1 },
  /** Commits kept losing for longer than allowed. */
  CONTENDED: { remedy: "retry", exit: 1 },
} as const;

/** One of the codes of {@link errorCodes}. */
export type ErrorCode = keyof typeof errorCodes;

/** JSON-safe facts about the failure: keys, offsets, expected and found values. */
export type ErrorDetails = Readonly<Record<string, unknown>>;

/** Everything BatchWeave throws on purpose. */
export class BatchWeaveError extends Error {
  override readonly name = "BatchWeaveError";
  readonly code: ErrorCode;
  readonly details: ErrorDetails;

  constructor(code: ErrorCode, message: string, details: ErrorDetails = {}, cause?: unknown) {
    super(withoutDoubleStops(message), cause === undefined ? undefined : { cause });
    this.code = code;
    this.details = details;
  }

  /** What the user must do. */
  get remedy(): Remedy {
    return errorCodes[this.code].remedy;
  }

  /** The CLI's exit status for this error. */
  get exit(): 1 | 2 {
    return errorCodes[this.code].exit;
  }
}

/** A message may hold another sentence, which brought its own full stop: "it failed: no room.. Try again". An ellipsis and a path stay as they are. */
function withoutDoubleStops(message: string): string {
  return message.replace(/(?<=[^\s./])\.\.(?=\s|$)/g, ".");
}

/** Narrows a caught value, optionally to one code: `isBatchWeaveError(e, "FENCED")`. */
export function isBatchWeaveError(e: unknown, code?: ErrorCode): e is BatchWeaveError {
  return e instanceof BatchWeaveError && (code === undefined || e.code === code);
}

/** A value of any kind for a message. What JSON from elsewhere holds may have a `toString` of its own, or no end. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 200 ? `${value.slice(0, 200)}…` : value);
  if (typeof value === "function") return "a function";
  if (typeof value !== "object" || value === null) return String(value);
  return Array.isArray(value) ? "a list" : "an object";
}
