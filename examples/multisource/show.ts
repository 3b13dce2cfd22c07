/**
 * The whole example as a person would try it: two producers with two lanes each, eight ranks that read while they write, one producer killed
 * in the middle and replaced; then the same pipeline undisturbed, to compare byte for byte.
 *
 *   npm run build && node dist/examples/multisource/show.js
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { type Namespace, openNamespace } from "batchweave";

// Built, this file is three folders below the package.
const root = resolve(fileURLToPath(import.meta.url), "../../../..");
const cli = join(root, "dist/src/cli/main.js");
const pipeline = join(root, "examples/multisource/pipeline.ts");
const rankScript = fileURLToPath(new URL("./rank.js", import.meta.url));
const folder = mkdtempSync(join(tmpdir(), "batchweave-multisource-"));

function start(
  script: string,
  args: readonly string[],
  uri: string,
): { child: ChildProcess; lines: string[]; done: Promise<number | null> } {
  const child = spawn(process.execPath, [script, ...args], {
    stdio: ["ignore", "pipe", "inherit"],
    env: { ...process.env, MULTISOURCE_URI: uri },
  });
  const lines: string[] = [];
  const reader = createInterface({ input: child.stdout as NodeJS.ReadableStream });
  reader.on("line", (line) => lines.push(line));
  const done = Promise.all([once(child, "exit"), once(reader, "close")]).then(() => child.exitCode);
  return { child, lines, done };
}

async function untilStep(uri: string, step: number): Promise<Namespace> {
  for (;;) {
    const ns = await openNamespace(uri).catch(() => undefined);
    if (ns && (await ns.info()).steps.end >= step) return ns;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
}

async function sameBytes(a: Namespace, b: Namespace): Promise<boolean> {
  const { steps } = await a.info();
  if (steps.end !== (await b.info()).steps.end) return false;
  const { rows, chunks } = a.grid;
  for (let cell = 0; cell < steps.end * rows * chunks; cell++) {
    const place = {
      step: Math.floor(cell / (rows * chunks)),
      row: Math.floor(cell / chunks) % rows,
      chunk: cell % chunks,
    };
    const [left, right] = await Promise.all([a.readSlice(place), b.readSlice(place)]);
    if (Buffer.compare(left, right) !== 0) return false;
  }
  return true;
}

try {
  const uri = pathToFileURL(join(folder, "killed")).href;
  const common = ["run", pipeline, "--durability", "process-crash"];
  const first = start(cli, [...common, "--id", "p0", "--lanes", "0-1"], uri);
  const victim = start(cli, [...common, "--id", "p1", "--lanes", "2-3"], uri);
  await untilStep(uri, 0);
  const ranks = Array.from({ length: 8 }, (_, rank) => start(rankScript, [uri, String(rank)], uri));
  const ns = await untilStep(uri, 12);
  victim.child.kill("SIGKILL");
  await victim.done;
  console.log(`p1 killed with the log at step ${(await ns.info()).steps.end}; a replacement takes its lanes over`);
  const replacement = start(cli, [...common, "--id", "p1", "--lanes", "2-3"], uri);
  const codes = await Promise.all([first, replacement, ...ranks].map(({ done }) => done));
  const seen = ranks.map(
    ({ lines }) => JSON.parse(lines[0] ?? "{}") as { rank: number; iterations: number; tokens: number; images: number },
  );
  for (const { rank, iterations, tokens, images } of seen)
    console.log(`rank ${rank}: ${iterations} iterations, ${tokens} tokens, ${images} images`);
  // Whoever found the log complete closed and audited it.
  const audited =
    [first, replacement].find(({ lines }) => lines.some((line) => line.startsWith("audit"))) ?? replacement;
  console.log(audited.lines.join("\n"));
  const calm = pathToFileURL(join(folder, "calm")).href;
  const alone = await start(cli, [...common, "--no-audit"], calm).done;
  const same = await sameBytes(await openNamespace(uri), await openNamespace(calm));
  console.log(`undisturbed run by one producer: ${same ? "the same log, bit for bit" : "ANOTHER LOG"}`);
  process.exitCode = same && alone === 0 && codes.every((code) => code === 0) ? 0 : 1;
} finally {
  rmSync(folder, { recursive: true, force: true });
}
