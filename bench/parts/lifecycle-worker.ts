/** One process of the lifecycle benchmark: a producer, or the rank that trains, registers checkpoints and perhaps reclaims. */

import { answer, workerArgument } from "../../harness/worker-process.js";
import { openNamespace } from "../../src/index.js";

/** What a process is told at its start. */
export interface LifecycleRole {
  readonly uri: string;
  readonly role: "producer" | "trainer";
  readonly id: string;
  readonly steps: number;
  readonly sliceBytes: number;
  readonly rows: number;
  /** Trainer: time of one training step. */
  readonly stepMs: number;
  readonly checkpointEvery: number;
  readonly reclaim: boolean;
  readonly graceMs: number;
  readonly keepVersions: number;
}

const role = workerArgument<LifecycleRole>();

async function produce(): Promise<void> {
  const ns = await openNamespace(role.uri);
  await using producer = await ns.producer({ id: role.id, lag: { pollDelayMs: 50 } });
  for (let i = 0; i < role.steps; i++) {
    const slices = Array.from({ length: role.rows }, (_, row) => Buffer.alloc(role.sliceBytes, i + row));
    await producer.append(slices, { resumePoint: i });
  }
  await producer.flush();
}

async function train(): Promise<number> {
  const ns = await openNamespace(role.uri);
  await using consumer = await ns.consumer({ mesh: { dp: role.rows }, rank: 0 });
  let seen = 0;
  for await (const share of consumer) {
    seen++;
    await new Promise((resolve) => setTimeout(resolve, role.stepMs));
    if (seen % role.checkpointEvery === 0) {
      await consumer.checkpoint(`step-${seen}`, share.next, { keepLast: 1 });
      if (role.reclaim) await ns.reclaim({ graceMs: role.graceMs, keepVersions: role.keepVersions });
    }
    if (seen === role.steps) break;
  }
  return seen;
}

answer(async () => (role.role === "producer" ? await produce() : await train()) ?? 0);
