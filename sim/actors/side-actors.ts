/** Actors that are busy beside the log: an operator who sets maxLag, a tenant whose namespace is deleted and made again, a surveyor of bad stores. */
import { isBatchWeaveError } from "../../src/errors.js";
import { createNamespace, deleteNamespace, type Namespace, openNamespace } from "../../src/index.js";
import { assertSafe, type ObjectStore, probeStore } from "../../src/store/index.js";
import { Violation } from "../oracle/violation.js";
import { Rng } from "../world/random.js";
import type { ProcessContext } from "../world/simulation.js";
import type { WeaveStage } from "./weave-stage.js";

/** Everything below this belongs to tenants; the oracle of the log does not look at it. */
export const tenantsPrefix = "tenants/";

const shape = { grid: { rows: 1, chunks: 1 } } as const;

/** Sets maxLag, or lifts it. */
export async function setLag(stage: WeaveStage, context: ProcessContext, maxLag: number | undefined): Promise<void> {
  const { namespace } = await stage.open(context);
  await namespace.setMaxLag(maxLag);
  stage.counts.lagSettings++;
}

/** An operator who cleans up after a training run: releases one checkpoint, new or old, by its name. */
export async function releaseOne(stage: WeaveStage, context: ProcessContext): Promise<void> {
  const rng = new Rng(stage.sim.world.seed, `release/${context.process.label}`);
  const { namespace } = await stage.open(context);
  const live = await namespace.checkpoints();
  if (live.length === 0) return;
  const { group, id } = rng.pick(live);
  stage.oracle.versions.asked(group, id);
  try {
    await namespace.releaseCheckpoint(id, { group });
  } catch (error) {
    // A group remembers only so many.
    if (!isBatchWeaveError(error, "NO_CHECKPOINT")) throw error;
    return;
  }
  if (stage.oracle.head?.checkpoints.get(group)?.live.has(id))
    throw new Violation("checkpoint", `${group}/${id} was released, and is live`);
  stage.oracle.versions.counts.releasedByName++;
}

/** A store that takes a precondition and ignores it must be refused, whatever else goes wrong meanwhile. */
export async function survey(stage: WeaveStage, context: ProcessContext): Promise<void> {
  const good = stage.storeAt(context, `${tenantsPrefix}survey/${context.process.label}`);
  const bad: ObjectStore = {
    uri: good.uri,
    create: async (key, body, options) => {
      await good.put(key, body, options);
      return "created";
    },
    put: (key, body, options) => good.put(key, body, options),
    get: (key, options) => good.get(key, options),
    getRange: (key, start, length, options) => good.getRange(key, start, length, options),
    list: (prefix, options) => good.list(prefix, options),
    delete: (keys, options) => good.delete(keys, options),
  };
  const report = await probeStore(bad, context.env, { rounds: 1, writers: 4 });
  try {
    assertSafe(report);
  } catch (error) {
    if (!isBatchWeaveError(error, "UNSAFE_STORE")) throw error;
    stage.counts.refusedStores++;
    return;
  }
  throw new Violation("unsafe-store", `${good.uri} overwrites what exists, and was found safe`);
}

/** A namespace and its namesake. What the first life wrote, nobody may find in the second. */
export class Tenant {
  readonly #stage: WeaveStage;
  readonly #name: string;
  #first: string | undefined;
  #deletedAtMs = Number.POSITIVE_INFINITY;

  constructor(stage: WeaveStage, name: string) {
    this.#stage = stage;
    this.#name = name;
  }

  get #uri(): string {
    return `sim://run/${tenantsPrefix}${this.#name}`;
  }

  #options(context: ProcessContext): { env: ProcessContext["env"]; store: ObjectStore } {
    return { env: context.env, store: this.#stage.storeAt(context, `${tenantsPrefix}${this.#name}`) };
  }

  /** The owner: fills it, deletes it, makes it again, fills it again and reads it back. */
  async own(context: ProcessContext): Promise<void> {
    const options = this.#options(context);
    const rng = new Rng(this.#stage.sim.world.seed, `tenant/${context.process.label}`);
    try {
      const first = await createNamespace(this.#uri, shape, options);
      this.#first = first.uuid;
      await fill(first, "first", 1 + rng.below(6));
      await context.env.sleep(rng.exponential(3000));
      await deleteNamespace(this.#uri, options);
      this.#deletedAtMs = this.#stage.sim.world.nowMs;
      const second = await this.#createAgain(options);
      const count = 1 + rng.below(8);
      await fill(second, "second", count);
      await this.#read(second, count);
      this.#stage.counts.tenants++;
      await deleteNamespace(this.#uri, options);
    } catch (error) {
      // A request of this very process that was lost on its way may make or delete namespace.json once more.
      if (!(["DELETED", "NO_NAMESPACE"] as const).some((code) => isBatchWeaveError(error, code))) throw error;
      this.#stage.counts.litteredTenants++;
    }
  }

  /**
   * A request to create the first one that was lost on its way may land after the deletion: no store can tell it from a new one. The first one
   * is there again, and says that it is deleted.
   */
  async #createAgain(options: { env: ProcessContext["env"]; store: ObjectStore }): Promise<Namespace> {
    try {
      return await createNamespace(this.#uri, shape, options);
    } catch (error) {
      if (!isBatchWeaveError(error, "DELETED")) throw error;
      this.#stage.counts.resurrections++;
      await deleteNamespace(this.#uri, options);
      return await createNamespace(this.#uri, shape, options);
    }
  }

  async #read(namespace: Namespace, count: number): Promise<void> {
    for (let step = 0; step < count; step++) {
      const text = new TextDecoder().decode(await namespace.readSlice({ step, row: 0, chunk: 0 }));
      if (text !== `second ${step}`) throw new Violation("namesake", `step ${step} of ${this.#uri} holds "${text}"`);
    }
  }

  /** A producer that has the first one open and goes on appending, whatever becomes of it. */
  async squat(context: ProcessContext): Promise<void> {
    const { sim, counts } = this.#stage;
    try {
      while (this.#first === undefined && !this.#stage.healed) await context.env.sleep(100);
      const namespace = await openNamespace(this.#uri, this.#options(context));
      if (namespace.uuid !== this.#first) return;
      const producer = await namespace.producer({ id: "squatter", cadence: { kind: "interval", intervalMs: 100 } });
      for (let i = 0; !this.#stage.healed; i++) {
        const begunMs = sim.world.nowMs;
        await (await producer.append([Buffer.from(`first ${i}`)])).committed;
        if (begunMs > this.#deletedAtMs)
          throw new Violation(
            "deleted",
            `${this.#uri} acknowledges a batch ${begunMs - this.#deletedAtMs} ms after it was deleted`,
          );
        counts.squatted++;
        await context.env.sleep(context.env.random() * 2000);
      }
      await producer.close();
    } catch (error) {
      if (error instanceof Violation || !isBatchWeaveError(error)) throw error;
      counts.evictions++;
    }
  }
}

async function fill(namespace: Namespace, life: string, count: number): Promise<void> {
  const producer = await namespace.producer({ id: "owner", cadence: { kind: "interval", intervalMs: 50 } });
  for (let i = 0; i < count; i++) await producer.append([Buffer.from(`${life} ${i}`)]);
  await producer.flush();
  await producer.close();
}
