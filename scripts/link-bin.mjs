// Puts the package's own command where `npx batchweave` looks first, so that it runs from a clone without asking a
// registry. npm links the commands of dependencies only, never those of the package at the root.
import { chmodSync, existsSync, mkdirSync, readlinkSync, rmSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";

const root = join(dirname(fileURLToPath(import.meta.url)), "..");
const main = join(root, "dist/src/cli/main.js");
const link = join(root, "node_modules/.bin/batchweave");
const target = "../../dist/src/cli/main.js";

/** @returns {string | undefined} */
function current() {
  try {
    return readlinkSync(link);
  } catch {
    return undefined;
  }
}

if (existsSync(main)) {
  chmodSync(main, 0o755);
  if (current() !== target) {
    mkdirSync(dirname(link), { recursive: true });
    rmSync(link, { force: true });
    symlinkSync(target, link);
  }
}
