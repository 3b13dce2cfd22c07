/** What `load` and `construct` have in common. */
import type { FleetOptions, FleetSettings } from "../plan/index.js";
import type { Arguments } from "./arguments.js";
import type { Call, OptionTable } from "./command.js";
import type { LifeSigns } from "./life-signs.js";

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

/** Tells an operator and the pulses of lanes that move; `count` gets 1 for a lane that is held now, -1 for one that no longer is. */
export function tellHandovers(
  { terminal }: Pick<Call, "terminal">,
  signs: LifeSigns,
  count: (by: 1 | -1) => void,
): (event: Handover) => void {
  return (event) => {
    if (event.kind === "taken-over") signs.tookOver(laneName(event));
    const text = handoverText(event);
    if (text) terminal.note(text);
    count(event.kind === "taken" || event.kind === "taken-over" ? 1 : -1);
  };
}

function laneName({ log, lane }: Handover): string {
  return `lane ${lane} of ${log.name}`;
}

/** A handover that an operator wants to know of, in a sentence. */
function handoverText(event: Handover): string | undefined {
  const { kind } = event;
  const which = laneName(event);
  if (kind === "taken-over") return `${which}: its holder stood still while it was wanted; taken over`;
  if (kind === "lost") return `${which}: another process took it over`;
  if (kind === "broken") return `${which}: a failure that may pass, so it is tried again: ${event.reason}`;
  return undefined;
}
