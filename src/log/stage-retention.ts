/** Staging of what may be deleted and what must not: trim, cutoff, pins, settings. */
import { BatchWeaveError } from "../errors.js";
import {
  asStep,
  asVersion,
  encodeRoot,
  type ManifestSettings,
  type NodeRef,
  type Pin,
  type Step,
  type Version,
} from "../format/index.js";
import type { Draft } from "./draft.js";

/** Pins of a namespace at most: they are inline in every manifest. */
const pinsMax = 256;

/**
 * Raises the trim to the lowest live checkpoint of the very state being committed; it never falls and never passes the end.
 * Without any live checkpoint it stays: no rank has said what may go.
 */
export function stageTrim(draft: Draft, rows: number): void {
  let lowest = Number.POSITIVE_INFINITY;
  for (const { live } of draft.checkpoints.values())
    for (const { row } of live.values()) lowest = Math.min(lowest, Math.floor(row / rows));
  if (lowest === Number.POSITIVE_INFINITY) return;
  draft.trim = asStep(Math.max(draft.trim, Math.min(lowest, draft.end)));
}

/** Raises the cutoff, to the base's version at most: below it nothing can be staged from this commit on. */
export function stageCutoff(draft: Draft, wanted: Version): void {
  draft.orphanCutoff = asVersion(Math.max(draft.orphanCutoff, Math.min(wanted, draft.base.version)));
}

/** Who pins, and what. */
export interface NewPin {
  /** Uuid of the fork; it names the pin. */
  readonly fork: string;
  readonly uri: string;
  readonly created: number;
  readonly from: Step;
  readonly to: Step;
}

/**
 * Pins steps `[from, to)` of this very base with a root of their own. Undefined: the trim has passed `from`, so not all of it is
 * live, and the caller must plan again.
 */
export function stagePin(draft: Draft, pin: NewPin): NodeRef | undefined {
  const { trim, end } = draft.base.steps;
  if (pin.from < trim || pin.to > end) return undefined;
  assertPinRoom(draft);
  const { index, tail } = draft.base;
  const root = draft.seal(encodeRoot(draft.base.namespace, { index, tail }));
  draft.pins.set(pin.fork, { ...pin, confirmed: false, root });
  return root;
}

/**
 * Pins what `holder`, a fork, already holds here, for a fork of it. What the holder's pin reaches is live in this base, so it is
 * live for the copy too. False: the holder has no such pin (any more).
 */
export function stagePinCopy(draft: Draft, holder: string, root: NodeRef, pin: Omit<NewPin, "from" | "to">): boolean {
  const held = draft.base.pins.get(holder);
  if (!held || !sameRef(held.root, root)) return false;
  assertPinRoom(draft);
  draft.pins.set(pin.fork, { ...pin, confirmed: false, from: held.from, to: held.to, root: held.root });
  return true;
}

/** Says that the fork exists. "gone": the pin was removed first, and the fork must not be used. */
export function stageConfirmation(draft: Draft, fork: string): "done" | "staged" | "gone" {
  const pin = draft.pins.get(fork);
  if (!pin) return "gone";
  if (pin.confirmed) return "done";
  draft.pins.set(fork, { ...pin, confirmed: true });
  return "staged";
}

/** Removes a pin. With `unconfirmed`, only while it still is: a fork that was confirmed meanwhile keeps it. True: there is nothing to do. */
export function stageUnpin(draft: Draft, fork: string, unconfirmed: boolean): boolean {
  const pin: Pin | undefined = draft.pins.get(fork);
  if (!pin || (unconfirmed && pin.confirmed)) return true;
  draft.pins.delete(fork);
  return false;
}

/** Changes settings; undefined removes one. True: nothing changes. */
export function stageSettings(draft: Draft, change: { readonly maxLag: number | undefined }): boolean {
  if (draft.settings?.maxLag === change.maxLag) return true;
  const { maxLag: _, ...others } = draft.settings ?? {};
  const settings: ManifestSettings = change.maxLag === undefined ? others : { ...others, maxLag: change.maxLag };
  draft.settings = settings;
  return false;
}

/** Two references to the same object. */
export function sameRef(a: NodeRef, b: NodeRef): boolean {
  return a.base === b.base && a.commitId === b.commitId && a.k === b.k && a.check === b.check;
}

function assertPinRoom(draft: Draft): void {
  if (draft.pins.size < pinsMax) return;
  throw new BatchWeaveError(
    "LIMIT",
    `A namespace can be pinned by ${pinsMax} forks. Delete a fork that is no longer needed.`,
    { pinsMax },
  );
}
