/** What a constructor lane is given by a source's log, item by item, from the beginning: for audits. */
import type { Env, StepReader } from "../../index.js";
import type { Fault } from "../load/fault.js";
import type { SupplyPlace } from "../load/sample-supply.js";
import { BlockSupply } from "./block-supply.js";

interface Item {
  readonly id: string;
  readonly after: SupplyPlace;
}

/** Truncated samples are there. */
export function isLeftOut({ stage, reason }: Fault): boolean {
  return !(stage === "length" && reason.endsWith("truncated"));
}

/** Walks the blocks of one lane. */
export class BlockWalk {
  readonly #supply: BlockSupply;
  readonly #items: Item[] = [];
  #position: SupplyPlace;
  #isOver = false;

  constructor(source: string, reader: StepReader, env: Env, part: { readonly lane: number; readonly lanes: number }) {
    this.#supply = new BlockSupply({ source, reader, env }, part, {});
    this.#position = [part.lane, 0];
  }

  get position(): SupplyPlace {
    return this.#position;
  }

  async next(signal?: AbortSignal | undefined): Promise<Item | undefined> {
    while (this.#items.length === 0 && !this.#isOver) {
      const found = await this.#supply.peek(signal);
      this.#supply.take();
      const { at } = found.after;
      const faults = found.faults.filter(isLeftOut);
      // What was left out lies before the sample: no lane stops there.
      faults.forEach(({ id }, i) => {
        this.#items.push({ id, after: !found.meta && i === faults.length - 1 ? at : [...at, "fault"] });
      });
      if (found.meta) this.#items.push({ id: found.meta.id, after: at });
      else this.#isOver = true;
    }
    const item = this.#items.shift();
    if (item) this.#position = item.after;
    return item;
  }
}
