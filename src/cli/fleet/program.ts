/** Programs of engines: kubectl, sbatch. Their own answer goes into the message. */
import { spawn } from "node:child_process";
import { BatchWeaveError } from "../../index.js";

const answerBytesMax = 1_000_000;

/** Runs a program with `input`; gives what it printed. */
export async function askProgram(
  program: string,
  args: readonly string[],
  input: string,
  signal: AbortSignal,
): Promise<string> {
  return await new Promise<string>((resolve, reject) => {
    const child = spawn(program, args, { stdio: ["pipe", "pipe", "pipe"], signal });
    let [out, errors] = ["", ""];
    child.stdout.on("data", (chunk: Buffer) => {
      if (out.length < answerBytesMax) out += chunk.toString();
    });
    child.stderr.on("data", (chunk: Buffer) => {
      if (errors.length < answerBytesMax) errors += chunk.toString();
    });
    // One that ended before it read everything says why on stderr.
    child.stdin.on("error", () => {});
    child.stdin.end(input);
    child.once("error", (cause: NodeJS.ErrnoException) => {
      if (signal.aborted) reject(signal.reason);
      else if (cause.code === "ENOENT")
        reject(
          new BatchWeaveError(
            "MISSING_PACKAGE",
            `There is no program ${program} here. Install it, or choose another engine with --on.`,
            { program },
            cause,
          ),
        );
      else reject(cause);
    });
    child.once("close", (code) => {
      if (code === 0) return resolve(out);
      const said = answerOf(errors) || `status ${code}`;
      reject(
        new BatchWeaveError(
          "ENGINE_FAILED",
          `${program} ${args[0] ?? ""} failed: ${said}. Check that the engine is there and what you may do on it.`,
          { program, status: code },
        ),
      );
    });
  });
}

const sentenceMax = 400;

/** The last lines that a program wrote, short enough for a sentence. A Kubernetes API server prints whole objects that cannot be changed. */
function answerOf(errors: string): string {
  const immutable = /(\S+ "[^"]+") is invalid: (\S+): Invalid value: .*field is immutable/s;
  const text = errors
    .trim()
    .replace(immutable, "$1 is there with another $2, which cannot be changed: delete it first");
  return text.split("\n").slice(-3).join("; ").slice(-sentenceMax);
}
