/** `batchweave consume`: reads as one rank of a mesh. */
import { createHash } from "node:crypto";
import { open as openFile, readFile, rename } from "node:fs/promises";
import {
  BatchWeaveError,
  type Consumer,
  type Cursor,
  describeMesh,
  type GivenMesh,
  isBatchWeaveError,
  type Namespace,
  parseCursor,
  type Share,
  type StartFrom,
} from "../../index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { LifeSigns } from "../life-signs.js";
import { counted, formatBytes, formatMs } from "../terminal.js";

async function run(call: Call): Promise<undefined> {
  const { args, open, stopping, terminal } = call;
  const checkpoints = readCheckpoints(call);
  const limit = args.integer("iterations", { min: 1 }) ?? Number.POSITIVE_INFINITY;
  const waitSeconds = args.number("wait-timeout");
  const waitMs = 1_000 * (waitSeconds ?? 600);
  // Ranks may be started before the process that creates the namespace.
  const ns = await open({ waitMs });
  const from = await startFrom(call, ns, checkpoints);
  await using consumer = await ns.consumer({
    mesh: meshOf(call),
    rank: args.integer("rank"),
    from,
    policy: args.word("policy", ["per-rank", "global-batch"]),
    layout: args.word("layout", ["contiguous", "zigzag"]),
    group: checkpoints.group,
    rowsPerRank: args.integer("rows-per-rank", { min: 1 }),
    prefetchBytesMax: args.integer("prefetch-bytes", { min: 1 }),
    waitTimeoutMs: waitMs,
    // It has registered what is due before it asks for more: no checkpoint of its own can be on its way.
    lag: checkpoints.isRegistered ? { deadlockMs: 0 } : undefined,
    onLagWait: (message) => terminal.note(message),
    onWait: (message) => terminal.note(message),
    signal: stopping.signal,
  });
  const { rank, worldSize } = consumer.place;
  terminal.note(`rank ${rank} of ${worldSize} (${describeMesh(consumer.mesh)}) from row ${consumer.cursor.row}`);
  await using signs = new LifeSigns(call);
  const group = checkpoints.group ?? "default";
  const figure = (name: string): number => call.metrics.value(name, { role: "rank" });
  signs.begin(ns, {
    role: "rank",
    name: `${group.slice(0, 50)}-${rank}`,
    peers: worldSize,
    facts: () => ({
      group,
      rank,
      worldSize,
      iteration: consumer.cursor.iteration,
      step: Math.floor(consumer.cursor.row / ns.grid.rows),
      lagSteps: figure("batchweave_lag_steps"),
      waitedMs: Math.round(1_000 * figure("batchweave_data_wait_seconds_total")),
      waitingMs: Math.round(1_000 * figure("batchweave_data_waiting_seconds")),
      readBytes: figure("batchweave_share_bytes_total"),
      client: "typescript",
    }),
  });
  const seen = await follow(call, consumer, limit, checkpoints);
  if (checkpoints.cursorFile !== undefined) await saveCursor(checkpoints.cursorFile, consumer.cursor);
  const leftover = consumer.leftoverRows
    ? `; ${counted(consumer.leftoverRows, "row")} too few for one more iteration`
    : "";
  const wait = formatMs(1_000 * call.metrics.value("batchweave_data_wait_seconds_total"));
  terminal.note(`${seen.iterations} iterations, ${formatBytes(seen.bytes)}, waited ${wait} for data${leftover}`);
  return undefined;
}

async function follow(
  { args, terminal, stopping, metrics }: Call,
  consumer: Consumer,
  limit: number,
  checkpoints: Checkpoints,
): Promise<{ iterations: number; bytes: number }> {
  const withSlices = args.flag("slices");
  const seen = { iterations: 0, bytes: 0 };
  try {
    for await (const share of consumer) {
      const digest = digestOf(share);
      seen.bytes += share.slices.reduce((sum, slice) => sum + slice.bytes.length, 0);
      seen.iterations++;
      const line = { iteration: share.iteration, digest, ...(withSlices ? { slices: sliceDigests(share) } : {}) };
      if (terminal.isJson) terminal.result(line, "");
      else terminal.progress("iteration", share.iteration, undefined, lagText(metrics.value("batchweave_lag_steps")));
      if ((share.iteration + 1) % checkpoints.every === 0) await save(consumer, share.next, checkpoints);
      if (seen.iterations >= limit) break;
    }
  } catch (error) {
    if (!stopping.signal.aborted) throw error;
  }
  return seen;
}

function lagText(steps: number): string {
  return steps === 0 ? "at the end of the log" : `${counted(steps, "step")} behind`;
}

/** sha256 of all bytes of the share, in order. */
function digestOf(share: Share): string {
  const hash = createHash("sha256");
  for (const { bytes } of share.slices) hash.update(bytes);
  return hash.digest("hex");
}

/** `[step, row, chunk, sha256]` of each slice. */
function sliceDigests(share: Share): [number, number, number, string][] {
  return share.slices.map(({ step, row, chunk, bytes }) => [
    step,
    row,
    chunk,
    createHash("sha256").update(bytes).digest("hex"),
  ]);
}

function meshOf({ args }: Call): GivenMesh {
  const size = (axis: string): number | undefined => args.integer(axis, { min: 1 });
  return { dp: size("dp"), cp: size("cp"), tp: size("tp"), pp: size("pp"), ep: size("ep"), order: args.text("order") };
}

interface Checkpoints {
  /** Iterations from one save to the next. */
  readonly every: number;
  readonly cursorFile: string | undefined;
  /** Whether they are registered in the log too. */
  readonly isRegistered: boolean;
  readonly group: string | undefined;
  readonly keepLast: number | undefined;
}

function readCheckpoints({ args }: Call): Checkpoints {
  const cursorFile = args.text("cursor-file");
  const every = args.integer("checkpoint-every", { min: 1 });
  const keepLast = args.integer("keep-last", { min: 1 });
  if (every === undefined && keepLast !== undefined) throw invalid("--keep-last goes with --checkpoint-every N.");
  return {
    every: every ?? (cursorFile === undefined ? Number.POSITIVE_INFINITY : 1),
    cursorFile,
    isRegistered: every !== undefined,
    group: args.text("checkpoint-group"),
    keepLast,
  };
}

/** The file first: it stands for the training checkpoint, which must be durable before the log is told to keep data for it. */
async function save(consumer: Consumer, cursor: Cursor, checkpoints: Checkpoints): Promise<void> {
  const { cursorFile, isRegistered, keepLast } = checkpoints;
  if (cursorFile !== undefined) await saveCursor(cursorFile, cursor);
  if (isRegistered) await consumer.checkpoint(`iter-${cursor.iteration}`, cursor, { keepLast });
}

/** Written whole or not at all: a crash leaves the cursor before or this one. */
async function saveCursor(path: string, cursor: Cursor): Promise<void> {
  const next = `${path}.next`;
  const file = await openFile(next, "w").catch((error: Error) => {
    throw invalid(`The cursor file ${path} cannot be written: ${error.message}.`, { path });
  });
  try {
    await file.writeFile(`${JSON.stringify(cursor)}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await rename(next, path);
}

/** `--from`, or the cursor file of an earlier run, or the beginning. */
async function startFrom(
  { args, stopping }: Call,
  ns: Namespace,
  { cursorFile, group }: Checkpoints,
): Promise<StartFrom> {
  const text = args.text("from");
  if (text === undefined) return (cursorFile && (await readCursor(cursorFile, true))) || "earliest";
  if (text.startsWith("@")) return (await readCursor(text.slice(1), false)) as Cursor;
  const place = /^(step|row):(\d{1,15})$/.exec(text);
  if (place) return place[1] === "step" ? { step: Number(place[2]) } : { row: Number(place[2]) };
  if (/^(step|row):/.test(text))
    throw invalid(`--from must be step:N or row:N with a whole number, not ${JSON.stringify(text)}.`, { from: text });
  const checkpoint = /^checkpoint(?::(.+))?$/.exec(text);
  if (!checkpoint && !/^(earliest$|latest$|\s*[{[])/.test(text))
    throw invalid(
      `--from ${JSON.stringify(text)} is no place to start. Use earliest, latest, step:N, row:N, checkpoint, checkpoint:ID, a cursor's JSON, or @FILE with one.`,
      { from: text },
    );
  if (checkpoint?.[1] !== undefined) return { checkpoint: checkpoint[1] };
  if (checkpoint) return await fromNewest(ns, group ?? "default", stopping.signal);
  return text === "earliest" || text === "latest" ? text : parseCursor(text);
}

async function fromNewest(ns: Namespace, group: string, signal: AbortSignal): Promise<StartFrom> {
  const newest = (await ns.checkpoints({ signal })).find((one) => one.group === group);
  if (newest) return { checkpoint: newest.id };
  const message = `There is no live checkpoint in group ${group} of ${ns.uri}: the group has none.`;
  throw new BatchWeaveError("NO_CHECKPOINT", message, { group });
}

async function readCursor(path: string, mayBeAbsent: boolean): Promise<Cursor | undefined> {
  try {
    return parseCursor(await readFile(path, "utf8"));
  } catch (cause) {
    if (isBatchWeaveError(cause)) throw cause;
    if (mayBeAbsent && (cause as NodeJS.ErrnoException).code === "ENOENT") return undefined;
    throw invalid(`The cursor file ${path} cannot be read: ${(cause as Error).message}.`, { path });
  }
}

export const command: Command = {
  usage: "URI [--dp D] [--cp C] [--tp T] [--pp P] [--rank R] [--from PLACE]",
  about:
    'Reads the shares of one rank until the log is closed. With --json it prints one line per iteration,\n{"iteration":N,"digest":"<sha256 of the share\'s bytes in order>"}. Mesh and rank default to RANK, WORLD_SIZE and friends.\nOne batch feeds any mesh: dp may be any size, cp must divide the chunks.',
  positionals: ["URI"],
  options: {
    dp: { value: "D", help: "Data-parallel size." },
    cp: { value: "C", help: "Context-parallel size (default 1)." },
    tp: { value: "T", help: "Tensor-parallel size (default 1); its ranks read the same bytes." },
    pp: { value: "P", help: "Pipeline-parallel size (default 1); its ranks read the same bytes." },
    ep: { value: "E", help: "Expert-parallel size (default 1)." },
    order: {
      value: "ORDER",
      help: "Rank order: megatron (default), megatron-pp-dp, torchtitan, or axes such as tp-cp-dp-pp.",
    },
    rank: { value: "R", help: "Which rank of the mesh." },
    from: {
      value: "PLACE",
      help: "earliest (default), latest, step:N, row:N, checkpoint[:ID], a cursor's JSON, or @FILE.",
    },
    policy: {
      value: "POLICY",
      help: "per-rank (default): dp rows an iteration. global-batch: one batch an iteration.",
    },
    layout: { value: "LAYOUT", help: "contiguous (default) or zigzag (Megatron)." },
    "rows-per-rank": { value: "N", help: "Rows of a rank in an iteration (default 1)." },
    "prefetch-bytes": { value: "B", help: "Bytes read ahead at most (default 256m)." },
    "wait-timeout": {
      value: "SECONDS",
      help: "Fail after waiting so long for a batch, or for the namespace (default 600).",
    },
    iterations: { value: "N", help: "Stop after so many iterations." },
    slices: { help: "With --json: add [step, row, chunk, sha256] of every slice." },
    "cursor-file": { value: "FILE", help: "Go on from this file if it is there; save the cursor in it." },
    "checkpoint-every": {
      value: "N",
      help: "Every N iterations: save the cursor, register a checkpoint iter-K in the log.",
    },
    "checkpoint-group": { value: "G", help: "The training run that checkpoints belong to (default: default)." },
    "keep-last": { value: "K", help: "Release all but the newest K checkpoints of the group." },
  },
  examples: [
    "batchweave consume file:///data/run --dp 4 --cp 2 --rank 0",
    "batchweave consume file:///data/run --dp 6 --rank 5 --from step:100 --json",
    "batchweave consume file:///data/run --checkpoint-every 50 --keep-last 3",
    "batchweave consume file:///data/run --from checkpoint:iter-150",
  ],
  isLong: true,
  run,
};
