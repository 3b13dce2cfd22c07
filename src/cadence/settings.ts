/** From settings to a publisher. */
import { BatchWeaveError } from "../errors.js";
import type { Log } from "../log/index.js";
import { CooperativePublisher } from "./cooperative/publisher.js";
import {
  aimdPolicy,
  type DacSettings,
  dacPolicy,
  fixedPolicy,
  incrPolicy,
  intervalPolicy,
  type Policy,
} from "./policy.js";
import type { Publisher } from "./publisher.js";
import { type PublisherObserver, SoloPublisher } from "./solo.js";

/** How a producer decides when to commit, and whose batches. Default: cooperative. */
export type CadenceSettings =
  /** `carries`: it is known that no other producer carries, so the first batch is committed without waiting for one. Being wrong costs a conflict. */
  | { readonly kind: "cooperative"; readonly carries?: boolean | undefined }
  | ({ readonly kind: "dac" } & DacSettings)
  | { readonly kind: "interval"; readonly intervalMs?: number | undefined }
  | { readonly kind: "naive" }
  | { readonly kind: "fixed"; readonly batches: number }
  | { readonly kind: "incr" }
  | { readonly kind: "aimd"; readonly variant: "paper" | "inverse" };

/** Makes a producer's publisher. */
export function createPublisher(
  log: Log,
  settings: CadenceSettings = { kind: "cooperative" },
  observer: PublisherObserver = {},
): Publisher {
  if (settings.kind === "cooperative") return new CooperativePublisher(log, observer, settings.carries);
  return new SoloPublisher(log, createPolicy(log, settings), observer);
}

function createPolicy(log: Log, settings: Exclude<CadenceSettings, { kind: "cooperative" }>): Policy {
  switch (settings.kind) {
    case "dac":
      return dacPolicy(log.env, settings);
    case "interval":
      return intervalPolicy(settings.intervalMs ?? 200);
    case "naive":
      return fixedPolicy(1);
    case "fixed":
      return fixedPolicy(settings.batches);
    case "incr":
      return incrPolicy();
    case "aimd":
      return aimdPolicy(settings.variant);
    default:
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `There is no cadence ${JSON.stringify((settings as { kind: unknown }).kind)}: use cooperative, dac, interval, naive, fixed, incr or aimd.`,
      );
  }
}
