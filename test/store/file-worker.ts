/**
 * A process of its own for the tests of the file store: one JSON order per line on standard input, one JSON answer per line back.
 * Bundled and started by store-process.ts.
 */
import { createInterface } from "node:readline";
import { systemEnv } from "../../src/env/index.js";
import { openFileStore } from "../../src/store/index.js";

/** What the tests may order. */
export type Order =
  | { do: "race"; key: string; writers: number; bodyBytes: number; startAtMs: number }
  | { do: "churn"; key: string; rounds: number }
  | { do: "write-forever"; prefix: string; bodyBytes: number };

const [root, id] = process.argv.slice(2) as [string, string];
const store = await openFileStore(root, systemEnv);
const say = (answer: unknown): boolean => process.stdout.write(`${JSON.stringify(answer)}\n`);

async function race(order: Extract<Order, { do: "race" }>): Promise<void> {
  const first = Number(id) * order.writers;
  const bodies = Array.from({ length: order.writers }, (_, i) => new Uint8Array(order.bodyBytes).fill(first + i + 1));
  // The barrier across processes is a moment on the clock that they share; the last millisecond is spun away.
  while (systemEnv.now() < order.startAtMs - 2) await systemEnv.sleep(1);
  while (systemEnv.now() < order.startAtMs);
  const outcomes = await Promise.all(bodies.map((body) => store.create(order.key, body)));
  say({ winners: outcomes.flatMap((one, i) => (one === "created" ? [first + i + 1] : [])), outcomes });
}

/** Creates and deletes in one folder, so that it is emptied and pruned under the feet of the others. */
async function churn(order: Extract<Order, { do: "churn" }>): Promise<void> {
  const outcomes: string[] = [];
  for (let round = 0; round < order.rounds; round++) {
    const key = `${order.key}/${id}-${round}`;
    outcomes.push(await store.create(key, new Uint8Array(10)));
    if ((await store.get(key)) === undefined) outcomes.push("lost");
    await store.delete([key]);
  }
  say({ outcomes });
}

async function writeForever(order: Extract<Order, { do: "write-forever" }>): Promise<void> {
  const body = new Uint8Array(order.bodyBytes).fill(Number(id) + 1);
  say({ started: true });
  for (let i = 0; ; i++) {
    await Promise.all([store.create(`${order.prefix}c${i}`, body), store.put(`${order.prefix}p${i}`, body)]);
    say({ wrote: [`${order.prefix}c${i}`, `${order.prefix}p${i}`] });
  }
}

say({ ready: true });
for await (const line of createInterface({ input: process.stdin })) {
  const order = JSON.parse(line) as Order;
  if (order.do === "race") await race(order);
  else if (order.do === "churn") await churn(order);
  else void writeForever(order);
}
