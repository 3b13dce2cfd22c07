/** Which namespaces the page may look at: those at or below the place, and their families. Opened when first asked for. */
import { BatchWeaveError, type Env, isBatchWeaveError, type Namespace, type NamespaceListing } from "../index.js";
import { type Diagnose, LogViews, type ViewSettings } from "./log-views.js";
import { ViewCache } from "./view-cache.js";
import type { FamilyNode, FamilyView, OverviewRow, OverviewView } from "./views.js";

/** How the catalog reaches namespaces. */
export interface Access {
  readonly env: Env;
  open(uri: string, signal: AbortSignal): Promise<Namespace>;
  list(uri: string, signal: AbortSignal): AsyncIterable<NamespaceListing>;
  readonly diagnose: Diagnose;
}

const namespacesMax = 200;
const inFlightMax = 8;
const openMax = 64;
const familyMax = 64;
const overviewMs = 5_000;
const familyMs = 5_000;

/** Whether a URI names something below a place, without a way out of it. A link to it may be the first thing that is opened. */
function isBelow(root: string, uri: string): boolean {
  const place = `${root.replace(/\/+$/, "")}/`;
  if (!uri.startsWith(place) || /[?#\\]/.test(uri)) return false;
  return uri
    .slice(place.length)
    .split("/")
    .every((part) => /^(?!(\.|%2e){1,2}$)[^%]*(%(?!2f|5c|00)[0-9a-f]{2}[^%]*)*$/i.test(part) && part !== "");
}

/** The namespaces of one place. */
export class Catalog {
  readonly #root: string;
  readonly #access: Access;
  readonly #settings: ViewSettings;
  readonly #tokenizerName: string | undefined;
  readonly #cache: ViewCache;
  readonly #open = new Map<string, LogViews>();
  /** Addresses that a listing or a log named. Besides them only what lies below the place is opened, whatever a page asks for. */
  readonly #known: Set<string>;

  constructor(root: string, access: Access, settings: ViewSettings, tokenizerName: string | undefined) {
    this.#root = root;
    this.#access = access;
    this.#settings = settings;
    this.#tokenizerName = tokenizerName;
    this.#cache = new ViewCache(access.env);
    this.#known = new Set([root]);
  }

  /** The views of a namespace that the page was told of. */
  async views(uri: string, signal: AbortSignal): Promise<LogViews> {
    const known = this.#open.get(uri);
    if (known) return known;
    if (!this.#known.has(uri) && !isBelow(this.#root, uri)) {
      const message = `${uri} is not at or below ${this.#root}, nor of the family of a namespace there. Open a dashboard for it.`;
      throw new BatchWeaveError("INVALID_ARGUMENT", message, { uri });
    }
    const ns = await this.#cache.get(`open ${uri}`, 1_000, () => this.#access.open(uri, signal));
    const views = this.#open.get(uri) ?? new LogViews(ns, this.#access.env, this.#cache, this.#settings);
    this.#open.set(uri, views);
    const oldest = this.#open.keys().next().value;
    if (this.#open.size > openMax && oldest !== undefined) this.#open.delete(oldest);
    return views;
  }

  overview(signal: AbortSignal): Promise<OverviewView> {
    return this.#cache.get("overview", overviewMs, () => this.#overview(signal));
  }

  async #overview(signal: AbortSignal): Promise<OverviewView> {
    const found: NamespaceListing[] = [];
    let more = 0;
    // A namespace is asked for itself: listing all that is below it could take long.
    const own = await this.views(this.#root, signal).then(
      () => true,
      (error: unknown) => {
        if (isBatchWeaveError(error, "NO_NAMESPACE")) return false;
        throw error;
      },
    );
    if (own) return this.#overviewOf([{ uri: this.#root } as NamespaceListing], 0, true, signal);
    for await (const one of this.#access.list(this.#root, signal)) {
      if (found.length < namespacesMax) found.push(one);
      else if (++more >= 1_000) break;
    }
    return this.#overviewOf(found, more, false, signal);
  }

  async #overviewOf(
    found: readonly NamespaceListing[],
    more: number,
    isNamespace: boolean,
    signal: AbortSignal,
  ): Promise<OverviewView> {
    for (const { uri, problem } of found) if (problem === undefined) this.#known.add(uri);
    const rows: OverviewRow[] = new Array(found.length);
    let next = 0;
    const work = async (): Promise<void> => {
      for (let i = next++; i < found.length; i = next++)
        rows[i] = await this.#row(found[i] as NamespaceListing, signal);
    };
    await Promise.all(Array.from({ length: inFlightMax }, work));
    return { root: this.#root, isNamespace, namespaces: rows, more, tokenizer: this.#tokenizerName };
  }

  async #row({ uri, problem }: NamespaceListing, signal: AbortSignal): Promise<OverviewRow> {
    const below = uri.startsWith(this.#root) ? uri.slice(this.#root.length).replace(/^\/+/, "") : uri;
    const name = below || (uri.replace(/\/+$/, "").split("/").at(-1) ?? uri);
    if (problem !== undefined) return { uri, name, problem };
    try {
      const info = await (await this.views(uri, signal)).info(signal);
      return {
        uri,
        name,
        grid: info.grid,
        order: info.order.kind === "lanes" ? `${info.order.lanes} lane${info.order.lanes === 1 ? "" : "s"}` : "commit",
        closed: info.closed,
        steps: info.steps,
        lastCommitMs: info.version === 0 ? undefined : info.lastCommit.timeMs,
        producers: info.producers.length,
        checkpoints: info.checkpoints.length,
        forkOf: info.origins.at(-1)?.uri,
      };
    } catch (error) {
      if (!isBatchWeaveError(error) || signal.aborted) throw error;
      return { uri, name, problem: error.message };
    }
  }

  /** A namespace with its ancestors and all that was forked from any of them, as far as they can be reached. */
  family(uri: string, signal: AbortSignal): Promise<FamilyView> {
    return this.#cache.get(`family ${uri}`, familyMs, () => this.#family(uri, signal));
  }

  async #family(self: string, signal: AbortSignal): Promise<FamilyView> {
    const nodes = new Map<string, FamilyNode>();
    const queue = [self];
    const parents = new Map<string, Pick<FamilyNode, "parent" | "shared">>();
    let more = 0;
    for (let uri = queue.shift(); uri !== undefined; uri = queue.shift()) {
      if (nodes.has(uri)) continue;
      if (nodes.size >= familyMax) {
        more++;
        continue;
      }
      const base = { uri, isSelf: uri === self };
      try {
        const { steps, closed, forks, origins } = await (await this.views(uri, signal)).info(signal);
        nodes.set(uri, { ...base, parent: undefined, shared: undefined, steps, closed, problem: undefined });
        for (const fork of forks) {
          // The nearest ancestor that pins it is its parent; farther ones pin it too when it is a fork of a fork.
          const known = parents.get(fork.uri);
          if (!known?.shared || known.shared.to <= fork.to)
            parents.set(fork.uri, { parent: uri, shared: { from: fork.from, to: fork.to } });
        }
        for (const next of [...origins, ...forks]) {
          this.#known.add(next.uri);
          queue.push(next.uri);
        }
      } catch (error) {
        if (!isBatchWeaveError(error) || signal.aborted) throw error;
        const problem = error.message;
        nodes.set(uri, { ...base, parent: undefined, shared: undefined, steps: undefined, closed: undefined, problem });
      }
    }
    return { nodes: [...nodes.values()].map((node) => ({ ...node, ...parents.get(node.uri) })), more };
  }
}
