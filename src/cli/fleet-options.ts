/** What `load` and `construct` have in common. */
import type { FleetOptions, FleetSettings } from "../plan/index.js";
import type { Arguments } from "./arguments.js";
import type { OptionTable } from "./command.js";

export const fleetOptions: OptionTable = {
  namespace: { value: "URI", help: "Where the training log is, instead of where the pipeline says." },
  "lanes-max": { value: "N", help: "Lanes that this process holds at most (default: any number)." },
  shadow: { help: "Have the next block of others' lanes ready, and take them over in half the time." },
  interval: { value: "MS", help: "Commit at this interval instead of the adaptive cadence." },
};

/** The settings that these options say. */
export function readFleetSettings(args: Arguments): FleetSettings {
  const interval = args.integer("interval");
  return {
    uri: args.text("namespace"),
    lanesMax: args.integer("lanes-max", { min: 1 }),
    logsMax: args.integer("sources-max", { min: 1 }),
    shadow: args.flag("shadow"),
    producer: interval === undefined ? undefined : { cadence: { kind: "interval", intervalMs: interval } },
  };
}

type Handover = Parameters<NonNullable<FleetOptions["onHandover"]>>[0];

export function laneName({ log, lane }: Handover): string {
  return `lane ${lane} of ${log.name}`;
}

/** A handover that an operator wants to know of, in a sentence. */
export function handoverText(event: Handover): string | undefined {
  const { kind } = event;
  const which = laneName(event);
  if (kind === "taken-over") return `${which}: its holder stood still while it was wanted; taken over`;
  if (kind === "lost") return `${which}: another process took it over`;
  if (kind === "broken") return `${which}: a failure that may pass; it is tried again`;
  return undefined;
}
