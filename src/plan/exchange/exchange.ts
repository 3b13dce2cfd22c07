/**
 * The exchange between loaders and constructors. Direct: in memory, within one process. Log: a log for each source, so that any number of processes load,
 * any number construct, and every hop is durable, ordered and exactly once. What a pipeline's file says of it, resolved.
 */
import {
  BatchWeaveError,
  createNamespace,
  isBatchWeaveError,
  type Namespace,
  type NamespaceOptions,
  type ObjectStore,
  openNamespace,
} from "../../index.js";

/** How a pipeline exchanges samples through logs. */
export interface ExchangeSettings {
  readonly kind: "log";
  /** Where the source logs lie, one by its source's name. Default: the pipeline's namespace with `.sources` behind it. */
  readonly uri?: string | undefined;
  /** A block ends with whichever comes first. Defaults: 4 MiB, 4,096 samples. They decide which samples a block holds. */
  readonly blockBytes?: number | undefined;
  readonly blockSamples?: number | undefined;
  /** Blocks that loaders may be ahead of the constructors. Default 32; never less than two for each lane. */
  readonly aheadBlocks?: number | undefined;
  /** How long blocks are kept. `checkpoints`: as long as a live checkpoint of the training log may need them. Default "checkpoints". */
  readonly keep?: "checkpoints" | "forever" | undefined;
}

/** The same with its defaults. */
export interface Exchange {
  readonly uri: string;
  readonly blockBytes: number;
  readonly blockSamples: number;
  readonly aheadBlocks: number;
  readonly keep: "checkpoints" | "forever";
}

/** Grid of a source log: one row; its table, and its samples. */
const sourceGrid = { rows: 1, chunks: 2 };

/** Lanes of a source log, where its source does not say. */
const sourceLanesDefault = 4;

const sourceNames = /^[A-Za-z0-9][A-Za-z0-9._-]{0,127}$/;

/** What a pipeline's file says, with defaults; undefined: samples are exchanged in memory. */
export function exchangeOf(
  given: "direct" | "log" | ExchangeSettings | undefined,
  target: { readonly uri: string; readonly lanes: number },
): Exchange | undefined {
  if (given === undefined || given === "direct") return undefined;
  const { uri, blockBytes, blockSamples, aheadBlocks, keep }: Omit<ExchangeSettings, "kind"> =
    given === "log" ? {} : given;
  const [, place, query = ""] = /^([^?#]*?)\/*([?#].*)?$/s.exec(target.uri) as RegExpExecArray;
  return {
    uri: uri ?? `${place}.sources${query}`,
    blockBytes: blockBytes ?? 4_194_304,
    blockSamples: blockSamples ?? 4_096,
    aheadBlocks: Math.max(aheadBlocks ?? 32, 2 * target.lanes),
    keep: keep ?? "checkpoints",
  };
}

/** The exchange of a pipeline whose training log is at `uri`: elsewhere than its file says, its source logs are elsewhere too. */
export function exchangeAt(
  {
    namespace,
    exchange,
  }: {
    readonly namespace: { readonly uri: string; readonly lanes?: number | undefined };
    readonly exchange?: "direct" | "log" | ExchangeSettings | undefined;
  },
  uri: string,
): Exchange | undefined {
  const given = typeof exchange === "object" && uri !== namespace.uri ? { ...exchange, uri: undefined } : exchange;
  return exchangeOf(given, { uri, lanes: namespace.lanes ?? 4 });
}

/** The folder of a pipeline's source logs; undefined where samples are exchanged in memory. */
export function sourceLogsUri(pipeline: { readonly spec: Parameters<typeof exchangeAt>[0] }): string | undefined {
  return exchangeAt(pipeline.spec, pipeline.spec.namespace.uri)?.uri;
}

/** A source that has a log. */
interface LoggedSource {
  readonly name: string;
  readonly settings: { readonly lanes?: number | undefined };
}

/** Lanes of a source's log. */
export function sourceLanes({ settings }: LoggedSource): number {
  return settings.lanes ?? sourceLanesDefault;
}

/** The address of a source's log. */
export function sourceLogUri({ uri }: Exchange, { name }: LoggedSource): string {
  if (!sourceNames.test(name))
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Source ${JSON.stringify(name)} cannot have a log: with exchange "log" names are made of letters, digits, ".", "_" and "-". Rename it.`,
      { source: name },
    );
  const [, place, query = ""] = /^([^?#]*?)\/*([?#].*)?$/s.exec(uri) as RegExpExecArray;
  return `${place}/${name}${query}`;
}

/** Stores of a caller's own. */
export interface StorePlaces {
  /** The store at an address; it is used as it is, without our retries. Default: what the address says. */
  readonly storeAt?: ((uri: string) => ObjectStore) | undefined;
}

/** The options with which a log at an address is opened. */
export function optionsAt({ storeAt, ...options }: NamespaceOptions & StorePlaces, uri: string): NamespaceOptions {
  return storeAt ? { ...options, store: storeAt(uri) } : options;
}

/** Opens the log of a source, or creates it: loaders and constructors may come in any order. */
export async function openSourceLog(
  exchange: Exchange,
  source: LoggedSource,
  given: NamespaceOptions & StorePlaces,
): Promise<Namespace> {
  const lanes = sourceLanes(source);
  const uri = sourceLogUri(exchange, source);
  const options = optionsAt(given, uri);
  const found = await openNamespace(uri, options).catch((error: unknown) => {
    if (isBatchWeaveError(error, "NO_NAMESPACE")) return undefined;
    throw error;
  });
  const ns = found ?? (await createNamespace(uri, { grid: sourceGrid, order: "lanes", lanes }, options));
  const { order, grid } = ns;
  if (order.kind !== "lanes" || order.lanes !== lanes || grid.rows !== 1 || grid.chunks !== 2)
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `${uri} was made with ${order.kind === "lanes" ? `${order.lanes} lanes` : "commit order"} and a grid of ${grid.rows} x ${grid.chunks}; source ${source.name} wants ${lanes} lanes and 1 x 2. Say lanes: ${order.kind === "lanes" ? order.lanes : lanes} in the source, or let the exchange begin elsewhere (exchange.uri).`,
      { source: source.name, uri },
    );
  const ahead = Math.max(exchange.aheadBlocks, 2 * lanes);
  const { maxLag, closed } = await ns.info({ signal: options.signal });
  if (maxLag !== ahead && !closed) await ns.setMaxLag(ahead, { signal: options.signal });
  return ns;
}
