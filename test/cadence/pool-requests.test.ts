/**
 * Property: what a pool of producers asks of a store, and when, changes only when somebody means it to: who carries, who looks, who takes over, when, and by which
 * requests. Method: real producers in virtual time on a store of fixed latency, without faults; all requests are compared with `pool-requests.json` (request-record.ts).
 */
import { test } from "vitest";
import { latencyModel, type ProcessContext, Simulation } from "../../sim/index.js";
import { type CadenceSettings, createPublisher, openProducer, type Takeover } from "../../src/cadence/index.js";
import { encodeNamespace, type NamespaceSpec, namespaceKey } from "../../src/format/index.js";
import { reclaim } from "../../src/lifecycle/index.js";
import { Log } from "../../src/log/index.js";
import { Producer, type Ticket } from "../../src/producer/index.js";
import { RequestRecord } from "../request-record.js";

const s3 = latencyModel({ name: "like S3", read: () => 63, write: () => 100 });
const folder = latencyModel({ name: "like a folder", read: () => 1, write: () => 3 });

/** What a producer process is given. */
interface Part extends ProcessContext {
  open(id: string, cadence?: CadenceSettings, takeover?: Takeover): Promise<Producer>;
  /** A view of the log, as of a process that starts now. */
  log(): Log;
  /** Appends `count` batches, `everyMs` apart. */
  append(producer: Producer, count: number, everyMs: number): Promise<Ticket>;
}

class Pool {
  readonly simulation: Simulation;
  readonly record = new RequestRecord(() => this.simulation.world.nowMs);
  readonly #spec: NamespaceSpec;

  constructor(latency: typeof s3, order: NamespaceSpec["order"] = { kind: "commit" }) {
    this.simulation = new Simulation({ seed: 5, latency, trace: { ringEvents: 0 } });
    const uuid = "00000000-0000-4000-8000-000000000007";
    this.#spec = { format: 1, uuid, grid: { rows: 1, chunks: 1 }, order, created: 0, rest: {} };
  }

  spawn(name: string, atMs: number, main: (part: Part) => Promise<void>): void {
    const process = this.simulation.spawn(name, async (context) => {
      await context.env.sleep(atMs);
      const store = this.record.counting(context.store, name);
      const openOrigin = (): Promise<never> => Promise.reject(new Error("no forks here"));
      const view = (): Log => new Log({ store, env: context.env, spec: this.#spec, openOrigin });
      await main({
        ...context,
        process,
        log: view,
        open: async (id, cadence, takeover) => {
          const log = view();
          const opening = await openProducer(log, id, { takeover });
          const publisher = createPublisher(log, cadence, {
            onAttempt: ({ outcome, batches, carried }) => {
              this.record.count(`${name} attempt ${outcome}`);
              this.record.count(`${name} batches of attempts`, batches);
              this.record.count(`${name} batches carried`, carried);
            },
          });
          return new Producer({ log, opening, publisher });
        },
        append: async (producer, count, everyMs) => {
          let ticket: Ticket | undefined;
          for (let i = 0; i < count; i++) {
            ticket = await producer.append([new Uint8Array(8)]);
            await context.env.sleep(everyMs);
          }
          return ticket as Ticket;
        },
      });
    });
  }

  tell(text: string): void {
    this.record.tell(text);
  }

  async run(name: string, untilMs: number): Promise<void> {
    await this.simulation.store.direct().put(namespaceKey, encodeNamespace(this.#spec));
    await this.simulation.world.run({ untilMs });
    this.record.compare("test/cadence/pool-requests.json", name);
  }
}

for (const latency of [s3, folder]) {
  test(`${latency.name}: a pool that grows, whose carrier dies and whose followers await tickets, and leave`, async () => {
    const pool = new Pool(latency);
    const scale = latency === s3 ? 1 : 0.1;
    pool.spawn("a", 0, async ({ open, append, process }) => {
      await append(await open("a"), 30, 700 * scale);
      pool.tell("the carrier dies");
      pool.simulation.world.crash(process);
    });
    pool.spawn("b", 1_500 * scale, async ({ open, append }) => {
      const producer = await open("b");
      await append(producer, 60, 900 * scale);
      await producer.close();
      pool.tell("b has closed");
    });
    pool.spawn("c", 3_000 * scale, async ({ open, append, env }) => {
      const producer = await open("c");
      for (let i = 0; i < 12; i++) {
        const ticket = await append(producer, 2, 100 * scale);
        const { version } = await ticket.committed;
        pool.tell(`c has seq ${ticket.seq} in version ${version}`);
        await env.sleep(3_000 * scale);
      }
      await producer.flush();
      await producer.close();
      pool.tell("c has closed");
    });
    pool.spawn("d", 9_000 * scale, async ({ open, append, env }) => {
      await open("b", undefined, "when-quiet").catch(({ code, message }) => pool.tell(`${code}: ${message}`));
      const producer = await open("d");
      for (let i = 0; i < 5; i++) {
        await append(producer, 20, 20 * scale);
        await producer.flush();
        pool.tell(`d has flushed ${producer.nextSeq}`);
        await env.sleep(8_000 * scale);
      }
      const again = await open("d");
      await append(again, 3, 300 * scale);
      await again.flush();
      await producer.append([new Uint8Array(8)]).catch(({ code }) => pool.tell(`the fenced one: ${code}`));
      await producer.close().catch(({ code }) => pool.tell(`closing the fenced one: ${code}`));
      await again.close();
    });
    await pool.run(latency.name, 100_000 * scale);
  });

  test(`${latency.name}: one alone, in bursts and idle, then a second for a while`, async () => {
    const pool = new Pool(latency);
    const scale = latency === s3 ? 1 : 0.1;
    pool.spawn("a", 0, async ({ open, append, env }) => {
      const producer = await open("a");
      for (let i = 0; i < 3; i++) {
        await append(producer, 30, 10 * scale);
        await env.sleep(5_000 * scale);
        await (await append(producer, 1, 0)).committed;
        pool.tell(`a has ${producer.nextSeq}`);
        await env.sleep(9_000 * scale);
      }
      await append(producer, 160, 50 * scale);
      await producer.close();
      pool.tell("a has closed");
    });
    pool.spawn("b", 30_000 * scale, async ({ open, append }) => {
      const producer = await open("b");
      await append(producer, 240, 35 * scale);
      await producer.close();
      pool.tell("b has closed");
    });
    await pool.run(`${latency.name}, alone`, 90_000 * scale);
  });
}

test("36 that open at once are opened by few commits, and carried by one", async () => {
  const pool = new Pool(s3);
  for (let i = 0; i < 36; i++)
    pool.spawn(i < 2 ? `p${i}` : "others", i < 20 ? 0 : 12_000, async ({ open, append, env }) => {
      const producer = await open(`p${i}`, undefined, i % 3 === 0 ? false : undefined);
      await append(producer, 4, 500);
      await env.sleep(8_000);
      await append(producer, 5, 40);
      await producer.flush();
      pool.tell(`p${i} has flushed`);
      await producer.close();
    });
  await pool.run("a crowd", 60_000);
});

test("lanes: one that is ahead waits for the others, in either cadence", async () => {
  for (const cadence of [{ kind: "cooperative" }, { kind: "interval", intervalMs: 300 }] as const) {
    const pool = new Pool(s3, { kind: "lanes", lanes: 2 });
    pool.spawn("fast", 0, async ({ open, append }) => {
      const producer = await open("lane-0", cadence);
      await append(producer, 80, 100);
      await producer.flush();
      pool.tell("the fast lane is in");
      await producer.close();
    });
    pool.spawn("slow", 2_000, async ({ open, append, env }) => {
      const producer = await open("lane-1", cadence);
      await append(producer, 5, 100);
      await env.sleep(20_000);
      await append(producer, 75, 100);
      await producer.flush();
      await producer.close();
    });
    await pool.run(`lanes, ${cadence.kind}`, 60_000);
  }
});

const solos: readonly CadenceSettings[] = [
  { kind: "dac" },
  { kind: "dac", epsilon: 0.2, delta: 0.5, jitter: 0 },
  { kind: "interval" },
  { kind: "naive" },
  { kind: "fixed", batches: 4 },
  { kind: "incr" },
  { kind: "aimd", variant: "paper" },
  { kind: "aimd", variant: "inverse" },
];

test.each(solos)("four that commit by themselves: $kind $variant", async (cadence) => {
  const pool = new Pool(s3);
  for (let i = 0; i < 4; i++)
    pool.spawn(`p${i}`, i * 333, async ({ open, append }) => {
      const producer = await open(`p${i}`, cadence);
      await append(producer, 20, 200);
      await producer.flush();
      pool.tell(`p${i} has flushed`);
      await (await append(producer, 3, 0)).committed;
      await producer.close();
    });
  await pool.run(`by themselves: ${JSON.stringify(cadence)}`, 60_000);
});

test("whoever may fence, by whichever rule, and when", async () => {
  const pool = new Pool(s3);
  const said = async (what: string, opening: Promise<Producer>): Promise<Producer | undefined> => {
    try {
      const producer = await opening;
      pool.tell(`${what}: epoch ${producer.epoch} at seq ${producer.nextSeq}`);
      return producer;
    } catch (error) {
      const { code, message } = error as { code?: string; message: string };
      pool.tell(`${what}: ${code} ${message}`);
      return undefined;
    }
  };
  pool.spawn("first", 0, async ({ open, append }) => {
    const producer = await open("p");
    await append(producer, 2, 100);
    await producer.flush();
  });
  pool.spawn("others", 5_000, async ({ open, env, append }) => {
    await said("an epoch that is over", open("p", undefined, { epoch: 0 }));
    await said("too soon", open("p", undefined, "when-quiet"));
    await env.sleep(24_000);
    await said("still too soon", open("p", undefined, "when-quiet"));
    await env.sleep(8_000);
    await said("quiet", open("p", undefined, "when-quiet"));
    const held = await said("the epoch that it saw", open("p", undefined, { epoch: 2 }));
    if (held) await append(held, 1, 10);
    await held?.close();
    await said("left", open("p", undefined, "when-quiet"));
    await said("new, never held", open("q", undefined, { epoch: 0 }));
    await said("new, when quiet", open("r", undefined, "when-quiet"));
    await said("new, not to fence", open("s", undefined, false));
    await said("held, not to fence", open("s", undefined, false));
  });
  for (let i = 0; i < 4; i++)
    pool.spawn(
      `twin ${i}`,
      60_000,
      async ({ open }) => void (await said(`twin ${i}`, open("twins", undefined, i < 3 ? false : "when-quiet"))),
    );
  for (let i = 0; i < 3; i++)
    pool.spawn(`rival ${i}`, 70_000, async ({ open, append }) => {
      const producer = await said(`rival ${i}`, open("rivals"));
      if (producer) await append(producer, 1, 500).catch(({ code }) => pool.tell(`rival ${i}: ${code}`));
    });
  await pool.run("openers", 120_000);
});

test("uploads that a reclaim passes are made again, by carriers, followers and those who commit by themselves", async () => {
  for (const cadence of [{ kind: "cooperative" }, { kind: "interval", intervalMs: 900 }] as const) {
    const pool = new Pool(s3);
    for (let i = 0; i < 3; i++)
      pool.spawn(`p${i}`, 200 * i, async ({ open, append }) => {
        const producer = await open(`p${i}`, cadence);
        await append(producer, 25, 150);
        await producer.flush();
        pool.tell(`p${i} has flushed ${producer.nextSeq}`);
        await producer.close();
      });
    pool.spawn("reclaimer", 1_000, async ({ log, env }) => {
      for (let i = 0; i < 12; i++) {
        await reclaim(log(), { graceMs: 0, keepVersions: 0 });
        await env.sleep(300);
      }
    });
    await pool.run(`reclaimed, ${cadence.kind}`, 60_000);
  }
});
