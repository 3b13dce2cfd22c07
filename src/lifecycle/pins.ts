/**
 * Pins: what a fork holds in its ancestors. A pin is committed before the fork exists and confirmed after; both in the ancestor's chain, so
 * that removing an abandoned pin and finishing a slow fork cannot both succeed:
 *
 *   fork:     pin (unconfirmed) -> create namespace.json -> confirm, refused when the pin is gone (then the fork is undone)
 *   release:  fork absent -> remove, refused when the pin was confirmed meanwhile
 *
 * A confirmed pin whose fork is absent belongs to a fork that was deleted, since a uuid is never created twice.
 */
import { BatchWeaveError, isBatchWeaveError } from "../errors.js";
import type { NamespaceSpec, NodeRef, Origin } from "../format/index.js";
import {
  firstOwnStep,
  type Log,
  type NewPin,
  stageConfirmation,
  stagePin,
  stagePinCopy,
  stageUnpin,
} from "../log/index.js";
import type { CallOptions } from "../store/index.js";

/** Opens the log of an ancestor; refuses when another namespace stands there. */
export type OpenLog = (uri: string, uuid: string, options?: CallOptions) => Promise<Log>;

/** Pins steps of `log`; undefined when the trim has passed them. */
export async function commitPin(log: Log, pin: NewPin, options?: CallOptions): Promise<NodeRef | undefined> {
  const { result } = await log.commit<undefined, NodeRef | undefined>(
    {
      by: "pin fork",
      kind: "pin",
      stage: (draft) => {
        const held = draft.base.pins.get(pin.fork);
        // An attempt whose answer was lost may have made it.
        if (held) return { done: true, result: held.root };
        const root = stagePin(draft, pin);
        return { done: root === undefined, result: root };
      },
    },
    { signal: options?.signal, fresh: true },
  );
  return result;
}

/** Pins in an ancestor of the parent what the parent holds there. */
export async function commitPinCopy(
  log: Log,
  parent: string,
  origin: Origin,
  pin: Omit<NewPin, "from" | "to">,
  options?: CallOptions,
): Promise<void> {
  const { result } = await log.commit<undefined, boolean>(
    {
      by: "pin fork",
      kind: "pin",
      stage: (draft) => {
        if (draft.base.pins.has(pin.fork)) return { done: true, result: true };
        const isHeld = stagePinCopy(draft, parent, origin.root, pin);
        return { done: !isHeld, result: isHeld };
      },
    },
    { signal: options?.signal, fresh: true },
  );
  if (!result) throw pinGone(parent, log.place.uri);
}

/** Removes a pin; see above for `unconfirmed`. */
export async function commitUnpin(log: Log, fork: string, unconfirmed: boolean, options?: CallOptions): Promise<void> {
  await log.commit<undefined, undefined>(
    {
      by: "unpin fork",
      kind: "pin",
      stage: (draft) => ({ done: stageUnpin(draft, fork, unconfirmed), result: undefined }),
    },
    { signal: options?.signal, fresh: true },
  );
}

/**
 * Makes sure that a fork's pins stand, in every ancestor, and confirms those that are not yet: after creating a fork, and whenever one is
 * opened, since its creator may have died in between. Three requests per ancestor.
 */
export async function confirmPins(spec: NamespaceSpec, openLog: OpenLog, options?: CallOptions): Promise<void> {
  for (const { uri, uuid } of spec.fork?.origins ?? []) {
    const log = await openLog(uri, uuid, options);
    const pin = (await log.head.jump(options)).pins.get(spec.uuid);
    if (pin?.confirmed) continue;
    try {
      if ((await commitConfirmation(log, spec.uuid, options)) === "gone") throw pinGone(spec.uuid, uri);
    } catch (error) {
      // A reader without the right to write relies on the pin as it is: no process removes it while the fork stands.
      if (!pin || !isBatchWeaveError(error, "STORE_DENIED")) throw error;
    }
  }
}

async function commitConfirmation(log: Log, fork: string, options?: CallOptions): Promise<"done" | "staged" | "gone"> {
  const { result } = await log.commit<undefined, "done" | "staged" | "gone">(
    {
      by: "confirm fork",
      kind: "pin",
      stage: (draft) => {
        const outcome = stageConfirmation(draft, fork);
        return { done: outcome !== "staged", result: outcome };
      },
    },
    { signal: options?.signal, fresh: true },
  );
  return result;
}

/** Whether a fork still reads anything of its ancestors: until it has trimmed all that it inherited. */
export function needsPins(spec: NamespaceSpec, trim: number): boolean {
  return spec.fork !== undefined && trim < firstOwnStep(spec);
}

/** Removes all pins of a fork that was deleted, or that was not finished. Ancestors that are gone themselves hold nothing. */
export async function releasePins(
  spec: Pick<NamespaceSpec, "uuid">,
  origins: readonly Pick<Origin, "uri" | "uuid">[],
  openLog: OpenLog,
  options: CallOptions & { readonly unconfirmed: boolean },
): Promise<void> {
  for (const { uri, uuid } of origins) {
    let log: Log;
    try {
      log = await openLog(uri, uuid, options);
    } catch (error) {
      if (isGone(error)) continue;
      throw error;
    }
    await commitUnpin(log, spec.uuid, options.unconfirmed, options).catch((error) => {
      if (!isBatchWeaveError(error, "DELETED")) throw error;
    });
  }
}

function isGone(error: unknown): boolean {
  return (["NO_NAMESPACE", "WRONG_NAMESPACE", "DELETED"] as const).some((code) => isBatchWeaveError(error, code));
}

/** Reads which namespace stands at a uri; undefined when there is none. */
export type FindNamespace = (uri: string, options?: CallOptions) => Promise<string | undefined>;

/**
 * Removes the pin of a fork that does not exist: never finished, or deleted by a process that died before it removed it. Refused while the
 * fork stands. For people, never done unasked: a folder that is not mounted looks like a fork that does not exist.
 */
export async function releaseAbandonedPin(
  log: Log,
  fork: string,
  find: FindNamespace,
  options?: CallOptions,
): Promise<void> {
  const pin = (await log.head.jump(options)).pins.get(fork);
  if (!pin) return;
  if ((await find(pin.uri, options)) === fork) {
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `The fork ${fork} at ${pin.uri} exists and needs its pin. Delete the fork; that removes the pin.`,
      { fork, uri: pin.uri },
    );
  }
  await commitUnpin(log, fork, !pin.confirmed, options);
}

function pinGone(fork: string, uri: string): BatchWeaveError {
  return new BatchWeaveError(
    "RECLAIMED",
    `${uri} holds no pin for the fork ${fork} (any more): the batches it shares may be reclaimed. Delete that fork and fork again.`,
    { fork, uri },
  );
}
