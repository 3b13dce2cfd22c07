/**
 * A toy log, the smallest thing that can lose or double an entry: writers append to a chain of conditional creates.
 * It exercises the simulator (and the machinery for planted bugs) without any of the product.
 */
import { isBatchWeaveError } from "../../src/errors.js";
import { Violation } from "../oracle/violation.js";
import type { Cast } from "../scenarios/scenario.js";
import type { ProcessContext, Simulation } from "../world/simulation.js";
import type { SimProcess } from "../world/world.js";

const link = (n: number): string => `chain/${String(n).padStart(20, "0")}`;

/** Builds the toy log with `settings.writers` writers. */
export function chainCast(sim: Simulation, settings: Readonly<Record<string, unknown>>): Cast {
  const writers = Number(settings.writers ?? 4);
  const acknowledged: string[] = [];
  let healed = false;
  let lost = 0;
  const busy = new Set<SimProcess>();
  const write = async (context: ProcessContext): Promise<void> => {
    busy.add(context.process);
    let head = 0;
    for (let i = 0; !healed; i++) {
      const entry = `${context.process.label}/${i}`;
      const at = await append(context, entry, head, () => lost++);
      head = at + 1;
      context.note("acknowledged", entry, at);
      acknowledged.push(entry);
      await context.env.sleep(context.env.random() * 400);
    }
  };
  sim.world.onExit = (process) => {
    busy.delete(process);
    if (process.exit?.reason === "threw") sim.world.fail(process.exit.error);
    else if (process.exit?.reason === "crashed" && !healed) sim.world.after(1000, () => sim.spawn(process.name, write));
  };
  for (let i = 0; i < writers; i++) sim.spawn(`writer-${i}`, write);
  return {
    heal: () => {
      healed = true;
    },
    settled: () => busy.size === 0,
    waitsFor: () => [...busy].map((process) => process.label).join(", "),
    check: async () => {
      const entries = sim.store.keys("chain/").map((key) => new TextDecoder().decode(sim.store.get(key)));
      const once = new Set(entries);
      if (once.size < entries.length)
        throw new Violation("exactly-once", `${entries.length - once.size} entries twice`);
      for (const entry of acknowledged) {
        if (!once.has(entry)) throw new Violation("durability", `acknowledged entry ${entry} is not in the chain`);
      }
    },
    counters: () => ({ appended: acknowledged.length, conflicts: lost }),
  };
}

/** Appends one entry at or after `from`; returns where it is. */
async function append(context: ProcessContext, entry: string, from: number, onLost: () => void): Promise<number> {
  const body = new TextEncoder().encode(entry);
  for (let n = from; ; ) {
    try {
      const outcome = await context.store.create(link(n), body);
      if (outcome === "created") return n;
      const winner = await context.store.get(link(n));
      // Not there after an unknown outcome: the request may still land, so the same bytes go to the same name again.
      if (winner === undefined) continue;
      if (new TextDecoder().decode(winner) === entry) return n;
      onLost();
      n++;
    } catch (e) {
      if (!isBatchWeaveError(e, "STORE_UNAVAILABLE")) throw e;
      await context.env.sleep(200);
    }
  }
}
