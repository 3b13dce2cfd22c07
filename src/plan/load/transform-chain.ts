/** Runs the transforms of a sample one after another and measures them; the same code inline and in a worker thread. */
import { type ErrorCode, isBatchWeaveError, systemEnv } from "../../index.js";
import { loadTransform, sizeOf, type Transform, type TransformContext, type TransformFunction } from "./transform.js";

/** One sample on its way through transforms. */
export interface ChainInput extends TransformContext {
  readonly value: unknown;
}

/** What came out. `bytes`: the size of the value before the first transform and after each. */
export interface ChainOutput {
  readonly value?: unknown;
  readonly error?: string | undefined;
  /** With `error`: it is no sample's fault, something that the transform needs is missing. */
  readonly setup?: ErrorCode | undefined;
  readonly ms: number;
  readonly bytes: readonly number[];
}

/** Functions that were loaded, so that a sample waits for nothing. */
const ready = new Map<string, TransformFunction>();

async function functionOf(step: Transform): Promise<TransformFunction> {
  const run = await loadTransform(step);
  ready.set(`${step.module} ${step.name}`, run);
  return run;
}

/** Runs one sample. A transform that throws gives an `error`, never a rejection. */
export async function runChain(chain: readonly Transform[], { value, source, id }: ChainInput): Promise<ChainOutput> {
  const bytes = [sizeOf(value)];
  let ms = 0;
  let begun = 0;
  let current = value;
  try {
    for (const step of chain) {
      const run = ready.get(`${step.module} ${step.name}`) ?? (await functionOf(step));
      begun = systemEnv.monotonic();
      const result = run(current, step.options, { source, id });
      current = result instanceof Promise ? await result : result;
      ms += systemEnv.monotonic() - begun;
      bytes.push(sizeOf(current));
    }
    return { value: current, ms, bytes };
  } catch (error) {
    const step = chain[bytes.length - 1];
    const reason = error instanceof Error ? error.message : String(error);
    const setup = isBatchWeaveError(error) && error.remedy === "fix" ? error.code : undefined;
    return { error: `${step?.name}: ${reason}`, ...(setup ? { setup } : {}), ms, bytes };
  }
}
