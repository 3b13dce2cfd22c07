/** `npm run bench -- NAME [arguments] [--json]`: every file beside this one is a benchmark and exports `run`. */
import { readdirSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { Usage } from "./parts/options.js";

/** What a benchmark file exports. */
interface Benchmark {
  /** One line for the list. */
  readonly summary?: string;
  run(args: string[]): Promise<void>;
}

const folder = fileURLToPath(new URL(".", import.meta.url));
const names = readdirSync(folder, { withFileTypes: true })
  .filter((entry) => entry.isFile() && /^[a-z-]+\.(js|ts)$/.test(entry.name))
  .map((entry) => entry.name.replace(/\.[jt]s$/, ""))
  .filter((name) => name !== "main");

const load = async (name: string): Promise<Benchmark> => (await import(`./${name}.js`)) as Benchmark;

async function list(): Promise<void> {
  console.log("npm run bench -- NAME [arguments] [--json]\n");
  for (const name of names) console.log(`  ${name.padEnd(14)}${(await load(name)).summary ?? ""}`.trimEnd());
}

// A reader that went away (`| head`) is no failure of ours.
process.stdout.on("error", (error: NodeJS.ErrnoException) => process.exit(error.code === "EPIPE" ? 0 : 1));

const [name, ...args] = process.argv.slice(2);
if (name === undefined || name === "--help") {
  await list();
} else if (!names.includes(name)) {
  console.error(`There is no benchmark ${JSON.stringify(name)}; there are ${names.join(", ")}.`);
  process.exitCode = 2;
} else {
  try {
    await (await load(name)).run(args);
  } catch (error) {
    if (error instanceof Usage) {
      const text = error.message.replace("NAME", name);
      if (error.exit === 0) console.log(`${(await load(name)).summary ?? name}\n${text}`);
      else console.error(text);
      process.exitCode = error.exit;
    } else {
      console.error(error instanceof Error ? error.stack : error);
      process.exitCode = 1;
    }
  }
}
