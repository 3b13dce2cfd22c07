/** Planted bugs of the fleet's layer, caught by the scenario `fleet`: blocks, tables, positions, handovers, ends. */
import type { PlantedBug } from "./planted.js";

function bug(name: string, file: string, find: string, replace: string): PlantedBug {
  return { name, hazard: "fleet", scenario: "fleet", edits: [{ file, find, replace }] };
}

const blockSupply = "src/plan/exchange/block-supply.js";
const sourceLane = "src/plan/exchange/source-lane.js";
const laneWatch = "src/plan/fleet/lane-watch.js";
const shadows = "src/plan/fleet/shadows.js";
const logEnds = "src/plan/fleet/log-ends.js";

export const fleetBugs: readonly PlantedBug[] = [
  bug(
    "a block is taken by two constructor lanes",
    blockSupply,
    "[this.#block + this.#lanes, 0, undefined]",
    "[this.#block + 1, 0, undefined]",
  ),
  bug(
    "a lane is lost in a handover: nobody takes over from the dead",
    laneWatch,
    "if (!view || !known || view.isHeldBack)",
    "if (view || !known)",
  ),
  bug(
    "a shadow appends what it prepared, wherever the lane stands",
    shadows,
    "if (shadow?.seq !== seq)",
    "if (shadow === undefined)",
  ),
  bug(
    "a table that lies about lengths",
    sourceLane,
    "samples.push({ id, tokens, images,",
    "samples.push({ id, tokens: tokens + 1, images,",
  ),
  bug(
    "a position saved early: behind a sample that is in no block yet",
    sourceLane,
    "await this.isOver(signal);\n        this.#seq++;",
    "await this.isOver(signal);\n        const early = await this.#supply.peek(signal);\n        if (early.meta)\n            this.#position = early.after;\n        this.#seq++;",
  ),
  bug(
    "a log is closed while its closer's own lanes go on",
    logEnds,
    "const isOurs = [...own.values()].every((held) => held.isEnded && held.nextStep === view.lanes[held.lane]?.nextStep);",
    "const isOurs = true;",
  ),
];
