/**
 * One process of `bench fleet`: SHAPE ROLE [LANE]. Prints what it read, sent and received when it ends; a loader prints {"blocks"} as it goes.
 *
 *   direct   holds lane LANE of a pipeline without source logs
 *   load, shadow, construct   as the commands do
 */
import { Metrics } from "../../src/index.js";
import { runConstructors, runLoaders, runPipeline } from "../../src/plan/index.js";
import { type FleetShape, fleetPipeline, totals } from "./fleet-pipeline.js";

const [shapeText = "{}", role = "", lane = "0"] = process.argv.slice(2);
const shape = JSON.parse(shapeText) as FleetShape;
const pipeline = fleetPipeline(shape);
const metrics = new Metrics();
const storeSettings = { durability: "process-crash" } as const;
const say = (value: object): void => void process.stdout.write(`${JSON.stringify(value)}\n`);
let blocks = 0;

async function work(): Promise<{ readonly readBytes: number }> {
  const read = (sources: readonly { readonly readBytes: number }[]): number =>
    sources.reduce((sum, { readBytes }) => sum + readBytes, 0);
  if (role === "direct") {
    const { sources } = await runPipeline(pipeline, { lanes: [Number(lane)] }, { metrics, storeSettings });
    return { readBytes: read(sources) };
  }
  if (role === "construct") {
    await runConstructors(pipeline, {}, { metrics, storeSettings });
    return { readBytes: 0 };
  }
  const onBlock = (): void => say({ blocks: ++blocks });
  const settings = { shadow: role === "shadow", lanesMax: shape.lanesMax };
  const { sources } = await runLoaders(pipeline, settings, { metrics, storeSettings, onBlock });
  return { readBytes: read(sources) };
}

const result = await work();
const [requests, sent, received] = ["requests", "sent_bytes", "received_bytes"].map(
  (name) => totals(metrics.text(), [`batchweave_store_${name}_total`])[`batchweave_store_${name}_total`],
);
say({ role, ...result, requests, sent, received });
