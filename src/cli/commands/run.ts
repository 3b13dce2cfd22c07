/** `batchweave run`: a pipeline's producers. */
import { openNamespace } from "../../index.js";
import {
  auditPipeline,
  describeSources,
  describeSummary,
  type Pipeline,
  type PipelineAudit,
  placementFigures,
  type RunSettings,
  runPipeline,
  type SourceFigures,
} from "../../plan/index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { rehearseFleet } from "../fleet-rehearsal.js";
import { watchLanes } from "../lane-alarm.js";
import { LifeSigns, sourceFacts, sourceWait } from "../life-signs.js";
import { plannedPipeline, planOption } from "../planned-pipeline.js";
import { rehearse } from "../rehearsal.js";
import { replay } from "../replay.js";
import { durabilityOf } from "../run.js";
import { runScreen } from "../run-screen.js";
import { counted } from "../terminal.js";

/** Steps up to which the log is audited without being asked: reading everything back takes its time. */
const auditStepsMax = 2_000;

/** Between two drawings of the screen. */
const redrawMs = 250;

/** Faults of a source that are named while it runs; the rest are counted. */
const faultsNamedMax = 3;

async function run(call: Call): Promise<number | undefined> {
  const { args, terminal, stopping, env, metrics } = call;
  const path = args.positionals[0] as string;
  const pipeline = await plannedPipeline(args, "loaders");
  if (args.text("replay") !== undefined) return await replay(call, pipeline);
  const settings = readSettings(call, pipeline);
  if (isRehearsal(call, pipeline)) {
    const { exchange = "direct" } = pipeline.spec;
    return exchange === "direct" ? await rehearse(call, path, pipeline) : await rehearseFleet(call, path, pipeline);
  }
  const uri = settings.uri ?? pipeline.spec.namespace.uri;
  const total = settings.steps ?? pipeline.spec.steps;
  let [made, committed, tokens, leftOut] = [0, 0, 0, 0];
  const named = new Map<string, number>();
  const begun = env.monotonic();
  const show = (): void => {
    const rate = tokens / Math.max(0.001, (env.monotonic() - begun) / 1_000);
    const faults = leftOut > 0 ? `, ${leftOut} left out` : "";
    const detail = `${made} made, ${Math.round(rate)} tokens/s${faults}`;
    if (!terminal.isLive) terminal.progress(settings.id ?? "p0", committed, total, detail);
    if (!terminal.isLive || env.monotonic() < drawnMs + redrawMs) return;
    drawnMs = env.monotonic();
    const head = `${settings.id ?? "p0"} ${committed}${total === undefined ? "" : ` of ${total} steps`}, ${detail}`;
    terminal.live([head, ...runScreen(figuresNow(), drawnMs - begun, threads)], "");
  };
  const threads = pipeline.spec.workers?.threads ?? 2;
  let figuresNow: () => readonly SourceFigures[] = () => [];
  let drawnMs = 0;
  const signs = new LifeSigns(call);
  let [pending, madeAtMs]: [number, number] = [0, begun];
  let lanes: Disposable | undefined;
  const facts = (figures: readonly SourceFigures[]): Record<string, unknown> => ({
    ...(settings.lanes ? { lanes: settings.lanes.slice(0, 32) } : {}),
    ...(total === undefined ? {} : { steps: total }),
    made,
    committed,
    tokens,
    leftOut,
    threads,
    sources: sourceFacts(figures),
  });
  const running = runPipeline(pipeline, settings, {
    metrics,
    onOpen: ({ ns, figures }) => {
      figuresNow = figures;
      if (ns.order.kind === "lanes") lanes = watchLanes(env, ns, terminal, () => ({ pending, madeAtMs }));
      signs.begin(ns, {
        role: "producer",
        name: settings.id ?? "p0",
        facts: () => facts(figures()),
        waiting: () => sourceWait(figures()),
      });
    },
    signal: stopping.signal,
    storeSettings: { ...pipeline.spec.storeSettings, durability: durabilityOf(args) },
    onFault: ({ source, id, stage, reason }) => {
      leftOut++;
      const nth = (named.get(source) ?? 0) + 1;
      named.set(source, nth);
      if (nth <= faultsNamedMax) terminal.note(`left out: ${source} ${id} (${stage}): ${reason}`);
      if (nth === faultsNamedMax) terminal.note(`  more of ${source} are only counted here; the log's notes name them`);
      show();
    },
    onBatch: ({ notes }, left) => {
      [pending, madeAtMs] = [left, env.monotonic()];
      made++;
      tokens += notes.tokens;
      committed = made - left;
      show();
    },
  });
  const result = await running.finally(async () => {
    lanes?.[Symbol.dispose]();
    await signs[Symbol.asyncDispose]();
  });
  terminal.settle();
  const audit = await auditOf(call, pipeline, uri, result);
  const summary = audit?.summary ?? result.summary;
  const transforms = pipeline.spec.sources;
  const placements = result.sources.flatMap((f) =>
    placementFigures(f, transforms[f.source]?.settings.transforms ?? []),
  );
  terminal.result(
    {
      uri,
      batches: made,
      end: result.end,
      closed: result.closed,
      wallMs: Math.round(result.wallMs),
      summary,
      ...(audit ? { audit: { ...audit, summary: undefined } } : {}),
      sources: result.sources,
    },
    () =>
      [
        `${uri}: ${counted(made, "batch")} made here in ${(result.wallMs / 1_000).toFixed(1)} s; the log ends at step ${result.end}${result.closed ? " and is closed" : ""}`,
        made > 0 ? describeSources(result.sources, placements) : [],
        describeSummary(summary, audit),
      ]
        .flat()
        .join("\n"),
  );
  return audit && audit.lost + audit.repeated > 0 ? 1 : undefined;
}

/** Audits a log that is complete, unless told not to; one that is long, or not complete, only when told to. */
async function auditOf(
  { args, stopping, env, terminal }: Call,
  pipeline: Pipeline,
  uri: string,
  result: { readonly closed: boolean; readonly end: number },
): Promise<PipelineAudit | undefined> {
  if (args.flag("no-audit") || stopping.stopped) return undefined;
  if (!args.flag("audit") && (!result.closed || result.end > auditStepsMax)) return undefined;
  terminal.note(`auditing ${counted(result.end, "step")}: every sample of the sources must be in the log once`);
  const ns = await openNamespace(uri, { signal: stopping.signal, storeSettings: pipeline.spec.storeSettings });
  return await auditPipeline(pipeline, ns, { env, signal: stopping.signal });
}

/** All lanes of a process wait for the same checkpoint: one of them says so. */
function quietly(tell: (message: string) => void): (message: string) => void {
  let told: string | undefined;
  return (message) => {
    if (message !== told) tell(message);
    told = message;
  };
}

function readSettings({ args, terminal }: Call, { spec }: Pipeline): RunSettings {
  const isLanes = (spec.namespace.order ?? "lanes") === "lanes";
  const lanes = args.text("lanes");
  const part = args.text("part");
  if (lanes !== undefined && !isLanes)
    throw invalid("--lanes goes with order lanes; this pipeline writes in commit order. Use --part.");
  if (part !== undefined && isLanes)
    throw invalid("--part goes with commit order; this pipeline has lanes. Use --lanes.");
  const [, index, count] = /^(\d{1,6})\/(\d{1,6})$/.exec(part ?? "") ?? [];
  if (part !== undefined && index === undefined)
    throw invalid(`--part must be INDEX/COUNT, such as 0/2, not ${JSON.stringify(part)}.`);
  const interval = args.integer("interval");
  return {
    id: args.text("id"),
    uri: args.text("namespace"),
    lanes: lanes === undefined ? undefined : parseLanes(lanes),
    part: part === undefined ? undefined : { index: Number(index), count: Number(count) },
    steps: args.integer("steps", { min: 1 }),
    batchesMax: args.integer("batches"),
    close: !args.flag("no-close"),
    producer: {
      ...(interval === undefined ? {} : { cadence: { kind: "interval", intervalMs: interval } }),
      onLagWait: quietly((message) => terminal.note(message)),
    },
  };
}

/** Asked for, or what the file is for and no option says where to write or as whom. */
function isRehearsal({ args }: Call, { spec }: Pipeline): boolean {
  const told = ["id", "lanes", "part", "namespace", "batches"].filter((name) => args.text(name) !== undefined);
  if (!args.flag("rehearse")) return spec.rehearsal === true && told.length === 0;
  if (told.length > 0)
    throw invalid(
      `--${told[0]} does not go with --rehearse, which starts producers of its own. Leave one of them out.`,
    );
  return true;
}

/** `0,2-3` */
function parseLanes(text: string): number[] {
  return text.split(",").flatMap((piece) => {
    const [, from, to = from] = /^(\d{1,6})(?:-(\d{1,6}))?$/.exec(piece) ?? [];
    if (from === undefined || Number(to) < Number(from))
      throw invalid(`--lanes must be numbers and ranges, such as 0,2-3, not ${JSON.stringify(text)}.`);
    return Array.from({ length: Number(to) - Number(from) + 1 }, (_, i) => Number(from) + i);
  });
}

export const command: Command = {
  usage: "PIPELINE [--id ID] [--lanes 0,1 | --part 0/2] [--batches N] [--rehearse]",
  about:
    "Runs the producers of a pipeline file: reads its sources, mixes, balances and packs, and writes batches until its steps are\ndone or its sources end. Killed and started again it goes on exactly where the log says it was: the batches are the same, bit\nfor bit. Several processes share the work by lanes (the log is then that of one) or, in commit order, by parts. When the log\nis complete it is closed and audited: every sample of the sources must be in it once.",
  positionals: ["PIPELINE"],
  options: {
    id: { value: "ID", help: "A name for progress (default p0). The log's producers are lanes or parts." },
    lanes: {
      value: "LIST",
      help: "Lanes this process holds, such as 0,2-3 (default: all). A process that held them is fenced.",
    },
    part: {
      value: "I/N",
      help: "Commit order: the part of the sources that this process reads (default: all of them). A process that held it is fenced.",
    },
    namespace: { value: "URI", help: "Where to write, instead of where the pipeline says." },
    steps: { value: "N", help: "Steps after which the log is complete, instead of what the pipeline says." },
    batches: { value: "N", help: "Batches of this process at most." },
    ...planOption,
    rehearse: {
      help: "Try it in a temporary folder: two producers, ranks reading, one producer killed, and an undisturbed run to compare (40 steps at most, or --steps).",
    },
    seconds: { value: "N", help: 'With --rehearse and exchange "log": how long processes are disturbed (default 60).' },
    replay: {
      value: "LOG",
      help: "Make the batches of an earlier log again, into another one: the same samples, rows and order, with the transforms as they are now.",
    },
    interval: { value: "MS", help: "Commit at this interval instead of the adaptive cadence." },
    "no-close": { help: "Leave the log open when it is complete." },
    audit: { help: "Audit even a long or unfinished log." },
    "no-audit": { help: "Do not audit." },
  },
  examples: [
    "batchweave run pipeline.ts --rehearse",
    "batchweave run pipeline.ts --id p0",
    "batchweave run pipeline.ts --lanes 0-3 & batchweave run pipeline.ts --lanes 4-7",
    "batchweave run pipeline.mjs --id p1 --part 1/2",
    "batchweave run pipeline.ts --replay s3://train/runs/7b --namespace s3://train/runs/7b-new-tokenizer",
  ],
  isLong: true,
  run,
};
