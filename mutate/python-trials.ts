/** Trying mutants of Python: one long-lived process forks a child for each (python_trials.py), which is quick enough to try every mutant there is. */
import { type ChildProcess, spawn } from "node:child_process";
import { delimiter, join } from "node:path";
import { createInterface } from "node:readline";
import type { Mutant } from "./mutants.js";
import type { Reach } from "./reach.js";
import type { Catch } from "./trial.js";

/** The process, in a tree whose files do not change meanwhile. Dispose it. */
export class PythonTrials implements Disposable {
  readonly #child: ChildProcess;
  readonly #answers: AsyncIterator<string>;
  #said = "";

  constructor(folder: string, python: string, environment: Readonly<Record<string, string>> = {}) {
    const env = {
      ...process.env,
      PYTHONPATH: ["python", "python/tests"].map((path) => join(folder, path)).join(delimiter),
      PYTHONDONTWRITEBYTECODE: "1",
      // What runs as threads does not survive a fork.
      OMP_NUM_THREADS: "1",
      OPENBLAS_NUM_THREADS: "1",
      ...environment,
    };
    this.#child = spawn(python, ["mutate/python_trials.py"], { cwd: folder, env, stdio: ["pipe", "pipe", "pipe"] });
    this.#child.stderr?.on("data", (text: Buffer) => {
      this.#said = (this.#said + text.toString()).slice(-10_000);
    });
    this.#answers = createInterface({ input: this.#child.stdout as NodeJS.ReadableStream })[Symbol.asyncIterator]();
  }

  /** Which of the tests notices the mutant, the first of them first; undefined: none does. */
  async try(mutant: Mutant, tests: readonly Reach[]): Promise<Catch | undefined> {
    const trial = { mutant, tests: tests.map(({ path, ms }) => ({ path, ms })) };
    this.#child.stdin?.write(`${JSON.stringify(trial)}\n`);
    const { value, done } = await this.#answers.next();
    if (done) throw new Error(`The process that tries mutants ended: ${this.#said.trim().split("\n").at(-1)}`);
    const { caught } = JSON.parse(value) as { readonly caught: Omit<Catch, "stage"> | null };
    return caught ? { stage: "test", ...caught } : undefined;
  }

  [Symbol.dispose](): void {
    this.#child.kill();
  }
}
