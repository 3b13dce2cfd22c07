/** `batchweave produce`: synthetic batches that can be checked, or one batch from files. */
import { readFile } from "node:fs/promises";
import {
  availableEncodings,
  BatchWeaveError,
  type Namespace,
  type Producer,
  type SliceEncoding,
  safetensorsType,
} from "../../index.js";
import { invalid } from "../arguments.js";
import type { Call, Command } from "../command.js";
import { LifeSigns } from "../life-signs.js";
import { syntheticBatch } from "../synthetic.js";
import { counted, formatBytes } from "../terminal.js";

const sliceBytesDefault = 65_536;

/** What one run wrote. */
interface Summary {
  readonly producer: string;
  readonly epoch: number;
  /** Batches of this id in the log, before and after. */
  readonly from: number;
  readonly to: number;
  readonly bytes: number;
}

async function run(call: Call): Promise<undefined> {
  const { args, terminal, open, stopping } = call;
  const id = args.required("id");
  const plan = readPlan(call);
  const ns = await open();
  const files = await readBatch(call, ns);
  const written = await writtenBefore(ns, id, files ? Number.POSITIVE_INFINITY : plan.batches, stopping.signal);
  if (written) {
    terminal.result(written, `${id} (epoch ${written.epoch}) ${wroteText(written)}; the log is closed`);
    return undefined;
  }
  const producer = await ns.producer({
    id,
    takeover: args.flag("no-takeover") ? "when-quiet" : undefined,
    encoding: plan.encoding,
    cadence: plan.intervalMs === undefined ? undefined : { kind: "interval", intervalMs: plan.intervalMs },
    onLagWait: (message) => terminal.note(message),
    signal: stopping.signal,
  });
  await using signs = new LifeSigns(call);
  signs.begin(ns, {
    role: "producer",
    name: id,
    facts: () => ({ epoch: producer.epoch, pending: producer.pendingBatches }),
  });
  const summary = files ? await appendFiles(call, producer, files) : await appendSynthetic(call, ns, producer, plan);
  const closed = args.flag("close") && !stopping.stopped;
  const end = closed ? (await ns.endLog()).end : undefined;
  terminal.result(
    { ...summary, ...(closed ? { closed, end } : {}) },
    `${id} (epoch ${summary.epoch}) ${wroteText(summary)}${closed ? `; the log is closed at step ${end}` : ""}`,
  );
  return undefined;
}

/** A closed log takes nothing more, not even an opening: either all of it was written before, or it cannot be. */
async function writtenBefore(
  ns: Namespace,
  id: string,
  batches: number,
  signal: AbortSignal,
): Promise<Summary | undefined> {
  const { closed, producers, steps } = await ns.info({ signal });
  if (!closed) return undefined;
  const { epoch = 0, seq = 0 } = producers.find((producer) => producer.id === id) ?? {};
  if (seq >= batches) return { producer: id, epoch, from: seq, to: seq, bytes: 0 };
  throw new BatchWeaveError(
    "CLOSED",
    `The log is closed at step ${steps.end} with ${counted(seq, "batch")} of ${id}; nothing can be appended. Create or fork a namespace to go on.`,
    { end: steps.end, producer: id, batches: seq },
  );
}

function wroteText({ from, to, bytes }: { from: number; to: number; bytes: number }): string {
  if (from === to)
    return `wrote nothing: ${counted(from, "batch")} of it ${from === 1 ? "is" : "are"} in the log already`;
  return `wrote batches ${from} to ${to - 1}: ${counted(to - from, "batch")}, ${formatBytes(bytes)}`;
}

interface Plan {
  /** Batches of this id in the log when done. */
  readonly batches: number;
  readonly sliceBytes: number;
  readonly perSecond: number | undefined;
  readonly asTensors: boolean;
  readonly samples: number;
  readonly encoding: SliceEncoding | undefined;
  readonly intervalMs: number | undefined;
}

/** Everything that can be refused is refused before the id is opened, because opening is a commit. */
function readPlan({ args }: Call): Plan {
  const encoding = args.word("encoding", ["none", "zstd"] as const);
  if (encoding !== undefined && !availableEncodings.includes(encoding)) {
    throw invalid(`This platform cannot encode ${encoding}; it has ${availableEncodings.join(", ")}.`, { encoding });
  }
  return {
    batches: args.integer("batches") ?? Number.POSITIVE_INFINITY,
    sliceBytes: args.integer("bytes", { min: 1, max: 2 ** 31 }) ?? sliceBytesDefault,
    perSecond: args.number("rate"),
    asTensors: args.flag("tensors"),
    samples: args.integer("samples", { max: 1_000_000 }) ?? 0,
    encoding,
    intervalMs: args.integer("interval"),
  };
}

/** The position of a synthetic producer: how many batches it has made. */
function counterOf(resumePoint: unknown): number {
  const batch = (resumePoint as { batch?: unknown } | undefined)?.batch ?? 0;
  if (Number.isSafeInteger(batch) && (batch as number) >= 0) return batch as number;
  throw invalid(
    `This id's resume point is ${JSON.stringify(resumePoint)}, which synthetic batches did not write. Use another --id.`,
    { resumePoint },
  );
}

async function appendSynthetic(
  { terminal, stopping, env, metrics }: Call,
  ns: Namespace,
  producer: Producer,
  plan: Plan,
): Promise<Summary> {
  const from = counterOf(producer.resumePoint);
  const { signal } = stopping;
  const begun = env.monotonic();
  let [next, bytes] = [from, 0];
  const total = Number.isFinite(plan.batches) ? Math.max(0, plan.batches - from) : undefined;
  const show = (): void => {
    const committed = metrics.value("batchweave_batches_committed_total");
    const rate = formatBytes((1_000 * bytes) / Math.max(1, env.monotonic() - begun));
    terminal.progress(producer.id, committed, total, `${rate}/s accepted`);
  };
  try {
    while (next < plan.batches && !signal.aborted) {
      const slices = syntheticBatch({ ...plan, producer: producer.id, counter: next, grid: ns.grid });
      await producer.append(slices, {
        resumePoint: { batch: next + 1 },
        contentType: plan.asTensors ? safetensorsType : "application/octet-stream",
        lineage: plan.samples > 0 ? syntheticSamples(producer.id, next, plan.samples, ns.grid.rows) : undefined,
        signal,
      });
      next++;
      bytes += slices.reduce((sum, slice) => sum + slice.length, 0);
      show();
      if (plan.perSecond)
        await env.sleep(Math.max(0, begun + (1_000 * (next - from)) / plan.perSecond - env.monotonic()), signal);
    }
  } catch (error) {
    // Told to stop: what was accepted is still brought into the log below.
    if (!signal.aborted) throw error;
  }
  await producer.close();
  show();
  return { producer: producer.id, epoch: producer.epoch, from, to: next, bytes };
}

function syntheticSamples(producer: string, counter: number, count: number, rows: number) {
  return Array.from({ length: count }, (_, i) => ({
    source: "synthetic",
    id: `${producer}/${counter}/${i}`,
    tokens: 1 + ((counter * 31 + i * 7) % 2_048),
    row: i % rows,
  }));
}

interface FileBatch {
  readonly slices: readonly Uint8Array[];
  readonly resumePoint: unknown;
  readonly contentType: string | undefined;
}

async function readBatch({ args }: Call, ns: Namespace): Promise<FileBatch | undefined> {
  const resumeText = args.text("resume-point");
  const paths = args.text("slices")?.split(",");
  if (!paths) {
    if (resumeText !== undefined) throw invalid("--resume-point goes with --slices; synthetic batches have their own.");
    return undefined;
  }
  const { rows, chunks } = ns.grid;
  if (paths.length !== rows * chunks) {
    throw invalid(
      `A batch of this namespace has ${rows * chunks} slices (${rows} rows x ${chunks} chunks), and --slices names ${paths.length} files. Name one file for each, row by row.`,
      { expected: rows * chunks, found: paths.length },
    );
  }
  const resumePoint = resumeText === undefined ? undefined : parseResumePoint(resumeText);
  const slices = await Promise.all(paths.map(readSliceFile));
  return { slices, resumePoint, contentType: args.text("content-type") };
}

function parseResumePoint(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    throw invalid(
      `The resume point ${JSON.stringify(text)} is not JSON. Quote it for the shell, as in --resume-point '{"offset": 12}'.`,
      { resumePoint: text },
    );
  }
}

async function readSliceFile(path: string): Promise<Uint8Array> {
  try {
    return await readFile(path);
  } catch (cause) {
    throw invalid(`The slice file ${path} cannot be read: ${(cause as Error).message}.`, { path });
  }
}

async function appendFiles({ stopping }: Call, producer: Producer, batch: FileBatch): Promise<Summary> {
  const { slices, resumePoint, contentType } = batch;
  const ticket = await producer.append(slices, { resumePoint, contentType, signal: stopping.signal });
  await producer.close();
  const bytes = slices.reduce((sum, slice) => sum + slice.length, 0);
  return { producer: producer.id, epoch: producer.epoch, from: ticket.seq, to: ticket.seq + 1, bytes };
}

export const command: Command = {
  usage: "URI --id ID [--batches N] [--bytes B] [--rate R] [--close]",
  about:
    "Writes synthetic batches whose bytes follow from the id and a counter, until this id has N batches in the log; without\n--batches until it is stopped. Killed and started again it goes on where the log says it was. With --slices it writes one\nbatch from files instead. Opening an id fences its holder.",
  positionals: ["URI"],
  options: {
    id: { value: "ID", help: "Stable producer id; lane-K in lanes order." },
    batches: { value: "N", help: "Batches of this id in the log when done." },
    bytes: { value: "B", help: "Bytes of each slice, such as 100000, 64k, 1m (default 64k)." },
    rate: { value: "R", help: "Batches a second at most." },
    interval: { value: "MS", help: "Time between commits (default 200)." },
    tensors: { help: "Slices are safetensors files (input_ids, labels) of about that size." },
    encoding: { value: "NAME", help: "none (default) or zstd, where the platform has it." },
    samples: { value: "N", help: "Record lineage of N made-up samples with each batch." },
    "no-takeover": { help: "Fail with FENCED when the id was opened or wrote within the last 30 seconds." },
    slices: { value: "FILE,...", help: "One batch from these files, row by row, instead of synthetic ones." },
    "resume-point": { value: "JSON", help: "With --slices: the position to keep with the batch." },
    "content-type": { value: "TYPE", help: "With --slices: what the slices hold." },
    close: { help: "Close the log when done." },
  },
  examples: [
    "batchweave produce file:///data/run --id p0 --batches 100 --bytes 1m",
    "batchweave produce file:///data/run --id p0 --rate 5 --metrics 9464",
    `batchweave produce file:///data/run --id p1 --slices a.bin,b.bin --resume-point '{"offset": 2}'`,
  ],
  isLong: true,
  run,
};
