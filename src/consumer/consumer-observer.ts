/** What a consumer tells while it works. Everything is optional, nothing is read back. */

/** Told when a share is handed out. */
export interface ShareEvent {
  readonly iteration: number;
  /** Bytes of the share's slices. */
  readonly bytes: number;
  /** Exposed data wait: how long `next()` blocked, in ms. */
  readonly waitMs: number;
  /** How long this share's reads took, most of it ahead of time, in ms. */
  readonly readMs: number;
  /** Visible rows after this iteration. */
  readonly lagRows: number;
  /** The first step of the next iteration. */
  readonly step: number;
}

/** Told after looking for a newer manifest. */
export interface PollEvent {
  readonly version: number;
  /** Whether there was one. */
  readonly moved: boolean;
  /** The first step that is not visible. */
  readonly end: number;
}

/** Told when `next()` begins to wait for a step that is not visible yet. */
export interface WaitEvent {
  readonly iteration: number;
  /** The first step that is missing. */
  readonly step: number;
}

/** Callbacks of a consumer. They must not throw. */
export interface ConsumerObserver {
  /** `next()` begins, and ends, with a share or without. */
  onNext?(): void;
  onNextEnd?(): void;
  onShare?(event: ShareEvent): void;
  onPoll?(event: PollEvent): void;
  onWait?(event: WaitEvent): void;
}
