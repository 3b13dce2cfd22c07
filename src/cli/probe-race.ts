/** The conditional-create race over several processes: what one client might put in order by itself, several cannot. */
import { type ChildProcess, fork } from "node:child_process";
import { fileURLToPath } from "node:url";
import {
  BatchWeaveError,
  type CreateOutcome,
  type Env,
  type ObjectStore,
  type ProbeCase,
  probePrefix,
} from "../index.js";

/** Size of the race. */
interface RaceSettings {
  readonly processes: number;
  readonly rounds: number;
  /** Creators in each process. */
  readonly writersEach: number;
}

/** One round, told to a racer. */
export interface RaceOrder {
  readonly key: string;
  /** On the clock that all processes of this machine share. */
  readonly startAtMs: number;
  /** The first number of this process's writers, and how many they are. */
  readonly firstWriter: number;
  readonly writers: number;
}

/** What a racer's writers were told, in their order (none: it is ready); or why it cannot race. */
export interface RaceAnswer {
  readonly outcomes?: readonly CreateOutcome[];
  readonly failure?: string;
}

const script = fileURLToPath(new URL("./probe-racer.js", import.meta.url));
/** Longer than any answer may take; a process that is silent for so long is gone. */
const answerMsMax = 60_000;
/** From the order to the start of a round: time for the order to reach every racer. */
const headStartMs = 50;

/** The bytes of one writer: enough for several packets, so that a torn object would show. */
export function racerBytes(writer: number): Uint8Array {
  const bytes = new Uint8Array(4096).fill(writer % 251);
  bytes.set(new TextEncoder().encode(`writer ${writer};`));
  return bytes;
}

/** Runs the race on `store`, which is at `uri`, and removes what it wrote. */
export async function raceProcesses(
  uri: string,
  store: ObjectStore,
  env: Env,
  settings: RaceSettings,
  signal: AbortSignal,
): Promise<ProbeCase> {
  const { processes, rounds, writersEach } = settings;
  const name = "conditional create: one winner among processes";
  const folder = `${probePrefix}${env.id()}/`;
  const racers = Array.from({ length: processes }, () => new Racer(uri, folder));
  const keys = Array.from({ length: rounds }, (_, round) => `${folder}round-${round}`);
  let unknown = 0;
  try {
    await Promise.all(racers.map((racer) => racer.answer(env, signal)));
    for (const [round, key] of keys.entries()) {
      const startAtMs = env.now() + headStartMs;
      for (const [i, racer] of racers.entries()) {
        racer.order({ key, startAtMs, firstWriter: i * writersEach, writers: writersEach });
      }
      const outcomes = (await Promise.all(racers.map((racer) => racer.answer(env, signal)))).flat();
      unknown += outcomes.filter((outcome) => outcome === "unknown").length;
      const problem = problemOf(outcomes, await store.get(key, { signal }));
      if (problem !== undefined) return { name, ok: false, detail: `round ${round}: ${problem}` };
    }
  } finally {
    await Promise.all(racers.map((racer) => racer.stop())); // none of them writes any more
    await store.delete(keys);
  }
  const lost = unknown > 0 ? `, ${unknown} answers unknown` : "";
  return {
    name,
    ok: true,
    detail: `${rounds} rounds of ${processes} processes with ${writersEach} creators each${lost}`,
  };
}

/** What is wrong with a round, if anything. */
function problemOf(outcomes: readonly CreateOutcome[], stored: Uint8Array | undefined): string | undefined {
  const told = (wanted: CreateOutcome): number[] =>
    outcomes.flatMap((outcome, writer) => (outcome === wanted ? [writer] : []));
  const winners = told("created");
  if (winners.length > 1)
    return `${winners.length} of ${outcomes.length} creators of one key were told they created it`;
  const possible = winners.length === 1 ? winners : told("unknown");
  if (possible.length === 0) return `all ${outcomes.length} creators of a new key were told it exists`;
  if (stored === undefined) return "the object is missing right after its creation";
  const isWinners = possible.some((writer) => Buffer.compare(stored, racerBytes(writer)) === 0);
  return isWinners ? undefined : "the bytes stored are not the winner's";
}

/** One process. */
class Racer {
  readonly #child: ChildProcess;
  readonly #exited: Promise<void>;
  readonly #answers: RaceAnswer[] = [];
  #wake: (() => void) | undefined;

  constructor(uri: string, folder: string) {
    this.#child = fork(script, [uri, folder], { stdio: ["ignore", "ignore", "inherit", "ipc"] });
    const take = (answer: RaceAnswer): void => {
      this.#answers.push(answer);
      this.#wake?.();
    };
    this.#child.on("message", (answer) => take(answer as RaceAnswer));
    this.#child.on("error", (e) => take({ failure: e.message }));
    this.#exited = new Promise((resolve) => {
      this.#child.on("exit", (code) => {
        take({ failure: `it ended with status ${code}` });
        resolve();
      });
    });
  }

  order(order: RaceOrder): void {
    this.#child.send(order, () => {}); // a process that is gone tells so by its exit
  }

  /** What it says next. */
  async answer(env: Env, signal: AbortSignal): Promise<readonly CreateOutcome[]> {
    if (this.#answers.length === 0) {
      const woken = new AbortController();
      this.#wake = () => woken.abort();
      await env.sleep(answerMsMax, AbortSignal.any([woken.signal, signal])).catch(() => {});
      signal.throwIfAborted();
    }
    const { outcomes, failure } = this.#answers.shift() ?? { failure: "it did not answer" };
    if (outcomes) return outcomes;
    throw new BatchWeaveError(
      "STORE_UNAVAILABLE",
      `A process of the race could not take part: ${failure}; try again, or with --processes 1.`,
    );
  }

  async stop(): Promise<void> {
    this.#child.kill("SIGKILL");
    if (this.#child.pid !== undefined) await this.#exited;
  }
}
