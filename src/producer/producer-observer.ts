/** What a producer tells of itself: for metrics and people. */

/** Told what a producer does. */
export interface ProducerObserver {
  onAccept?(batch: { seq: number; bytes: number }): void;
  onUpload?(batch: { seq: number; bytes: number; durationMs: number; attempt: number }): void;
  onCommit?(batch: { seq: number; bytes: number; latencyMs: number; version: number }): void;
  /** It was closed, or has failed. */
  onEnd?(): void;
}
