/**
 * Installs the servers that the tests talk to, each in a folder of its own below `.cache/stores` (ignored by git), with the ordinary
 * clients of their registries and at fixed versions. What cannot be had is a reason to skip, told in one line.
 */
import { execFile } from "node:child_process";
import { existsSync, linkSync, mkdirSync, readFileSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";

const execute = promisify(execFile);

/** The repository, from its sources or from what was built of them. */
const root = fileURLToPath(new URL(import.meta.url.includes(`${sep}dist${sep}`) ? "../../" : "../", import.meta.url));
const cache = join(root, ".cache", "stores");

/** A program and what it takes to get it. */
export interface Tool {
  readonly name: string;
  /** Of the program, below the tool's folder. */
  readonly program: string;
  readonly version: string;
  /** Commands, run in the tool's folder one after another. */
  readonly install: readonly (readonly string[])[];
  /** Environment of the install commands. */
  readonly environment?: (folder: string) => NodeJS.ProcessEnv;
  readonly timeoutMs: number;
}

const minute = 60_000;

/** Light enough for `make test`. */
export const moto: Tool = {
  name: "moto",
  program: "bin/moto_server",
  version: "5.2.5",
  install: [
    ["python3", "-m", "venv", "."],
    ["bin/pip", "install", "--quiet", "--disable-pip-version-check", "moto[s3]==5.2.5", "flask", "flask-cors"],
  ],
  timeoutMs: 4 * minute,
};

/** Not a server: a Python with the client that `batchweave[cloud]` asks for. */
export const obstore: Tool = {
  name: "obstore",
  program: "bin/python",
  version: "0.12.1",
  install: [
    ["python3", "-m", "venv", "."],
    ["bin/pip", "install", "--quiet", "--disable-pip-version-check", "obstore==0.12.1"],
  ],
  timeoutMs: 4 * minute,
};

/** Not a server: a Python with what `batchweave[metrics]` asks for. */
export const opentelemetry: Tool = {
  name: "opentelemetry",
  program: "bin/python",
  version: "1.45",
  install: [
    ["python3", "-m", "venv", "."],
    [
      "bin/pip",
      "install",
      "--quiet",
      "--disable-pip-version-check",
      "opentelemetry-sdk~=1.45",
      "opentelemetry-exporter-otlp-proto-http~=1.45",
      "opentelemetry-exporter-prometheus",
    ],
  ],
  timeoutMs: 4 * minute,
};

/** Of Debian, unpacked without being installed. `promtool` is beside it. */
export const prometheus: Tool = {
  name: "prometheus",
  program: "usr/bin/promtool",
  version: "2",
  install: [
    ["apt-get", "download", "prometheus"],
    ["sh", "-c", "dpkg -x prometheus_*.deb ."],
  ],
  timeoutMs: 2 * minute,
};

/** The types of a dashboard that Grafana publishes. Grafana itself is in none of the registries. */
export const grafanaSchema: Tool = {
  name: "grafana-schema",
  program: "node_modules/@grafana/schema/package.json",
  version: "13.2.3",
  install: [
    [
      "npm",
      "install",
      "--prefix",
      ".",
      "--no-save",
      "--ignore-scripts",
      "--no-audit",
      "--no-fund",
      "@grafana/schema@13.2.3",
    ],
  ],
  timeoutMs: 2 * minute,
};

/** The newest that runs on Node 20. */
export const azurite: Tool = {
  name: "azurite",
  program: "node_modules/.bin/azurite-blob",
  version: "3.35.0",
  install: [
    ["npm", "install", "--prefix", ".", "--no-save", "--ignore-scripts", "--no-audit", "--no-fund", "azurite@3.35.0"],
  ],
  timeoutMs: 4 * minute,
};

/** Of production grade. It is compiled, which takes some minutes the first time. */
export const minio: Tool = {
  name: "minio",
  program: "minio",
  version: "v0.0.0-20260212201848-7aac2a2c5b7c",
  install: [["go", "install", "github.com/minio/minio@v0.0.0-20260212201848-7aac2a2c5b7c"]],
  environment: (folder) => ({ GOBIN: folder, GOTOOLCHAIN: "local" }),
  timeoutMs: 20 * minute,
};

export const fakeGcs: Tool = {
  name: "fake-gcs-server",
  program: "fake-gcs-server",
  version: "v1.56.1",
  install: [["go", "install", "github.com/fsouza/fake-gcs-server@v1.56.1"]],
  environment: (folder) => ({ GOBIN: folder, GOTOOLCHAIN: "local" }),
  timeoutMs: 20 * minute,
};

/** The path of the program, installed if need be; or why there is none. */
export async function obtain(tool: Tool): Promise<{ readonly path: string } | { readonly skipped: string }> {
  const folder = join(cache, `${tool.name}-${tool.version}`);
  const done = join(folder, ".installed");
  const path = join(folder, tool.program);
  if (existsSync(done)) return { path };
  // Two runs may install at once: the one that makes the lock does it, the other waits for the mark.
  const lock = `${folder}.lock`;
  mkdirSync(cache, { recursive: true });
  const deadline = Date.now() + tool.timeoutMs;
  const patience = `this may take ${tool.timeoutMs / minute} minutes`;
  for (let isWaiting = false; ; isWaiting = true) {
    if (existsSync(done)) return { path };
    if (takeLock(lock)) break;
    if (Date.now() > deadline)
      return { skipped: `another run has been installing ${tool.name} for too long (${lock})` };
    if (!isWaiting) tell(`Waiting for another run that installs ${tool.name}; ${patience}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  tell(`Installing ${tool.name} ${tool.version}, the first time only; ${patience}`);
  try {
    return await install(tool, folder, done, path);
  } finally {
    rmSync(lock, { force: true });
  }
}

/** Makes the lock, which says whose it is; that of a run which was killed is taken away first. */
function takeLock(lock: string): boolean {
  const own = `${lock}.${process.pid}`;
  writeFileSync(own, String(process.pid));
  try {
    const holder = existsSync(lock) ? Number(readFileSync(lock, "utf8")) : 0;
    if (holder > 0 && isDead(holder)) rmSync(lock, { force: true });
    linkSync(own, lock);
    return true;
  } catch {
    return false;
  } finally {
    rmSync(own, { force: true });
  }
}

function isDead(pid: number): boolean {
  try {
    process.kill(pid, 0);
    return false;
  } catch (e) {
    return (e as NodeJS.ErrnoException).code === "ESRCH";
  }
}

/** On stderr: a user who sees nothing for minutes takes it for hung, and stops it. */
function tell(text: string): void {
  process.stderr.write(`${text}\n`);
}

async function install(
  tool: Tool,
  folder: string,
  done: string,
  path: string,
): Promise<{ readonly path: string } | { readonly skipped: string }> {
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  try {
    for (const [command, ...args] of tool.install) {
      await execute(command as string, args, {
        cwd: folder,
        timeout: tool.timeoutMs,
        maxBuffer: 1 << 26,
        env: { ...process.env, ...tool.environment?.(folder) },
      });
    }
    if (!existsSync(path)) throw new Error("the program is not there");
    writeFileSync(`${done}.new`, "");
    renameSync(`${done}.new`, done);
    return { path };
  } catch (e) {
    rmSync(folder, { recursive: true, force: true });
    const why = e instanceof Error ? (e.message.trim().split("\n").at(-1) as string).slice(0, 200) : String(e);
    return { skipped: `${tool.name} ${tool.version} could not be installed: ${why}` };
  }
}
