/**
 * A rehearsal of a pipeline, in a folder of its own: two producers, ranks that read while they write, one producer killed and replaced; then the
 * same once more by one undisturbed producer, to compare with.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isBatchWeaveError, type Namespace, openNamespace } from "../index.js";
import { auditPipeline, describeSummary, type Pipeline, type PipelineAudit } from "../plan/index.js";
import type { Call } from "./command.js";
import { Worker } from "./demo/worker.js";
import { compareReadings, digestsOf, failureOf, type SeenByRanks, startRanks } from "./rehearsal-ranks.js";

const stepsDefault = 40;
const lookDelayMs = 20;

/** Rehearses a pipeline and prints what came of it. Gives the exit status. */
export async function rehearse(call: Call, path: string, pipeline: Pipeline): Promise<number> {
  const { args, terminal, env, stopping } = call;
  const { namespace, steps: planned = stepsDefault } = pipeline.spec;
  const steps = args.integer("steps", { min: 1 }) ?? Math.min(planned, stepsDefault);
  const folder = await mkdtemp(join(tmpdir(), "batchweave-rehearsal-"));
  const rehearsal = new Rehearsal(call, path, pipeline, steps);
  try {
    terminal.note(
      `A rehearsal of ${steps} steps in a folder of its own; nothing is written to ${namespace.uri}. To do so: batchweave run ${path} --id p0`,
    );
    const begun = env.monotonic();
    const { ns, digests, seen } = await rehearsal.disturbed(pathToFileURL(join(folder, "killed")).href);
    const audit = await auditPipeline(pipeline, ns, { env, signal: stopping.signal });
    const isSame =
      ns.order.kind === "lanes" ? await rehearsal.isSame(digests, pathToFileURL(join(folder, "calm")).href) : undefined;
    const wallMs = Math.round(env.monotonic() - begun);
    const ok = audit.lost + audit.repeated + seen.lost + seen.repeated + seen.differing === 0 && isSame !== false;
    terminal.result({ ok, wallMs, summary: audit.summary, audit: { ...audit, summary: undefined }, seen, isSame }, () =>
      describe(audit, seen, isSame),
    );
    return ok ? 0 : 1;
  } finally {
    await rehearsal.end();
    await rm(folder, { recursive: true, force: true });
  }
}

function describe(audit: PipelineAudit, seen: SeenByRanks, isSame: boolean | undefined): string {
  const [least, most] = [Math.min(...seen.iterations), Math.max(...seen.iterations)];
  return [
    describeSummary(audit.summary, audit),
    `${seen.ranks} ranks read ${least === most ? least : `${least} to ${most}`} iterations each: lost ${seen.lost}, repeated ${seen.repeated}${seen.differing > 0 ? `, OTHER BYTES in ${seen.differing}` : ""}`,
    isSame === undefined
      ? "In commit order another run has another order, so there is no undisturbed run to compare with."
      : `one undisturbed producer writes ${isSame ? "the same log, bit for bit" : "ANOTHER LOG"}`,
  ].join("\n");
}

/** The processes of a rehearsal. */
class Rehearsal {
  readonly #call: Call;
  readonly #path: string;
  readonly #pipeline: Pipeline;
  readonly #steps: number;
  readonly #workers = new Set<Worker>();

  constructor(call: Call, path: string, pipeline: Pipeline, steps: number) {
    this.#call = call;
    this.#path = path;
    this.#pipeline = pipeline;
    this.#steps = steps;
  }

  /** Two producers, one of them killed and replaced, and ranks that read to the end. */
  async disturbed(
    uri: string,
  ): Promise<{ readonly ns: Namespace; readonly digests: string[]; readonly seen: SeenByRanks }> {
    const { terminal, stopping } = this.#call;
    const halves = this.#halves();
    const producers = halves.map((half, i) => this.#producer(uri, `p${i}`, half));
    const victim = producers.length - 1;
    const ns = await this.#until(uri, 0, producers);
    const ranks = startRanks(ns, (worker) => this.#start(worker));
    terminal.note(`producers: ${producers.length}, ranks that read: ${ranks.length}`);
    await this.#until(uri, Math.ceil(this.#steps / 4), producers);
    const one = producers[victim] as Worker;
    await one.kill();
    const { end } = (await ns.info({ signal: stopping.signal })).steps;
    const isKilled = (await one.ended).signal === "SIGKILL";
    terminal.note(
      isKilled
        ? `kill -9 of p${victim} with the log at step ${end}; a replacement takes over`
        : `p${victim} had finished before it could be killed: rehearse with more --steps`,
    );
    producers[victim] = this.#producer(uri, `p${victim}`, halves[victim] as readonly string[]);
    await Promise.all(producers.map((producer) => this.#success(producer)));
    await this.#close(ns);
    await Promise.all(ranks.map(({ worker }) => this.#success(worker)));
    const digests = await digestsOf(ns, stopping.signal);
    const readings = ranks.map((rank) => rank.readings);
    return { ns, digests, seen: compareReadings(readings, digests, ns.grid) };
  }

  /** Whether one producer, undisturbed, writes the same. */
  async isSame(digests: readonly string[], uri: string): Promise<boolean> {
    const { terminal, stopping } = this.#call;
    terminal.note("the same once more, by one producer that no other disturbs");
    await this.#success(this.#producer(uri, "p0", []));
    const calm = await digestsOf(await openNamespace(uri, { signal: stopping.signal }), stopping.signal);
    return calm.length === digests.length && calm.every((digest, i) => digest === digests[i]);
  }

  /** Leaves no process behind. */
  async end(): Promise<void> {
    await Promise.all([...this.#workers].map((worker) => worker.kill().catch(() => {})));
  }

  /** What each producer is told to do, so that they share the work. */
  #halves(): readonly (readonly string[])[] {
    const { order = "lanes", lanes = 4 } = this.#pipeline.spec.namespace;
    if (order === "commit") return [0, 1].map((part) => ["--part", `${part}/2`]);
    const middle = lanes >> 1;
    if (middle === 0) return [[]];
    return [
      ["--lanes", `0-${middle - 1}`],
      ["--lanes", `${middle}-${lanes - 1}`],
    ];
  }

  #producer(uri: string, id: string, half: readonly string[]): Worker {
    const where = ["--namespace", uri, "--steps", String(this.#steps), "--no-audit", "--durability", "process-crash"];
    return this.#start(new Worker(id, ["run", this.#path, "--id", id, ...half, ...where, "--json"], () => {}));
  }

  /** Sources that end before the steps do leave the end to a process that holds everything; parts leave it to us. */
  async #close(ns: Namespace): Promise<void> {
    if ((await ns.info()).closed) return;
    if (ns.order.kind === "lanes") await this.#success(this.#producer(ns.uri, "p0", []));
    if (!(await ns.info()).closed) await ns.endLog();
  }

  #start(worker: Worker): Worker {
    this.#workers.add(worker);
    const forget = (): boolean => this.#workers.delete(worker);
    worker.ended.then(forget, forget);
    return worker;
  }

  /** Waits until the log is there and has come to a step, or a producer has ended. */
  async #until(uri: string, step: number, producers: readonly Worker[]): Promise<Namespace> {
    const { env, stopping } = this.#call;
    let isEnded = false;
    // Rejects when a producer fails: ranks must not wait for a log that never comes.
    const ended = Promise.race(producers.map((producer) => this.#success(producer))).then(() => {
      isEnded = true;
    });
    ended.catch(() => {});
    for (;;) {
      const ns = await openNamespace(uri, { signal: stopping.signal }).catch((error: unknown) => {
        if (isBatchWeaveError(error, "NO_NAMESPACE")) return undefined;
        throw error;
      });
      if (ns && (isEnded || (await ns.info({ signal: stopping.signal })).steps.end >= step)) return ns;
      await Promise.race([env.sleep(lookDelayMs, stopping.signal), ended]);
    }
  }

  /** The end of a process; its failure is ours, in its own words. */
  async #success(worker: Worker): Promise<void> {
    const { code, signal } = await worker.ended;
    this.#call.stopping.signal.throwIfAborted();
    if (code === 0 || signal === "SIGKILL") return;
    throw failureOf(worker, code ?? signal);
  }
}
