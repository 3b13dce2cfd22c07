/** Graphs and plans as text, so that a person sees who gets what and at what cost. Pure. */
import type { DGraph } from "./dgraph.js";
import type { LoadPlan, PlanBin } from "./load-plan.js";

/** `1.25e12` -> `1.25 T`. */
function shortNumber(value: number): string {
  const units = ["", " k", " M", " G", " T", " P", " E"];
  let [scaled, unit] = [value, 0];
  while (scaled >= 999.5 && unit < units.length - 1) {
    scaled /= 1000;
    unit++;
  }
  return `${scaled >= 100 || Number.isInteger(scaled) ? scaled.toFixed(0) : scaled.toPrecision(3)}${units[unit]}`;
}

/** One line per node of the graph. */
export function describeGraph({ nodes, place }: DGraph): string {
  const { tree, microbatches = 1, sequences = 1, capacity = {} } = place;
  const consumers = tree.nodesAt(nodes.axis).length;
  const limits = [
    capacity.tokens === undefined ? [] : `${capacity.tokens} tokens`,
    capacity.memory === undefined ? [] : `${shortNumber(capacity.memory)} bytes`,
  ].flat();
  const lines = [
    `graph ${nodes.name}`,
    nodes.select ? `  select      ${nodes.name}` : [],
    nodes.mix ? `  mix         ${nodes.mix.kind} by ${nodes.mix.by}: ${nodes.mix.phases.join(" | ")}` : [],
    `  distribute  ${nodes.axis}: ${consumers} consumers${nodes.groupSize > 1 ? ` in groups of ${nodes.groupSize}` : ""} x ${microbatches} microbatches${sequences > 1 ? ` x ${sequences} sequences` : ""}${limits.length > 0 ? `, each at most ${limits.join(" and ")}` : ""}`,
    `  cost        ${nodes.cost.name || "function"}`,
    nodes.raw ? `  plan        ${nodes.raw.name || "a planner of the user's"}` : [],
    nodes.balance.map(
      ({ method, level }) => `  balance     ${typeof method === "string" ? method : method.name || "custom"} ${level}`,
    ),
    nodes.broadcast.map((dim) => `  broadcastAt ${dim}`),
  ];
  return lines.flat().join("\n");
}

const bucketsShownMax = 16;
const samplesShownMax = 6;

/** The bins of every consumer with their samples (`id:tokens`) and costs. */
export function describePlan(plan: LoadPlan): string {
  const lines = [
    `  ${plan.samples.length} samples; max/mean cost over ranks ${plan.before.ranks.toFixed(3)} -> ${plan.after.ranks.toFixed(3)}, over microbatches ${plan.before.microbatches.toFixed(3)} -> ${plan.after.microbatches.toFixed(3)}`,
  ];
  for (const bucket of plan.buckets.slice(0, bucketsShownMax)) {
    lines.push(`  ${bucket.name} (ranks ${rangeText(bucket.fetchers)})  cost ${shortNumber(bucket.compute)}`);
    for (const bin of bucket.bins) {
      const place = `mb ${bin.microbatch}${plan.sequences > 1 ? `.${bin.sequence}` : ""}`;
      lines.push(`    ${place}  ${binText(plan, bin)}`);
    }
  }
  if (plan.buckets.length > bucketsShownMax) lines.push(`  … and ${plan.buckets.length - bucketsShownMax} more`);
  return lines.join("\n");
}

function binText(plan: LoadPlan, bin: PlanBin): string {
  const { tokens } = plan.capacity;
  const fill = tokens === undefined ? `${bin.tokens}` : `${bin.tokens}/${tokens}`;
  const shown = bin.samples.slice(0, samplesShownMax).map((i) => {
    const sample = plan.samples[i];
    return `${sample?.source}/${sample?.id}:${sample?.tokens}`;
  });
  const more = bin.samples.length > samplesShownMax ? ` +${bin.samples.length - samplesShownMax}` : "";
  return `cost ${shortNumber(bin.compute)}  tokens ${fill}  [${shown.join(" ")}${more}]`;
}

/** `0-3, 8` */
function rangeText(numbers: readonly number[]): string {
  const parts: string[] = [];
  for (let i = 0; i < numbers.length; ) {
    let j = i;
    while (j + 1 < numbers.length && numbers[j + 1] === (numbers[j] as number) + 1) j++;
    parts.push(i === j ? `${numbers[i]}` : `${numbers[i]}-${numbers[j]}`);
    i = j + 1;
  }
  return parts.join(", ");
}
