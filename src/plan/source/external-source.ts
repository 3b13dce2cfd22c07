/** Sources that no process of this pipeline reads: processes of another kind fill their logs, and constructors take samples from there. */
import { BatchWeaveError } from "../../index.js";
import { hash32 } from "../mix/random.js";
import type { ShardFormat } from "./shard-reader.js";
import type { ResolvedSource, Source, SourceSettings } from "./source.js";

/** Settings of a source whose log others fill. Its order, its faults and its transforms are theirs. */
interface ExternalSettings extends Pick<SourceSettings, "weight" | "lanes"> {}

/** Settings of a source that a Python loader fills. */
interface PythonSettings extends ExternalSettings {
  /** A Python file and the name of a `batchweave.load.Source` in it: `books.py:books`. */
  readonly file: string | URL;
  /** Loader processes that a fleet starts for it. Default: the plan's, or 1. */
  readonly processes?: number | undefined;
}

const formatName = "external";

const externalFormat: ShardFormat = {
  name: formatName,
  division: () => "none",
  open: () => Promise.reject(notHere("")),
};

function notHere(name: string): BatchWeaveError {
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `Source ${name} is filled by other processes, so it cannot be read here. Construct from its log: exchange: "log" in the pipeline, and batchweave construct.`,
    { source: name },
  );
}

/** A source whose log others fill: Ray Data, a `SampleWriter` in Python, or anything that keeps the format. It ends when its log is closed. */
export function external(settings: ExternalSettings = {}): Source {
  return { format: externalFormat, shards: [], settings: { ...settings, epochs: 1 } };
}

/** A source whose loader is Python: `python -m batchweave load FILE:NAME`, which a fleet starts too. */
export function python({ file, processes, ...settings }: PythonSettings): Source {
  const path = file instanceof URL ? decodeURIComponent(file.pathname) : file;
  return { ...external(settings), python: { file: path, processes } };
}

/** Whether others fill a source's log. */
export function isExternal({ format }: Pick<Source, "format">): boolean {
  return format.name === formatName;
}

/** Refuses a pipeline that would have to read such a source itself. */
export function assertLogged(name: string, source: Source, isLog: boolean): void {
  if (isExternal(source) && !isLog) throw notHere(name);
}

/** Such a source where shards are looked for: it has none. */
export function externalSource(name: string, { format, settings }: Source): ResolvedSource {
  const limits = { samplesMax: 1, bytesMax: 1 };
  const fingerprint = hash32("external", name, settings.lanes ?? 0);
  return { name, format, shards: [], settings, sizes: [], missing: [], limits, fingerprint };
}
