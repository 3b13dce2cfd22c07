/** A worker thread of the transform pool. Says in shared memory which sample it is at, so that the pool knows what hangs. */
import { parentPort, workerData } from "node:worker_threads";
import { loadTransform, type Transform } from "./transform.js";
import { type ChainInput, type ChainOutput, runChain } from "./transform-chain.js";

/** What a worker is asked to do. */
export interface WorkerTask {
  readonly chain: readonly Transform[];
  readonly inputs: readonly ChainInput[];
}

/** Something failed in the thread outside of any sample. */
export interface StrayFailure {
  readonly stray: string;
}

const progress = new Int32Array((workerData as { progress: SharedArrayBuffer }).progress);

/** The output, or why it cannot be sent: functions and handles do not travel between threads. */
function sendable(output: ChainOutput, chain: readonly Transform[]): ChainOutput {
  try {
    structuredClone(output);
    return output;
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { error: `${chain.at(-1)?.name}: its value cannot leave its thread: ${reason}`, ms: output.ms, bytes: [] };
  }
}

// What a transform started and did not wait for fails at any time, maybe during another sample, which is not to blame for it. A sample that
// waits for it for ever hangs, and is found by that.
const tellStray = (error: unknown): void => {
  parentPort?.postMessage({ stray: error instanceof Error ? error.message : String(error) } satisfies StrayFailure);
};
process.on("uncaughtException", tellStray);
process.on("unhandledRejection", tellStray);

parentPort?.on("message", async ({ chain, inputs }: WorkerTask) => {
  const outputs: ChainOutput[] = [];
  // Before the first sample's clock starts. What cannot be loaded is told by the sample that needs it.
  await Promise.allSettled(chain.map(loadTransform));
  for (const [i, input] of inputs.entries()) {
    Atomics.store(progress, 0, i);
    Atomics.add(progress, 1, 1);
    outputs.push(await runChain(chain, input));
  }
  // Copied, not moved: a transform may return the same array twice, and must not find it emptied.
  try {
    parentPort?.postMessage(outputs);
  } catch {
    parentPort?.postMessage(outputs.map((output) => sendable(output, chain)));
  }
});
