/** A server on loopback that ends when we end, however we end. */
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { hostname, tmpdir } from "node:os";
import { join } from "node:path";

/** A running server. */
export interface ServerProcess {
  readonly port: number;
  /** What it printed lately. */
  output(): string;
  stop(): Promise<void>;
}

/**
 * Ends the server as soon as the pipe to us closes, and removes its folder: a killed run leaves nothing behind, not even with `kill -9`. A Ctrl-C goes to
 * the guard too, which has its work before it then.
 */
const guard =
  'trap "" INT TERM HUP; folder=$1; shift; "$@" & child=$!; cat >/dev/null; kill -9 $child 2>/dev/null; wait $child 2>/dev/null; rm -rf "$folder"';

/** The machine is in the name: a process of another container that shares the folder cannot be asked whether it lives. */
const folderPrefix = `batchweave-server-${hostname()}-`;

/** Folders of runs that were killed together with their guards. */
function removeLeftFolders(): void {
  for (const name of readdirSync(tmpdir())) {
    const pid = name.startsWith(folderPrefix) ? /^(\d+)-/.exec(name.slice(folderPrefix.length))?.[1] : undefined;
    if (pid === undefined || isAlive(Number(pid))) continue;
    try {
      rmSync(join(tmpdir(), name), { recursive: true, force: true });
    } catch {
      // Its guard, or somebody else who starts, is at it too; or it is not ours.
    }
  }
}

function isAlive(pid: number): boolean {
  try {
    return process.kill(pid, 0);
  } catch (e) {
    return (e as NodeJS.ErrnoException).code !== "ESRCH";
  }
}

/** A port without a listener. */
export async function freePort(): Promise<number> {
  const server = createServer();
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** Starts a program and waits until it takes connections. `args` get the port and a folder that is gone afterwards. */
export async function startProcess(
  program: string,
  args: (port: number, folder: string) => readonly string[],
  environment: NodeJS.ProcessEnv = {},
  readyMs = 30_000,
): Promise<ServerProcess> {
  const port = await freePort();
  removeLeftFolders();
  const folder = mkdtempSync(join(tmpdir(), `${folderPrefix}${process.pid}-`));
  const child = spawn("sh", ["-c", guard, "guard", folder, program, ...args(port, folder)], {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, ...environment },
  });
  let output = "";
  for (const stream of [child.stdout, child.stderr]) {
    stream.on("data", (data: Buffer) => {
      output = `${output}${data.toString()}`.slice(-4_000);
    });
  }
  const stop = async (): Promise<void> => {
    const ended = child.exitCode === null ? new Promise((resolve) => child.once("exit", resolve)) : undefined;
    child.stdin.end();
    await ended;
    rmSync(folder, { recursive: true, force: true });
  };
  try {
    await untilListening(child, port, readyMs);
  } catch (e) {
    await stop();
    throw new Error(`${program} did not start: ${e instanceof Error ? e.message : e}; it printed: ${output}`);
  }
  return { port, output: () => output, stop };
}

async function untilListening(child: ChildProcess, port: number, readyMs: number): Promise<void> {
  const deadline = Date.now() + readyMs;
  for (;;) {
    if (child.exitCode !== null) throw new Error(`it ended with status ${child.exitCode}`);
    if (Date.now() > deadline) throw new Error(`nothing listens after ${readyMs} ms`);
    const isOpen = await new Promise<boolean>((resolve) => {
      const socket = connect(port, "127.0.0.1");
      socket.once("connect", () => {
        socket.destroy();
        resolve(true);
      });
      socket.once("error", () => resolve(false));
    });
    if (isOpen) return;
    await new Promise((resolve) => setTimeout(resolve, 100));
  }
}
