/**
 * cli: the `batchweave` command.
 *
 * Owns: the commands (one file each), their options and help, what they print, how they stop; the demo and its synthetic batches.
 * May import: index, plan, dashboard. The public names, as any user.
 * Promises: results go to stdout, everything else to stderr; `--json` prints JSON lines only; exit status 0 is success, 2 bad input or bad
 * content, 1 any other failure, 130 and 143 stopped by a signal; a failure is one sentence, never a stack unless BATCHWEAVE_DEBUG is set.
 */
export { diagnose } from "./diagnosis.js";
export { runCli } from "./run.js";
