/** What the server answers, as JSON. The page is compiled against these. Counts and lists are bounded; `more` says how many are left out. */

/** A failure, as the page shows it. */
export interface FailureView {
  readonly error: { readonly code: string; readonly message: string };
}

/** `/api/overview`: every namespace at or below the place. */
export interface OverviewView {
  readonly root: string;
  /** The place is a namespace itself. */
  readonly isNamespace: boolean;
  readonly namespaces: readonly OverviewRow[];
  readonly more: number;
  /** Tokens can be shown as text. */
  readonly tokenizer: string | undefined;
}

export interface OverviewRow {
  readonly uri: string;
  /** Below the place, for people. */
  readonly name: string;
  readonly problem?: string | undefined;
  readonly grid?: { readonly rows: number; readonly chunks: number } | undefined;
  readonly order?: string | undefined;
  readonly closed?: boolean | undefined;
  readonly steps?: { readonly trim: number; readonly end: number } | undefined;
  readonly lastCommitMs?: number | undefined;
  readonly producers?: number | undefined;
  readonly checkpoints?: number | undefined;
  readonly forkOf?: string | undefined;
}

interface CheckpointView {
  readonly group: string;
  readonly id: string;
  readonly step: number;
  readonly iteration: number;
}

interface ForkView {
  readonly uri: string;
  readonly from: number;
  readonly to: number;
}

/** `/api/log`: the state at the head. */
export interface LogView {
  readonly uri: string;
  readonly uuid: string;
  readonly grid: { readonly rows: number; readonly chunks: number };
  readonly order: string;
  readonly createdMs: number;
  readonly version: number;
  readonly closed: boolean;
  readonly steps: { readonly trim: number; readonly end: number };
  readonly lastCommit: { readonly by: string; readonly kind: string | undefined; readonly timeMs: number };
  readonly waiting: { readonly batches: number; readonly missingStep: number; readonly lane: string } | undefined;
  readonly maxLag: number | undefined;
  readonly boundary: number;
  readonly warning: string | undefined;
  readonly producers: number;
  readonly silentTables: number;
  readonly checkpoints: readonly CheckpointView[];
  readonly checkpointsMore: number;
  readonly forks: readonly ForkView[];
  readonly forksMore: number;
  readonly origins: readonly { readonly uri: string; readonly steps: number }[];
  /** Steps between the newest checkpoint of the slowest group and the end; undefined when no checkpoint is live. */
  readonly lag: { readonly group: string; readonly steps: number } | undefined;
  /** The server's clock. */
  readonly nowMs: number;
  /** What was seen at earlier looks, the oldest first. */
  readonly looks: readonly LookView[];
}

/** One look at the head. */
export interface LookView {
  readonly atMs: number;
  readonly end: number;
  readonly version: number;
  readonly lag: number | undefined;
  /** How long the newest batch took from its making to its commit. */
  readonly freshMs: number | undefined;
}

/** `/api/history`: versions of the log spread over its life, the oldest first. */
export interface HistoryView {
  readonly commits: readonly { readonly version: number; readonly timeMs: number; readonly end: number }[];
}

/** `/api/steps?from=`: some batches in a row. */
export interface StepsView {
  readonly from: number;
  readonly batches: readonly {
    readonly step: number;
    readonly producer: string;
    readonly seq: number;
    readonly bytes: number;
    readonly origin?: string | undefined;
  }[];
}

/** `/api/fleet?q=&page=`: producers and all processes that left a pulse. */
export interface FleetView {
  readonly total: number;
  readonly matching: number;
  readonly page: number;
  readonly pageSize: number;
  readonly producers: readonly ProducerRow[];
  readonly pulses: readonly PulseRow[];
  readonly pulsesMore: number;
  /** Pulses by role, and how many of them are late. */
  readonly roles: readonly { readonly role: string; readonly count: number; readonly late: number }[];
}

export interface ProducerRow {
  readonly id: string;
  readonly epoch: number;
  readonly seq: number;
  readonly version: number;
  readonly lastCommitMs: number | undefined;
  /** Who committed its last batch, if not itself. */
  readonly carriedBy: string | undefined;
  /** The log stands still until this lane's next batch is there. */
  readonly isMissing: boolean;
}

interface PulseRow {
  readonly role: string;
  readonly name: string;
  readonly atMs: number;
  readonly everyMs: number;
  readonly isLate: boolean;
  /** It ran on the dashboard's own machine, and is not there any more. */
  readonly isDead: boolean;
  readonly host: string | undefined;
  readonly startedMs: number | undefined;
  readonly facts: Readonly<Record<string, unknown>>;
}

/** `/api/health`: what holds the log up, from two looks at it and the pulses of all processes. */
export interface HealthView {
  readonly sentence: string;
  readonly warnings: readonly string[];
  /** Until the log is complete, where a pulse says how long it is to be. */
  readonly etaMs: number | undefined;
  readonly sources: readonly {
    readonly source: string;
    readonly samples: number;
    readonly perSecond: number;
    /** Share of the time for which batches waited for it. */
    readonly waitShare: number;
    readonly readMs: number;
    readonly transformMs: number;
    readonly faults: number;
  }[];
}

/** `/api/sources`: what the newest steps are made of. */
export interface SourcesView {
  readonly from: number;
  readonly to: number;
  /** Steps whose producers recorded their samples. */
  readonly stepsWithLineage: number;
  readonly unit: "samples" | "tokens";
  readonly phase: string | undefined;
  readonly sources: readonly SourceRow[];
  /** Balance of each of these steps. */
  readonly balance: readonly {
    readonly step: number;
    readonly before: number;
    readonly after: number;
    readonly costs: CostsView | undefined;
  }[];
}

export interface CostsView {
  readonly before: readonly number[];
  readonly after: readonly number[];
}

export interface SourceRow {
  readonly source: string;
  readonly samples: number;
  readonly tokens: number;
  readonly share: number;
  /** By the schedule; undefined when the batches do not tell. */
  readonly wanted: number | undefined;
  readonly faults: number;
}

/** `/api/storage`: what is kept, why, and what it costs. */
export interface StorageView {
  readonly steps: { readonly trim: number; readonly end: number };
  /** Bytes of a step, over `sampledSteps` of them. */
  readonly bytesPerStep: number;
  readonly sampledSteps: number;
  readonly isExact: boolean;
  readonly bytes: number;
  readonly dollarsPerGbMonth: number;
  readonly dollarsPerMonth: number;
  /** What keeps the oldest steps: each holds the log from its step on. */
  readonly holds: readonly StorageHold[];
  readonly boundary: number;
  readonly warning: string | undefined;
}

export interface StorageHold {
  readonly kind: "checkpoint" | "fork" | "none";
  readonly name: string;
  readonly from: number;
  readonly to: number;
  /** Bytes that only this one keeps: what its end would set free. */
  readonly bytes: number;
}

/** `/api/step?step=`. */
export interface StepView {
  readonly step: number;
  readonly producer: string;
  readonly epoch: number;
  readonly seq: number;
  readonly contentType: string;
  readonly createdMs: number | undefined;
  readonly storedBytes: number;
  readonly keys: readonly string[];
  readonly keysMore: number;
  readonly origin: string | undefined;
  readonly user: unknown;
  readonly slices: readonly {
    readonly row: number;
    readonly chunk: number;
    readonly bytes: number;
    readonly storedBytes: number;
    readonly encoding: string;
  }[];
  readonly slicesMore: number;
  readonly samples:
    | readonly {
        readonly source: string;
        readonly id: string;
        readonly tokens: number;
        readonly row?: number | undefined;
      }[]
    | undefined;
  readonly samplesTotal: number;
  readonly costs: CostsView | undefined;
}

/** `/api/slice?step=&row=&chunk=`: what one slice holds. */
export type SliceView =
  | {
      readonly kind: "tensors";
      readonly bytes: number;
      readonly metadata: Readonly<Record<string, string>>;
      readonly tensors: readonly {
        readonly name: string;
        readonly dtype: string;
        readonly shape: readonly number[];
        readonly first: readonly string[];
        readonly min: string | undefined;
        readonly max: string | undefined;
      }[];
      readonly texts: readonly TextView[];
      readonly images: readonly ImageView[];
      readonly imagesMore: number;
    }
  | { readonly kind: "samples"; readonly bytes: number; readonly source: string; readonly ids: readonly string[] }
  | { readonly kind: "text"; readonly bytes: number; readonly text: string; readonly truncated: boolean }
  | { readonly kind: "bytes"; readonly bytes: number; readonly hex: string; readonly truncated: boolean };

/** A document of a packed sequence: its tokens, and as text where a tokenizer is known. */
export interface TextView {
  readonly sequence: number;
  readonly tokens: number;
  readonly ids: readonly number[];
  readonly text: string | undefined;
  readonly truncated: boolean;
}

/** An image: an encoded file, or raw RGB. */
export interface ImageView {
  readonly index: number;
  readonly type: string;
  readonly width: number;
  readonly height: number;
  /** Base64. */
  readonly data: string;
}

/** `/api/family`: a namespace, its ancestors, and its forks. */
export interface FamilyView {
  readonly nodes: readonly FamilyNode[];
  readonly more: number;
}

export interface FamilyNode {
  readonly uri: string;
  readonly parent: string | undefined;
  readonly isSelf: boolean;
  /** Steps that it shares with its parent. */
  readonly shared: { readonly from: number; readonly to: number } | undefined;
  readonly steps: { readonly trim: number; readonly end: number } | undefined;
  readonly closed: boolean | undefined;
  readonly problem: string | undefined;
}
