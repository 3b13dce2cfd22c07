/**
 * Property: transform threads are shared fairly. A source never has more samples in transforms than its `inFlightMax`; one with expensive samples
 * does not keep others waiting; a source that is alone has all threads. Method: the queue alone, turn by turn; a real pool whose transforms count
 * themselves in shared memory.
 */
import { existsSync } from "node:fs";
import { fileURLToPath } from "node:url";
import fc from "fast-check";
import { describe, expect, type TestContext, test } from "vitest";
import { systemEnv } from "../../src/index.js";
import { transform } from "../../src/plan/load/transform.js";
import { TransformPool } from "../../src/plan/load/transform-pool.js";
import { type TransformPortion, TransformQueue, type TransformTask } from "../../src/plan/load/transform-queue.js";

const workerUrl = new URL("../../dist/src/plan/load/transform-worker.js", import.meta.url);
const odd = new URL("./odd-transforms.mjs", import.meta.url);

function needBuild(context: TestContext): void {
  if (!existsSync(fileURLToPath(workerUrl))) context.skip("dist is not built: npm run build");
}

const inputsOf = (source: string, count: number): { source: string; id: string; value: unknown }[] =>
  Array.from({ length: count }, (_, i) => ({ source, id: String(i), value: { n: i } }));

const taskOf = (source: string, count: number): TransformTask => ({
  chain: [],
  inputs: inputsOf(source, count),
  outputs: [],
  resolve: () => {},
  reject: () => {},
  waiting: Array.from({ length: count }, (_, i) => i),
  left: count,
});

describe("the queue", () => {
  test("gives every sample out once, in order within its task, and never more of a source than it may have", () => {
    const arb = fc.record({
      tasks: fc.array(fc.record({ source: fc.constantFrom("a", "b", "c"), count: fc.integer({ min: 1, max: 40 }) })),
      threads: fc.integer({ min: 1, max: 5 }),
      ms: fc.array(fc.double({ min: 0, max: 200, noNaN: true }), { minLength: 1 }),
    });
    fc.assert(
      fc.property(arb, ({ tasks, threads, ms }) => {
        const queue = new TransformQueue(threads);
        const limits: Record<string, number | undefined> = { a: 3, b: undefined, c: 20 };
        for (const { source, count } of tasks) queue.push(taskOf(source, count), limits[source]);
        const running: TransformPortion[] = [];
        const seen = new Map<TransformTask, number[]>();
        for (let turn = 0; ; turn++) {
          const portion = running.length < threads ? queue.next() : undefined;
          if (portion) {
            running.push(portion);
            seen.set(portion.task, [...(seen.get(portion.task) ?? []), ...portion.indices]);
            for (const [source, limit = Infinity] of Object.entries(limits)) {
              const own = running.filter(({ task }) => task.inputs[0]?.source === source);
              expect(own.reduce((sum, { indices }) => sum + indices.length, 0)).toBeLessThanOrEqual(limit);
            }
            continue;
          }
          const done = running.shift();
          if (!done) break;
          queue.release(done, { ms: ms[turn % ms.length] as number });
        }
        expect([...seen.values()].reduce((sum, list) => sum + list.length, 0)).toBe(
          tasks.reduce((sum, { count }) => sum + count, 0),
        );
        for (const [task, list] of seen) expect(list).toEqual([...task.inputs.keys()]);
      }),
    );
  });

  test("a source that waits is next when another holds more threads", () => {
    const queue = new TransformQueue(2);
    queue.push(taskOf("slow", 100));
    const [one, two] = [queue.next(), queue.next()];
    queue.push(taskOf("fast", 2));
    queue.release(one as TransformPortion, { ms: 1_000 });
    expect(queue.next()?.task.inputs[0]?.source).toBe("fast");
    queue.release(two as TransformPortion, { ms: 1_000 });
    expect(queue.next()?.task.inputs[0]?.source).toBe("slow");
  });

  test("portions are as large as their samples are cheap", () => {
    const queue = new TransformQueue(2);
    queue.push(taskOf("a", 100));
    const sizes = [0.1, 0.1, 20, 400, 400].map((ms) => {
      const portion = queue.next() as TransformPortion;
      queue.release(portion, { ms });
      return portion.indices.length;
    });
    expect(sizes).toEqual([1, 16, 16, 4, 1]);
  });
});

describe("the pool", () => {
  test("inFlightMax holds over all calls, in threads and inline", async (context) => {
    needBuild(context);
    for (const threads of [4, 0]) {
      for (const inFlightMax of [1, 2, undefined]) {
        const crowd = new Int32Array(new SharedArrayBuffer(8));
        await using pool = new TransformPool(systemEnv, { threads }, workerUrl);
        const chain = [transform(odd, "crowd", { crowd, ms: 20 })];
        // One sample for each thread first: starting them takes longer than the samples do.
        await Promise.all([0, 1, 2, 3].map((i) => pool.run(chain, inputsOf(`warm-${i}`, 1))));
        Atomics.store(crowd, 1, 0);
        await Promise.all([0, 1, 2, 3].map(() => pool.run(chain, inputsOf("s", 8), inFlightMax)));
        const most = Atomics.load(crowd, 1);
        if (inFlightMax === undefined) expect(most).toBeGreaterThan(2);
        else expect(most).toBeLessThanOrEqual(inFlightMax);
      }
    }
  });

  test("one expensive source does not hold the threads", async (context) => {
    needBuild(context);
    const crowd = new Int32Array(new SharedArrayBuffer(8));
    await using pool = new TransformPool(systemEnv, { threads: 2 }, workerUrl);
    const slow = [transform(odd, "crowd", { crowd, ms: 40 })];
    const fast = [transform(odd, "misbehave")];
    await pool.run(fast, inputsOf("fast", 2));
    let done = 0;
    const all = Array.from({ length: 6 }, () => pool.run(slow, inputsOf("slow", 16)));
    const rest = Promise.all(all.map((group) => group.then((outputs) => (done += outputs.length))));
    await systemEnv.sleep(200);
    for (let round = 0; round < 4; round++) await pool.run(fast, inputsOf("fast", 16));
    // Four times it had to wait, each for a thread to come free: not for the six groups that were there before it.
    expect(done).toBeLessThan(48);
    await rest;
    expect(done).toBe(96);
  });
});
