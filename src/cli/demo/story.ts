/** The demo's story: who is started, who is killed when, and what is seen. */
import { createHash } from "node:crypto";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import {
  BatchWeaveError,
  type Cursor,
  type Env,
  type Namespace,
  type NamespaceInfo,
  type VerifyReport,
} from "../../index.js";
import { syntheticSlice } from "../synthetic.js";
import { type Identity, type Reading, rollBack, type Sighting } from "./proof.js";
import { RankWorker, Worker } from "./worker.js";

/** Sizes of the demo. */
interface Plan {
  readonly producers: number;
  /** Of each producer. */
  readonly batches: number;
  readonly sliceBytes: number;
  /** Batches a second of each producer. */
  readonly rate: number;
  readonly dp: number;
  readonly cp: number;
  /** The mesh of the second reading. */
  readonly again: { readonly dp: number; readonly cp: number };
  readonly checkpointEvery: number;
  /** A process that has not finished by then has failed. */
  readonly deadlineMs: number;
}

/** 120 batches of 8 rows are 240 iterations of dp 4 and 160 of dp 6, without a row left over. */
export const demoPlan: Plan = {
  producers: 4,
  batches: 30,
  sliceBytes: 16_384,
  rate: 5,
  dp: 4,
  cp: 2,
  again: { dp: 6, cp: 1 },
  checkpointEvery: 20,
  deadlineMs: 150_000,
};

/** The namespace's grid. */
export const demoGrid = { rows: 8, chunks: 2 } as const;

/** What happens, told as it happens. */
export type Tell = (event: string, text: string, facts: Readonly<Record<string, unknown>>) => void;

/** What the story found out; the proof is made from it. */
export interface Outcome {
  readonly first: Reading;
  readonly second: Reading;
  /** Iterations that the killed rank read again, and how many of them came out differently. */
  readonly reread: number;
  readonly differing: number;
  readonly epochs: ReadonlyMap<string, number>;
  /** What `verify` says about the log: every byte of it was read and checked. */
  readonly verified: VerifyReport;
}

/** State of the running demo, for its live view. */
export interface View {
  readonly info: NamespaceInfo;
  /** Iterations taken by each rank. */
  readonly taken: readonly number[];
  readonly downProducer: string | undefined;
  readonly downRank: number | undefined;
  readonly bytesRead: number;
}

/** Everything that a story is told with. */
interface Stage {
  readonly ns: Namespace;
  readonly env: Env;
  readonly folder: string;
  readonly signal: AbortSignal;
  readonly tell: Tell;
  readonly show: (view: View) => void;
}

const restartDelayMs = 700;
const lookDelayMs = 100;

/** One run of the demo. */
export class Story {
  readonly #plan: Plan;
  readonly #stage: Stage;
  readonly #workers = new Set<Worker>();
  readonly #producers = new Map<string, Worker>();
  #failure: unknown;
  #downProducer: string | undefined;
  #downRank: number | undefined;
  #bytesRead = 0;

  constructor(plan: Plan, stage: Stage) {
    this.#plan = plan;
    this.#stage = stage;
  }

  /** Runs to the end. Whatever happens, no process is left behind. */
  async run(): Promise<Outcome> {
    const { env, signal } = this.#stage;
    const begun = env.monotonic();
    const stop = new AbortController();
    const limit = AbortSignal.any([signal, stop.signal]);
    const deadline = env.sleep(this.#plan.deadlineMs, limit).then(
      () => this.#fail(new BatchWeaveError("WAIT_TIMEOUT", this.#late(env.monotonic() - begun))),
      () => {},
    );
    try {
      const first = await this.#write();
      const second = await this.#readAgain();
      const { producers } = await this.#stage.ns.info({ signal });
      const verified = await this.#stage.ns.verify({ level: "bytes" }, { signal });
      return { ...first, second, verified, epochs: new Map(producers.map(({ id, epoch }) => [id, epoch])) };
    } finally {
      stop.abort();
      await deadline;
      await Promise.all([...this.#workers].map((worker) => worker.kill()));
    }
  }

  #late(ms: number): string {
    return `The demo did not finish within ${Math.round(ms / 1_000)} s. The machine may be very busy: run it again.`;
  }

  async #write(): Promise<Pick<Outcome, "first" | "reread" | "differing">> {
    const { dp, cp, producers, batches } = this.#plan;
    const ids = Array.from({ length: producers }, (_, i) => `p${i}`);
    for (const id of ids) this.#startProducer(id);
    const ranks = Array.from({ length: dp * cp }, (_, rank) => this.#startRank(rank, { dp, cp }, "first"));
    const killed = { producer: ids[1] as string, rank: dp * cp - 3 };
    const [, before] = await Promise.all([
      this.#killProducer(killed.producer),
      this.#killRank(ranks, killed.rank, { dp, cp }),
    ]);
    await this.#until(ranks, (info) => info.producers.every(({ seq }) => seq >= batches) && this.#producersDone());
    const { end } = await this.#stage.ns.endLog({ signal: this.#stage.signal });
    this.#stage.tell("close", `All batches are in. The log is closed at step ${end}; every rank ends there.`, { end });
    const endings = Promise.all(ranks.map(({ worker }) => worker.ended));
    let ended = false;
    const watching = this.#until(ranks, () => ended);
    await endings;
    ended = true;
    await watching;
    this.#throwIfFailed();
    const { sightings, reread, differing } = rollBack(before, (ranks[killed.rank] as RankWorker).sightings);
    const seen = ranks.map((rank, i) => (i === killed.rank ? sightings : rank.sightings));
    return { first: { dp, cp, ranks: seen }, reread, differing };
  }

  #producersDone(): boolean {
    return this.#producers.size === 0;
  }

  async #readAgain(): Promise<Reading> {
    const { dp, cp } = this.#plan.again;
    this.#stage.tell("again", `The same log once more, on another mesh: dp ${dp}, cp ${cp}, ${dp * cp} ranks.`, {
      dp,
      cp,
    });
    const ranks = Array.from({ length: dp * cp }, (_, rank) => this.#startRank(rank, { dp, cp }, "second"));
    await Promise.all(ranks.map(({ worker }) => worker.ended));
    this.#throwIfFailed();
    return { dp, cp, ranks: ranks.map(({ sightings }) => sightings) };
  }

  async #killProducer(id: string): Promise<void> {
    const { tell, env, signal, ns } = this.#stage;
    const third = Math.ceil(this.#plan.batches / 3);
    await this.#until(undefined, (info) => (info.producers.find((p) => p.id === id)?.seq ?? 0) >= third);
    await (this.#producers.get(id) as Worker).kill();
    this.#downProducer = id;
    const { producers } = await ns.info({ signal });
    const seq = producers.find((producer) => producer.id === id)?.seq ?? 0;
    tell(
      "kill",
      `SIGKILL producer ${id} with ${seq} batches in the log. Whatever else it had uploaded stays invisible.`,
      {
        producer: id,
        batches: seq,
      },
    );
    await env.sleep(restartDelayMs, signal);
    this.#startProducer(id);
    this.#downProducer = undefined;
    tell("restart", `${id} starts again: it fences its former self and goes on at the resume point the log kept.`, {
      producer: id,
    });
  }

  /** Replaces the rank by one that goes on from the cursor; gives what the killed one had seen. */
  async #killRank(ranks: RankWorker[], rank: number, mesh: { dp: number; cp: number }): Promise<readonly Sighting[]> {
    const { tell, env, signal } = this.#stage;
    const { checkpointEvery } = this.#plan;
    const victim = ranks[rank] as RankWorker;
    // In the middle between two checkpoints, so that there is something to roll back.
    const isHalfway = (): boolean => {
      const taken = victim.sightings.length;
      return taken > 3 * checkpointEvery && taken % checkpointEvery > checkpointEvery / 3;
    };
    await this.#until(ranks, isHalfway);
    await victim.worker.kill();
    this.#downRank = rank;
    const taken = victim.sightings.length;
    const saved = (JSON.parse(await readFile(this.#cursorFile(rank, "first"), "utf8")) as Cursor).iteration;
    tell("kill", `SIGKILL rank ${rank} after iteration ${taken - 1}. Its last checkpoint is at iteration ${saved}.`, {
      rank,
      iterations: taken,
      checkpoint: saved,
    });
    await env.sleep(restartDelayMs, signal);
    ranks[rank] = this.#startRank(rank, mesh, "first", saved);
    this.#downRank = undefined;
    tell("restart", `Rank ${rank} starts again from its checkpointed cursor, a row number that any mesh understands.`, {
      rank,
    });
    return victim.sightings;
  }

  #startProducer(id: string): void {
    const { batches, sliceBytes, rate } = this.#plan;
    const numbers = ["--batches", batches, "--bytes", sliceBytes, "--rate", rate].map(String);
    const args = ["produce", this.#stage.ns.uri, "--id", id, ...numbers, "--json"];
    const worker = this.#start(new Worker(id, args, () => {}));
    this.#producers.set(id, worker);
    const finish = (): void => {
      if (this.#producers.get(id) === worker) this.#producers.delete(id);
    };
    worker.ended.then(finish, finish);
  }

  #cursorFile(rank: number, reading: string): string {
    return join(this.#stage.folder, `${reading}-rank-${rank}.json`);
  }

  #startRank(rank: number, { dp, cp }: { dp: number; cp: number }, reading: string, before = 0): RankWorker {
    const numbers = ["--dp", dp, "--cp", cp, "--rank", rank].map(String);
    const checkpoints = ["--checkpoint-every", String(this.#plan.checkpointEvery), "--checkpoint-group", reading];
    // Should the demo itself be killed, its ranks do not wait for ever.
    const files = ["--cursor-file", this.#cursorFile(rank, reading), "--wait-timeout", "120"];
    const args = ["consume", this.#stage.ns.uri, ...numbers, ...checkpoints, ...files, "--json", "--slices"];
    const one = new RankWorker(before, `rank ${rank}`, args, ({ digests }: Sighting) => {
      this.#bytesRead += digests.length * this.#plan.sliceBytes;
    });
    this.#start(one.worker);
    return one;
  }

  /** A process that ends badly ends the demo, unless we killed it. */
  #start(worker: Worker): Worker {
    this.#workers.add(worker);
    worker.ended.then(
      ({ code, signal }) => {
        this.#workers.delete(worker);
        if (code === 0 || signal === "SIGKILL") return;
        this.#fail(new Error(`${worker.name} ended with status ${code ?? signal}: ${worker.errors}`));
      },
      (error) => this.#fail(error),
    );
    return worker;
  }

  #fail(error: unknown): void {
    this.#failure ??= error;
    // Nothing more is waited for.
    for (const worker of this.#workers) void worker.kill();
  }

  #throwIfFailed(): void {
    // Ctrl-C reaches the processes too, and that they end then is no failure.
    this.#stage.signal.throwIfAborted();
    if (this.#failure !== undefined) throw this.#failure;
  }

  /** Looks at the log until `done`; shows it when it knows the ranks. */
  async #until(ranks: readonly RankWorker[] | undefined, done: (info: NamespaceInfo) => boolean): Promise<void> {
    const { env, ns, signal, show } = this.#stage;
    for (;;) {
      this.#throwIfFailed();
      const info = await ns.info({ signal });
      if (ranks) {
        const taken = ranks.map((rank) => rank.taken);
        show({ info, taken, downProducer: this.#downProducer, downRank: this.#downRank, bytesRead: this.#bytesRead });
      }
      if (done(info)) return;
      await env.sleep(lookDelayMs, signal);
    }
  }
}

/** Digests of everything that the producers were meant to write. */
export function expectedSlices(plan: Plan): Map<string, Identity> {
  const expected = new Map<string, Identity>();
  for (let p = 0; p < plan.producers; p++) {
    for (let counter = 0; counter < plan.batches; counter++) {
      const batch = { producer: `p${p}`, counter, grid: demoGrid, sliceBytes: plan.sliceBytes };
      for (let row = 0; row < demoGrid.rows; row++) {
        for (let chunk = 0; chunk < demoGrid.chunks; chunk++) {
          const digest = createHash("sha256")
            .update(syntheticSlice(batch, row, chunk))
            .digest("hex");
          expected.set(digest, { producer: batch.producer, counter, row, chunk });
        }
      }
    }
  }
  return expected;
}
