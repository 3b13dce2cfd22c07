/**
 * What sources cost that other programs load. A Python loader measures itself (`python -m batchweave load --measure`). Of a source that any program may fill, only what
 * a constructor takes is known, from the blocks that are in its log; who fills it is not ours to size.
 */
import { spawn } from "node:child_process";
import { BatchWeaveError, checkSample, decodeSampleTable, isBatchWeaveError, openNamespace } from "../../index.js";
import { exchangeAt, sourceLanes, sourceLogUri } from "../exchange/exchange.js";
import { decodeSample } from "../exchange/sample-codec.js";
import { metaOf } from "../load/prepared-sample.js";
import type { ResolvedPipeline } from "../run/pipeline.js";
import type { ResolvedSource, Source } from "../source/source.js";
import type { ProfiledSample, SourceProfile } from "./source-profile.js";

/** A measurement's bounds. */
interface OwnLimits {
  readonly samplesMax: number;
  readonly msMax: number;
}

interface Measured {
  readonly profile: SourceProfile;
  readonly samples: readonly ProfiledSample[];
}

/** What `load --measure` prints. */
interface PythonMeasure
  extends Pick<SourceProfile, "samples" | "faults" | "tokens" | "pieces" | "readMs" | "loaderMs"> {
  readonly lanes: number;
  readonly readyBytes: number;
  readonly processBytes: number;
  readonly workerBytes: number;
  /** Table and samples of a block, in base64. */
  readonly block: readonly [string, string];
}

const answerBytesMax = 256_000_000;
/** Blocks of a log that are looked at for one that holds samples. */
const blocksMax = 64;

/** Measures a source that is not loaded from the pipeline's file. */
export async function profileOwn(
  source: ResolvedSource,
  pipeline: ResolvedPipeline,
  limits: OwnLimits,
  signal?: AbortSignal | undefined,
): Promise<Measured> {
  const { python } = pipeline.spec.sources[source.name] as Source;
  return python
    ? await profilePython(source.name, python.file, limits, signal)
    : await profileLog(source, pipeline, signal);
}

async function profilePython(
  name: string,
  file: string,
  { samplesMax, msMax }: OwnLimits,
  signal: AbortSignal | undefined,
): Promise<Measured> {
  const program = process.env["BATCHWEAVE_PYTHON"] ?? "python3";
  const bounds = ["--measure", String(samplesMax), "--seconds", String(msMax / 1_000)];
  const found = await ask(name, program, ["-m", "batchweave", "load", file, ...bounds, "--json"], signal);
  const [table, payload] = found.block.map((text) => Uint8Array.from(Buffer.from(text, "base64")));
  const samples = samplesOf(name, table as Uint8Array, payload as Uint8Array, `The measured samples of source ${name}`);
  const own = { processBytes: found.processBytes, workerBytes: found.workerBytes };
  return { profile: profileOf(name, { ...found, lanesMax: found.lanes, own }), samples };
}

async function profileLog(
  source: ResolvedSource,
  { spec }: ResolvedPipeline,
  signal: AbortSignal | undefined,
): Promise<Measured> {
  const { name, settings } = source;
  const exchange = exchangeAt(spec, spec.namespace.uri);
  const uri = exchange ? sourceLogUri(exchange, { name, settings }) : "";
  const ns = await openNamespace(uri, { storeSettings: spec.storeSettings }).catch((error: unknown) => {
    if (isBatchWeaveError(error, "NO_NAMESPACE")) throw nothingYet(name, uri);
    throw error;
  });
  const { steps } = await ns.info({ signal });
  const reader = ns.stepReader();
  for (let step = Math.max(steps.trim, steps.end - blocksMax); step < steps.end; step++) {
    const [table, payload] = await Promise.all(
      [0, 1].map((chunk) => reader.slice({ step, row: 0, chunk }, { signal })),
    );
    const samples = samplesOf(name, table as Uint8Array, payload as Uint8Array, `Block ${step} of source ${name}`);
    if (samples.length === 0) continue;
    const tokens = samples.reduce((sum, { meta }) => sum + meta.tokens, 0) / samples.length;
    const readyBytes = (payload as Uint8Array).length / samples.length;
    const costs = { samples: samples.length, faults: 0, tokens, pieces: 1, readMs: 0, loaderMs: 0, readyBytes };
    const lanes = sourceLanes(source);
    return {
      profile: profileOf(name, { ...costs, lanes, lanesMax: lanes, own: { processBytes: 0, workerBytes: 0 } }),
      samples,
    };
  }
  throw nothingYet(name, uri);
}

type OwnCosts = Pick<
  SourceProfile,
  "samples" | "faults" | "tokens" | "pieces" | "readMs" | "loaderMs" | "readyBytes" | "lanes" | "lanesMax" | "own"
>;

function profileOf(source: string, costs: OwnCosts): SourceProfile {
  const { samples, faults, tokens, pieces, readMs, loaderMs, readyBytes, lanes, lanesMax, own } = costs;
  const elsewhere = { shards: 0, shardBytes: 0, constructorMs: 0, reads: 0, readBytes: 0, windowBytes: 0 };
  return { source, samples, faults, tokens, pieces, readMs, loaderMs, readyBytes, lanes, lanesMax, own, ...elsewhere };
}

function samplesOf(source: string, table: Uint8Array, payload: Uint8Array, where: string): ProfiledSample[] {
  return decodeSampleTable(table, payload.length, where).samples.map((entry) => {
    const bytes = payload.subarray(entry.offset, entry.offset + entry.length);
    const value = decodeSample(checkSample(bytes, entry, where), where, entry.features);
    return { meta: metaOf(value, source, entry.id, entry.length), value };
  });
}

function nothingYet(name: string, uri: string): BatchWeaveError {
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Source ${name} is filled by a program of its own, and there is no block of it at ${uri} yet to see what its samples are. Let that program write some, then size the pipeline again.`,
    { source: name, uri },
  );
}

/** Runs the loader; its own words go into the message. */
async function ask(
  name: string,
  program: string,
  args: readonly string[],
  signal: AbortSignal | undefined,
): Promise<PythonMeasure> {
  const [code, out, errors] = await new Promise<readonly [number | null, string, string]>((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["ignore", "pipe", "pipe"], signal });
    const [parts, said]: [Buffer[], Buffer[]] = [[], []];
    let size = 0;
    child.stdout.on("data", (chunk: Buffer) => {
      size += chunk.length;
      if (size <= answerBytesMax) parts.push(chunk);
    });
    child.stderr.on("data", (chunk: Buffer) => {
      if (said.length < 1_000) said.push(chunk);
    });
    child.once("error", (error: NodeJS.ErrnoException) => {
      if (signal?.aborted || error.code !== "ENOENT") reject(signal?.aborted ? signal.reason : error);
      else
        reject(
          new BatchWeaveError(
            "MISSING_PACKAGE",
            `Source ${name} is loaded by Python, and there is no program ${program} here. Install it, or say where it is with BATCHWEAVE_PYTHON.`,
            { program },
            error,
          ),
        );
    });
    child.once("close", (status) => resolve([status, String(Buffer.concat(parts)), String(Buffer.concat(said))]));
  });
  if (code === 0) return JSON.parse(out) as PythonMeasure;
  const last = errors.trim().split("\n").at(-1) ?? `status ${code}`;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Source ${name} could not be measured by its Python loader: ${last.replace(/^error\[\w+\]: /, "")}. Try it with: ${program} ${args.slice(0, -1).join(" ")}`,
    { source: name, status: code },
  );
}
