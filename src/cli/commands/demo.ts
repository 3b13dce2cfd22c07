/** `batchweave demo`: real processes, real crashes, and a proof that nothing was lost or repeated. */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { createNamespace, deleteNamespace, type Env, type Metrics } from "../../index.js";
import type { Call, Command } from "../command.js";
import { damage, type Finding, judge, type Sabotage, sabotages } from "../demo/proof.js";
import { demoGrid, demoPlan, expectedSlices, type Outcome, Story, type Tell, type View } from "../demo/story.js";
import { formatBytes, formatMs, type Terminal, table } from "../terminal.js";

const plan = demoPlan;

async function run(call: Call): Promise<number> {
  const { args, terminal, env, stopping, metrics } = call;
  const sabotage = args.word("sabotage", sabotages);
  const folder = await mkdtemp(join(tmpdir(), "batchweave-demo-"));
  const base = args.text("uri") ?? pathToFileURL(folder).href;
  const uri = `${base.replace(/\/+$/, "")}/demo-${env.id()}`;
  const begun = env.monotonic();
  const tell: Tell = (event, text, facts) => {
    if (terminal.isJson) terminal.result({ event, atMs: Math.round(env.monotonic() - begun), ...facts }, "");
    else terminal.note(`${formatMs(env.monotonic() - begun).padStart(7)}  ${text}`);
  };
  try {
    const ns = await createNamespace(uri, { grid: demoGrid }, { metrics, signal: stopping.signal });
    tell("start", introduction(uri), { uri, grid: demoGrid });
    const show = liveView(terminal, env, metrics);
    const story = new Story(plan, { ns, env, folder, signal: stopping.signal, tell, show });
    const outcome = await story.run();
    return conclude(terminal, outcome, sabotage, env.monotonic() - begun);
  } finally {
    if (args.flag("keep")) terminal.note(`kept: ${uri}`);
    else {
      await deleteNamespace(uri).catch(() => {});
      await rm(folder, { recursive: true, force: true });
    }
  }
}

function introduction(uri: string): string {
  const { producers, dp, cp } = plan;
  return `${producers} producer processes write whole batches of ${demoGrid.rows} x ${demoGrid.chunks} slices; ${dp * cp} rank processes (dp ${dp}, cp ${cp}) read their slices.
         They share nothing but ${uri}`;
}

/** Steps, lag and throughput, drawn over on a terminal, a plain line a second elsewhere. */
function liveView(terminal: Terminal, env: Env, metrics: Metrics): (view: View) => void {
  const begun = env.monotonic();
  let shownAtMs = Number.NEGATIVE_INFINITY;
  return (view) => {
    const nowMs = env.monotonic();
    if (nowMs - shownAtMs < (terminal.isLive ? 100 : 1_000)) return;
    shownAtMs = nowMs;
    const rate = `${formatBytes((1_000 * view.bytesRead) / Math.max(1, nowMs - begun))}/s read`;
    const { end } = view.info.steps;
    const lags = view.taken.map((taken) => Math.max(0, end - Math.floor((taken * plan.dp) / demoGrid.rows)));
    metrics.set("batchweave_end_step", "First step that is not visible yet.", end);
    lags.forEach((lag, rank) => {
      metrics.set("batchweave_lag_steps", "Visible steps that this rank has not taken yet.", lag, {
        rank: String(rank),
      });
    });
    const summary = `step ${end} of ${plan.producers * plan.batches}, slowest rank ${Math.max(...lags)} steps behind, ${rate}`;
    terminal.live(liveLines(view, lags, summary), `         ${summary}`);
  };
}

function liveLines(view: View, lags: readonly number[], summary: string): string[] {
  const { producers } = view.info;
  const bars = Array.from({ length: plan.producers }, (_, i) => {
    const seq = producers.find(({ id }) => id === `p${i}`)?.seq ?? 0;
    const state = view.downProducer === `p${i}` ? "  KILLED" : "";
    return `  p${i}      ${bar(seq / plan.batches)} ${String(seq).padStart(3)} batches${state}`;
  });
  const iterations = (plan.producers * plan.batches * demoGrid.rows) / plan.dp;
  const ranks = view.taken.map((taken, rank) => {
    const state = view.downRank === rank ? "  KILLED" : `  ${lags[rank]} behind`;
    return `  rank ${rank}  ${bar(taken / iterations)} ${String(taken).padStart(3)} iterations${state}`;
  });
  return ["", ...bars, ...ranks, "", `  ${summary}`];
}

function bar(fraction: number): string {
  const filled = Math.round(Math.min(1, fraction) * 30);
  return `[${"#".repeat(filled)}${"-".repeat(30 - filled)}]`;
}

function conclude(terminal: Terminal, outcome: Outcome, sabotage: Sabotage | undefined, tookMs: number): number {
  const victim = 3;
  const first = sabotage
    ? {
        ...outcome.first,
        ranks: outcome.first.ranks.map((one, rank) => (rank === victim ? damage(one, sabotage) : one)),
      }
    : outcome.first;
  const expected = expectedSlices(plan);
  const findings = [first, outcome.second].map((reading) => judge(reading, demoGrid, expected));
  const [one, two] = findings as [Finding, Finding];
  const isSameOrder = one.order.join() === two.order.join();
  const sum = (of: (finding: Finding) => number): number => findings.reduce((total, finding) => total + of(finding), 0);
  const lost = sum((f) => f.lost) + sum((f) => f.foreign);
  const duplicated = sum((f) => f.duplicated);
  const outOfOrder = sum((f) => f.outOfOrder) + outcome.differing + (isSameOrder ? 0 : 1);
  const { verified } = outcome;
  const ok = lost === 0 && duplicated === 0 && outOfOrder === 0 && verified.ok;
  const batches = plan.producers * plan.batches;
  const readings = [first, outcome.second].map(({ dp, cp, ranks }, i) => {
    const f = findings[i] as Finding;
    return [
      `dp ${dp}, cp ${cp}`,
      ranks.length,
      f.order.length,
      f.slices,
      f.lost + f.foreign,
      f.duplicated,
      f.outOfOrder,
    ];
  });
  const header = ["mesh", "ranks", "batches", "slices seen", "lost", "duplicated", "out of order"];
  const facts = {
    ok,
    batches,
    slices: expected.size,
    reread: outcome.reread,
    tookMs: Math.round(tookMs),
    verified: verified.ok,
    sabotage,
  };
  terminal.result({ ...facts, lost, duplicated, outOfOrder }, () =>
    [
      "",
      table(header, readings),
      "",
      `${batches} batches were written, ${expected.size} slices. Both meshes saw them in ${isSameOrder ? "one and the same order" : "DIFFERENT orders"}.`,
      `The killed rank read ${outcome.reread} iterations again after its checkpoint${outcome.differing === 0 ? " and got the same bytes" : ` and ${outcome.differing} DIFFERED`}.`,
      verified.ok
        ? `verify read every byte of the log (${formatBytes(verified.counts.bytes)}) and found no error.`
        : `verify found ERRORS, the first: ${verified.problems[0]?.message}`,
      ok ? why(outcome) : failure(sabotage, victim),
    ].join("\n"),
  );
  return ok ? 0 : 1;
}

function why({ epochs }: Outcome): string {
  const fenced = [...epochs].filter(([, epoch]) => epoch > 1).map(([id, epoch]) => `${id} (epoch ${epoch})`);
  return `
Nothing was lost, repeated or reordered, because
- a batch becomes visible to all ranks at once, by one conditional PUT of the next manifest; half a batch never exists;
- a producer's position is committed together with its batch, so ${fenced.join(", ")} went on exactly behind its last one;
- a rank's position is one row number in one global order, so it resumes anywhere, on any mesh.`;
}

function failure(sabotage: Sabotage | undefined, victim: number): string {
  if (sabotage)
    return `\nThe proof FAILED, as it must: what rank ${victim} saw was damaged on purpose (--sabotage ${sabotage}).`;
  return "\nThe proof FAILED. This must never happen: please report it, with --keep and the output.";
}

export const command: Command = {
  usage: "[--uri URI] [--sabotage HOW] [--keep]",
  about:
    "Four producer processes and eight rank processes (dp 4, cp 2) on a temporary folder. One producer and one rank are killed\nwith SIGKILL and started again; then the same log is read on another mesh. What every rank saw is compared with what every\nproducer was meant to write. Exits 1 if anything was lost, repeated or out of order. Takes about 20 seconds.",
  positionals: [],
  options: {
    uri: { value: "URI", help: "Make the namespace below this URI instead of in a temporary folder." },
    sabotage: {
      value: "HOW",
      help: "drop, duplicate or swap: damage what one rank saw, to see that the proof notices.",
    },
    keep: { help: "Leave the namespace there." },
  },
  examples: ["batchweave demo", "batchweave demo --json", "batchweave demo --sabotage swap"],
  isLong: true,
  run,
};
