/** A worker thread of the transform pool. Says in shared memory which sample it is at, so that whoever watches knows what hangs. */
import { parentPort, workerData } from "node:worker_threads";
import { loadTransform, type Transform } from "./transform.js";
import { type ChainInput, type ChainOutput, runChain } from "./transform-chain.js";

/** What a worker is asked to do. */
export interface WorkerTask {
  readonly chain: readonly Transform[];
  readonly inputs: readonly ChainInput[];
}

const progress = new Int32Array((workerData as { progress: SharedArrayBuffer }).progress);

/** Buffers that belong to a value alone and can move instead of being copied. */
function ownBuffers(value: unknown, found: Set<ArrayBuffer> = new Set()): Set<ArrayBuffer> {
  if (ArrayBuffer.isView(value)) {
    const { buffer } = value;
    if (buffer instanceof ArrayBuffer && buffer.byteLength === value.byteLength) found.add(buffer);
  } else if (Array.isArray(value)) for (const item of value) ownBuffers(item, found);
  else if (typeof value === "object" && value !== null)
    for (const item of Object.values(value)) ownBuffers(item, found);
  return found;
}

parentPort?.on("message", async ({ chain, inputs }: WorkerTask) => {
  const outputs: ChainOutput[] = [];
  // Before the first sample's clock starts. What cannot be loaded is told by the sample that needs it.
  await Promise.allSettled(chain.map(loadTransform));
  for (const [i, input] of inputs.entries()) {
    Atomics.store(progress, 0, i);
    Atomics.add(progress, 1, 1);
    outputs.push(await runChain(chain, input));
  }
  parentPort?.postMessage(outputs, [...ownBuffers(outputs)]);
});
