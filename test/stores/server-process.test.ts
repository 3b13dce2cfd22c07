/**
 * Property: a server that a benchmark or a test started leaves neither a process nor its folder behind, however the run ends; what is left when even the guard was
 * killed goes with the next start. Method: a run in a process (group) of its own that starts a small server, and signals to it.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { fileURLToPath, pathToFileURL } from "node:url";
import { build } from "vite";
import { afterAll, beforeAll, expect, test } from "vitest";
import { makeFolder, removeFolder } from "../store/temporary-folder.js";

const temporary = makeFolder();
let script: string;

beforeAll(async () => {
  await build({
    configFile: false,
    logLevel: "silent",
    build: {
      ssr: fileURLToPath(new URL("../../harness/server-process.ts", import.meta.url)),
      outDir: temporary,
      emptyOutDir: false,
      target: "node20",
      rolldownOptions: { output: { entryFileNames: "server-process.mjs" } },
    },
  });
  script = join(temporary, "run.mjs");
  const server = "require('node:http').createServer().listen(+process.argv[1], '127.0.0.1')";
  writeFileSync(
    script,
    `import { startProcess } from ${JSON.stringify(pathToFileURL(join(temporary, "server-process.mjs")).href)};
    import { writeFileSync } from "node:fs";
    let folder;
    const server = await startProcess(process.execPath, (port, given) => ["-e", ${JSON.stringify(server)}, String(port), (folder = given)]);
    writeFileSync(folder + "/data", "x");
    console.log(folder);
    process.stdin.once("data", () => server.stop().then(() => process.exit(0))).resume();`,
  );
});
afterAll(() => removeFolder(temporary));

/** A run that has its server, in a process group as a shell would give it. */
async function startRun(): Promise<{ run: ChildProcess; folder: string }> {
  const run = spawn(process.execPath, [script], {
    stdio: ["pipe", "pipe", "inherit"],
    detached: true,
    env: { ...process.env, TMPDIR: temporary },
  });
  const [folder] = await once(createInterface({ input: run.stdout as NodeJS.ReadableStream }), "line");
  expect(existsSync(join(folder, "data"))).toBe(true);
  return { run, folder };
}

for (const [how, signal, isGroup] of [
  ["kill", "SIGTERM", false],
  ["Ctrl-C", "SIGINT", true],
  ["kill -9", "SIGKILL", false],
] as const) {
  test(`${how} leaves no folder`, async () => {
    const { run, folder } = await startRun();
    const pid = run.pid as number;
    process.kill(isGroup ? -pid : pid, signal);
    await expect.poll(() => existsSync(folder)).toBe(false);
  });
}

test("what is left when all were killed at once goes with the next start; a run that lives keeps its own", async () => {
  const [killed, living] = [await startRun(), await startRun()];
  const ended = once(killed.run, "exit");
  process.kill(-(killed.run.pid as number), "SIGKILL");
  await ended;
  expect(existsSync(killed.folder)).toBe(true);
  const next = await startRun();
  expect(existsSync(killed.folder)).toBe(false);
  for (const { run, folder } of [living, next]) {
    expect(existsSync(folder)).toBe(true);
    run.stdin?.write("stop\n");
    await once(run, "exit");
    expect(existsSync(folder)).toBe(false);
  }
});
