// One process that runs one built command after another, for tests that only ask what a command prints and how it ends: starting Node costs ten
// times as much as most commands do. The order comes by message, the answer too. It ends with the test that forked it.
import { runCli } from "../../dist/src/cli/index.js";

process.stdout.setMaxListeners(0);
process.on("disconnect", () => process.exit());
process.on("message", async (/** @type {string[]} */ args) => {
  /** @type {{ stdout: string[], stderr: string[] }} */
  const written = { stdout: [], stderr: [] };
  for (const name of /** @type {const} */ (["stdout", "stderr"])) {
    process[name].write = (/** @type {string | Uint8Array} */ chunk) => {
      written[name].push(typeof chunk === "string" ? chunk : Buffer.from(chunk).toString());
      return true;
    };
  }
  const status = await runCli(args);
  process.send?.({ status, stdout: written.stdout.join(""), stderr: written.stderr.join("") });
});
