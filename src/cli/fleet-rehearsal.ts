/**
 * A rehearsal of a fleet, in a folder of its own: loaders, constructors and ranks as real processes; for a while some are killed, added and removed at random.
 * Then the same once more by one undisturbed process, to compare with.
 */
import { mkdtemp, rm } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { isBatchWeaveError, type Namespace, openNamespace } from "../index.js";
import { auditPipeline, describeSummary, type Pipeline, type SourceFigures } from "../plan/index.js";
import type { Call } from "./command.js";
import { Worker } from "./demo/worker.js";
import { compareReadings, digestsOf, failureOf, type Reading, startRanks } from "./rehearsal-ranks.js";

const rolesOf = ["load", "construct"] as const;
type Role = (typeof rolesOf)[number];

const secondsDefault = 60;
/** Processes of a role at a time. */
const processesMax = 3;

interface Process {
  readonly role: Role;
  readonly worker: Worker;
  /** It was told to leave. */
  isLeaving: boolean;
}

/** Rehearses a fleet and prints what came of it. Gives the exit status. */
export async function rehearseFleet(call: Call, path: string, pipeline: Pipeline): Promise<number> {
  const { args, terminal, env, stopping } = call;
  const folder = await mkdtemp(join(tmpdir(), "batchweave-rehearsal-"));
  const steps = args.integer("steps", { min: 1 });
  const fleet = new FleetRehearsal(call, path, pathToFileURL(join(folder, "disturbed")).href, steps);
  try {
    terminal.note(`A rehearsal in a folder of its own; nothing is written to ${pipeline.spec.namespace.uri}.`);
    const begun = env.monotonic();
    const { ns, disturbances, ranks } = await fleet.disturbed((args.integer("seconds") ?? secondsDefault) * 1_000);
    const digests = await digestsOf(ns, stopping.signal);
    const seen = compareReadings(ranks, digests, ns.grid);
    const audit = await auditPipeline(pipeline, ns, { env, signal: stopping.signal });
    const problems = await problemsOf(ns, pipeline, (steps ?? pipeline.spec.steps) === undefined, stopping.signal);
    terminal.note("the same once more, by one process that no other disturbs");
    const calmUri = pathToFileURL(join(folder, "calm")).href;
    const sources = await fleet.calm(calmUri);
    const calm = await digestsOf(await openNamespace(calmUri, { signal: stopping.signal }), stopping.signal);
    const isSame = calm.length === digests.length && calm.every((digest, i) => digest === digests[i]);
    const wrong = audit.lost + audit.repeated + seen.lost + seen.repeated + seen.differing + problems;
    const ok = wrong === 0 && isSame;
    const read = sources.reduce((sum, { readBytes }) => sum + readBytes, 0);
    const size = sources.reduce((sum, { rawBytes }) => sum + rawBytes, 0);
    const wallMs = Math.round(env.monotonic() - begun);
    const { summary, ...counts } = audit;
    terminal.result(
      { ok, wallMs, disturbances, summary, audit: counts, seen, problems, isSame, readBytes: read, rawBytes: size },
      () =>
        [
          describeSummary(summary, audit),
          `${disturbances.killed} processes killed, ${disturbances.removed} removed, ${disturbances.added} added`,
          `${seen.ranks} ranks: lost ${seen.lost}, repeated ${seen.repeated}${seen.differing > 0 ? `, OTHER BYTES in ${seen.differing}` : ""}; verify of all logs: ${problems === 0 ? "clean" : `${problems} PROBLEMS`}`,
          `one undisturbed process writes ${isSame ? "the same log, bit for bit" : "ANOTHER LOG"}; it read ${read} bytes of sources that hold ${size}`,
        ].join("\n"),
    );
    return ok ? 0 : 1;
  } finally {
    await fleet.end();
    await rm(folder, { recursive: true, force: true });
  }
}

/** Problems that verify finds in the training log and in the log of each source. */
async function problemsOf(ns: Namespace, pipeline: Pipeline, mustEnd: boolean, signal: AbortSignal): Promise<number> {
  const uris = Object.keys(pipeline.spec.sources).map((name) => `${ns.uri}.sources/${name}`);
  const logs = [ns, ...(await Promise.all(uris.map((uri) => openNamespace(uri, { signal }))))];
  const reports = await Promise.all(logs.map((log) => log.verify({}, { signal })));
  const open = await Promise.all(logs.map(async (log) => ((await log.info({ signal })).closed ? 0 : 1) as number));
  // With steps, sources have not ended, and their logs are open.
  return (
    reports.reduce((sum, { problems }) => sum + problems.length, 0) +
    open.slice(0, mustEnd ? undefined : 1).reduce((sum, n) => sum + n, 0)
  );
}

class FleetRehearsal {
  readonly #call: Call;
  readonly #path: string;
  readonly #uri: string;
  readonly #steps: number | undefined;
  readonly #processes = new Set<Process>();
  readonly #others = new Set<Worker>();
  #failure: Error | undefined;

  constructor(call: Call, path: string, uri: string, steps: number | undefined) {
    this.#call = call;
    this.#path = path;
    this.#uri = uri;
    this.#steps = steps;
  }

  /** A fleet that is disturbed for a while, and left alone until its log is complete. */
  async disturbed(forMs: number): Promise<{
    readonly ns: Namespace;
    readonly disturbances: { killed: number; removed: number; added: number };
    readonly ranks: readonly (readonly Reading[])[];
  }> {
    const { env, stopping, terminal } = this.#call;
    for (const role of rolesOf) for (let i = 0; i < 2; i++) this.#start(role);
    const ns = await this.#log();
    const ranks = startRanks(ns, (worker) => this.#watch(worker));
    terminal.note(
      `2 loaders, 2 constructors, ${ranks.length} ranks; for ${forMs / 1_000} s they are killed, added and removed at random`,
    );
    const disturbances = { killed: 0, removed: 0, added: 0 };
    const until = env.monotonic() + forMs;
    for (let info = await ns.info(); !info.closed; info = await ns.info({ signal: stopping.signal })) {
      if (this.#failure) throw this.#failure;
      if (env.monotonic() < until) await this.#disturb(disturbances);
      // The processes that are left finish; should none be left, a new one comes.
      for (const role of rolesOf) if (this.#of(role).length === 0) this.#start(role);
      terminal.progress(
        "fleet",
        info.steps.end,
        undefined,
        `${this.#of("load").length} loaders, ${this.#of("construct").length} constructors`,
      );
      await env.sleep(env.monotonic() < until ? 500 + 1_500 * env.random() : 500, stopping.signal);
    }
    terminal.settle();
    await Promise.all([...this.#processes].map(({ worker }) => worker.ended));
    await Promise.all(ranks.map(({ worker }) => worker.ended));
    if (this.#failure) throw this.#failure;
    return { ns, disturbances, ranks: ranks.map(({ readings }) => readings) };
  }

  async #disturb(counts: { killed: number; removed: number; added: number }): Promise<void> {
    const { env } = this.#call;
    const role = env.random() < 0.5 ? "load" : "construct";
    const own = this.#of(role);
    const one = own[Math.floor(env.random() * own.length)];
    const chance = env.random();
    if (chance < 0.4 && one) {
      counts.killed++;
      await one.worker.kill();
    } else if (chance < 0.6 && one && own.length > 1) {
      counts.removed++;
      one.isLeaving = true;
      one.worker.stop();
      this.#processes.delete(one);
      this.#others.add(one.worker);
    } else if (own.length < processesMax) {
      counts.added++;
      this.#start(role);
    }
  }

  /** One process for everything; what each source cost it. */
  async calm(uri: string): Promise<readonly SourceFigures[]> {
    let result = "{}";
    const steps = this.#steps === undefined ? [] : ["--steps", String(this.#steps)];
    const args = [
      "run",
      this.#path,
      "--namespace",
      uri,
      ...steps,
      "--no-audit",
      "--durability",
      "process-crash",
      "--json",
    ];
    const worker = new Worker("the undisturbed process", args, (line) => {
      result = line;
    });
    this.#watch(worker);
    const { code, signal } = await worker.ended;
    this.#call.stopping.signal.throwIfAborted();
    if (code !== 0) throw failureOf(worker, code ?? signal);
    return (JSON.parse(result) as { sources: readonly SourceFigures[] }).sources;
  }

  /** Leaves no process behind. */
  async end(): Promise<void> {
    const workers = [...[...this.#processes].map(({ worker }) => worker), ...this.#others];
    await Promise.all(workers.map((worker) => worker.kill().catch(() => {})));
  }

  #of(role: Role): Process[] {
    return [...this.#processes].filter((process) => process.role === role);
  }

  #start(role: Role): void {
    const steps = this.#steps === undefined || role === "load" ? [] : ["--steps", String(this.#steps)];
    const args = [role, this.#path, "--namespace", this.#uri, ...steps, "--durability", "process-crash", "--json"];
    const process: Process = { role, worker: new Worker(role, args, () => {}), isLeaving: false };
    this.#processes.add(process);
    void process.worker.ended.then(({ code, signal }) => {
      this.#processes.delete(process);
      const hasLeft = process.isLeaving && (code === 143 || signal === "SIGTERM");
      if (code !== 0 && signal !== "SIGKILL" && !hasLeft) this.#failure ??= failureOf(process.worker, code ?? signal);
    });
  }

  #watch(worker: Worker): void {
    this.#others.add(worker);
    void worker.ended.then(() => this.#others.delete(worker));
  }

  async #log(): Promise<Namespace> {
    const { env, stopping } = this.#call;
    for (;;) {
      if (this.#failure) throw this.#failure;
      try {
        return await openNamespace(this.#uri, { signal: stopping.signal });
      } catch (error) {
        if (!isBatchWeaveError(error, "NO_NAMESPACE")) throw error;
      }
      await env.sleep(50, stopping.signal);
    }
  }
}
