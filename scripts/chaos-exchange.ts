/**
 * `npm run chaos -- --fleet --rounds 50`: loaders and constructors of one pipeline, real processes on a folder, killed (SIGKILL), suspended (SIGSTOP),
 * told to leave (SIGTERM) and added at random, while one process registers checkpoints as a trainer would. Every round is a training log of its own. Afterwards it
 * must be the log that one undisturbed process writes: the same slices, lineage and resume points at every step; source logs must be the same blocks; all of
 * them closed, and clean for `verify`. A calm round with as many processes counts the bytes of the sources that are read: each once.
 */
import { type ChildProcess, spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath, pathToFileURL } from "node:url";
import { isBatchWeaveError, makeCursor, type Namespace, openNamespace } from "../src/index.js";

/** What came of it. */
export interface ExchangeReport {
  readonly rounds: number;
  readonly seed: number;
  readonly seconds: number;
  readonly steps: number;
  readonly blocks: number;
  readonly kills: number;
  readonly stops: number;
  readonly leaves: number;
  readonly joins: number;
  readonly handovers: Readonly<Record<string, number>>;
  readonly checkpoints: number;
  /** Bytes of sources read by three undisturbed loaders, for each that one process reads. */
  readonly readShare: number;
  readonly problems: readonly string[];
}

const root = fileURLToPath(new URL("../..", import.meta.url));
const cli = join(root, "dist/src/cli/main.js");
/** Then nobody is disturbed any more, and the log must end. */
const roughMs = 30_000;
const roundMsMax = 600_000;
const processesMax = 4;
const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

const sources = { web: [400, 300, 350], code: [250, 260], poison: [200] } as const;

/** A pipeline with uneven sources, bad lines, a mixture that changes and lanes that end at different steps. */
const pipelineText = `
import { definePipeline, jsonl, stagedMix, tokenize } from "batchweave/plan";
const transforms = [tokenize({ tokenizer: { kind: "bytes" } })];
const source = (name, lanes) => jsonl({
  shards: new URL("./" + name + "-*.jsonl", import.meta.url), transforms, lanes, epochs: 1,
  onFault: "skip", faultShareMax: 0.5, windowSamplesMax: 16,
});
export default definePipeline({
  namespace: { uri: new URL("./calm", import.meta.url).href, grid: { rows: 2, chunks: 1 }, lanes: 4 },
  sources: { web: source("web", 3), code: source("code", 2), poison: source("poison", 1) },
  strategy: (graph) => graph
    .mix(stagedMix([
      { from: 0, weights: { web: 2, code: 1, poison: 1 } },
      { from: 30, weights: { web: 1, code: 2, poison: 1 } },
    ]))
    .balance("karmarkar-karp"),
  construct: { seqLength: 512, microbatches: 2 },
  batch: { samples: 12 },
  exchange: { kind: "log", blockSamples: 8, aheadBlocks: 48 },
  workers: { threads: 0 },
});
`;

function writeData(folder: string): void {
  for (const [name, shards] of Object.entries(sources)) {
    shards.forEach((count, shard) => {
      const lines = Array.from({ length: count }, (_, i) => {
        if (name === "poison" && i % 9 === 4) return "{ no JSON";
        return JSON.stringify({ id: i, text: `${name} ${shard} ${i} ${"x".repeat((i * 7919) % 97)}` });
      });
      writeFileSync(join(folder, `${name}-${shard}.jsonl`), `${lines.join("\n")}\n`);
    });
  }
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(root, join(folder, "node_modules/batchweave"));
  writeFileSync(join(folder, "pipeline.mjs"), pipelineText);
}

type Role = "load" | "construct";

interface Ending {
  readonly code: number | null;
  readonly signal: NodeJS.Signals | null;
  readonly said: string;
  readonly result: Record<string, unknown> | undefined;
}

class Member {
  readonly role: Role;
  readonly child: ChildProcess;
  readonly ended: Promise<Ending>;
  isOver = false;
  /** Asked to leave. */
  isLeaving = false;
  isStopped = false;

  constructor(role: Role, folder: string, uri: string, more: readonly string[]) {
    this.role = role;
    const args = [cli, role, join(folder, "pipeline.mjs"), "--namespace", uri, "--json", ...more];
    this.child = spawn(process.execPath, [...args, "--durability", "process-crash"], {
      stdio: ["ignore", "pipe", "pipe"],
    });
    let [out, said] = ["", ""];
    this.child.stdout?.on("data", (text: Buffer) => {
      out += text.toString();
    });
    this.child.stderr?.on("data", (text: Buffer) => {
      said = `${said}${text.toString()}`.slice(-2_000);
    });
    this.ended = new Promise((resolve) => {
      this.child.once("close", (code, signal) => {
        this.isOver = true;
        const line = out.trim().split("\n").at(-1) ?? "";
        resolve({ code, signal, said, result: line.startsWith("{") ? JSON.parse(line) : undefined });
      });
    });
  }
}

/** All that a log is: bytes, lineage, resume points and notes of every step. */
async function digests(ns: Namespace): Promise<string[]> {
  const { steps } = await ns.info();
  const found: string[] = [];
  for (let step = steps.trim; step < steps.end; step++) {
    const { producer, seq, resumePoint, user } = await ns.inspect(step);
    // Which logs the samples came from is another in every round.
    const point = { ...(resumePoint as object), sources: undefined };
    const hash = createHash("sha256").update(JSON.stringify([producer, seq, user, point]));
    hash.update(JSON.stringify((await ns.samples(step)) ?? []));
    for (let row = 0; row < ns.grid.rows; row++)
      for (let chunk = 0; chunk < ns.grid.chunks; chunk++) hash.update(await ns.readSlice({ step, row, chunk }));
    found.push(hash.digest("hex"));
  }
  return found;
}

class Chaos {
  readonly #folder: string;
  readonly #random: () => number;
  readonly #note: (text: string) => void;
  readonly problems: string[] = [];
  readonly counts = { kills: 0, stops: 0, leaves: 0, joins: 0, checkpoints: 0, blocks: 0 };
  readonly handovers: Record<string, number> = {};
  readonly #members = new Set<Member>();
  #readBytes = 0;
  /** Lanes of sources that went from one loader to another. */
  #moved = 0;

  constructor(folder: string, random: () => number, note: (text: string) => void) {
    this.#folder = folder;
    this.#random = random;
    this.#note = note;
  }

  #start(role: Role, uri: string, more: readonly string[] = this.#random() < 0.25 ? ["--shadow"] : []): void {
    const member = new Member(role, this.#folder, uri, more);
    this.#members.add(member);
    member.ended.then(({ code, signal, said, result }) => {
      this.#members.delete(member);
      for (const [kind, n] of Object.entries((result?.["handovers"] as Record<string, number> | undefined) ?? {}))
        this.#addHandovers(role, kind, n);
      for (const { readBytes = 0 } of (result?.["sources"] as { readBytes?: number }[] | undefined) ?? [])
        if (role === "load") this.#readBytes += readBytes;
      // Told to leave before it had begun, it ends by the signal itself.
      const isFine = code === 0 || signal === "SIGKILL" || (member.isLeaving && (code === 143 || signal === "SIGTERM"));
      if (!isFine) this.problems.push(`${role} ended with ${signal ?? code}: ${said}`);
    });
  }

  #addHandovers(role: Role, kind: string, count: number): void {
    this.handovers[kind] = (this.handovers[kind] ?? 0) + count;
    if (role === "load" && kind !== "taken") this.#moved += count;
  }

  stop(): void {
    for (const { child } of this.#members) child.kill("SIGKILL");
  }

  #some(role?: Role): Member | undefined {
    const alive = [...this.#members].filter((one) => !one.isOver && (!role || one.role === role));
    return alive[Math.floor(this.#random() * alive.length)];
  }

  #count(role: Role): number {
    return [...this.#members].filter((one) => one.role === role && !one.isOver && !one.isLeaving).length;
  }

  /** One misfortune, or one more process. */
  #act(uri: string): void {
    const draw = this.#random();
    const role: Role = this.#random() < 0.5 ? "load" : "construct";
    const member = this.#some(role);
    if (draw < 0.3 && this.#count(role) < processesMax) {
      this.counts.joins++;
      this.#start(role, uri);
    } else if (draw < 0.6) {
      if (!member) return;
      this.counts.kills++;
      member.child.kill("SIGKILL");
    } else if (draw < 0.85) {
      if (!member || member.isStopped) return;
      this.counts.stops++;
      member.isStopped = true;
      member.child.kill("SIGSTOP");
      setTimeout(
        () => {
          member.isStopped = false;
          member.child.kill("SIGCONT");
        },
        200 + this.#random() * 6_000,
      ).unref();
    } else if (member && !member.isLeaving) {
      this.counts.leaves++;
      member.isLeaving = true;
      member.child.kill("SIGTERM");
    }
  }

  /** Runs a training log to its end. `isCalm`: nobody is disturbed. */
  async play(uri: string, isCalm: boolean): Promise<void> {
    const begun = performance.now();
    // A lane that moves is read again from its last block: where bytes are counted, each of three loaders has its two lanes of six.
    const more = isCalm ? ["--lanes-max", "2"] : undefined;
    for (const role of ["load", "load", "load", "construct", "construct"] as const) this.#start(role, uri, more);
    let actAt = begun + 1_500;
    let [step, checkpoints] = [0, 0];
    for (;;) {
      await sleep(100);
      const now = performance.now();
      const ns = await openNamespace(uri).catch((error: unknown) => {
        if (isBatchWeaveError(error, "NO_NAMESPACE")) return undefined;
        throw error;
      });
      const info = await ns?.info();
      if (info?.closed) break;
      if (now - begun > roundMsMax) {
        this.problems.push(
          `${uri} did not end: it has ${info?.steps.end} steps, waiting ${JSON.stringify(info?.waiting)}`,
        );
        this.stop();
        return;
      }
      // A trainer reads behind the end, and keeps two checkpoints.
      if (ns && info && info.steps.end >= step + 12 && !isCalm) {
        step = info.steps.end - 4;
        await ns.checkpoint(`c-${checkpoints++}`, makeCursor(ns.uuid, step * ns.grid.rows, 0), { keepLast: 2 });
        this.counts.checkpoints++;
      }
      if (isCalm) continue;
      if (now >= actAt) {
        actAt = now + 300 + this.#random() * 2_500;
        if (now - begun < roughMs) this.#act(uri);
      }
      for (const role of ["load", "construct"] as const) if (this.#count(role) === 0) this.#start(role, uri);
    }
    // The log is complete: everybody ends by itself.
    for (const member of this.#members) member.child.kill("SIGCONT");
    const late = new Promise<"late">((resolve) => setTimeout(() => resolve("late"), 30_000).unref());
    const all = Promise.all([...this.#members].map(({ ended }) => ended));
    if ((await Promise.race([all, late])) === "late") {
      this.problems.push(`${uri} is complete, and ${this.#members.size} processes go on`);
      this.stop();
      await all;
    }
  }

  /** What is different from the undisturbed log, and what `verify` finds. */
  async compare(calm: string, uri: string): Promise<{ readonly steps: number }> {
    const place = uri.slice(uri.lastIndexOf("/") + 1);
    const logs = ["", ...Object.keys(sources).map((name) => `.sources/${name}`)];
    let steps = 0;
    for (const log of logs) {
      const [expected, found] = await Promise.all([openNamespace(`${calm}${log}`), openNamespace(`${uri}${log}`)]);
      const { problems } = await found.verify({ level: "bytes" });
      for (const { severity, code, message } of problems)
        this.problems.push(`${place}${log}: ${severity}[${code}] ${message}`);
      const [a, b] = [await digests(expected), await digests(found)];
      const { trim, end } = (await found.info()).steps;
      if (log === "") steps = end;
      else this.counts.blocks += end;
      // A source log may go on after the training log has all it needs, or stop before its end; and what it was reclaimed of is gone.
      const length = log === "" ? Math.max(a.length, b.length + trim) : Math.min(a.length, b.length + trim);
      for (let step = trim; step < length; step++) {
        if (a[step] === b[step - trim]) continue;
        this.problems.push(`${place}${log}: step ${step} is not what an undisturbed process writes`);
        break;
      }
    }
    return { steps };
  }

  /** Bytes read of the sources for each that one process reads. A lane that moved, as it does when a busy machine lets a loader stand, is read again from its last block. */
  readShare(alone: number): number {
    const [share, moved] = [this.#readBytes / alone, this.#moved];
    this.#note(
      `three loaders read ${this.#readBytes} bytes of the sources, one process ${alone}; ${moved} lanes moved`,
    );
    if (share > 1.05 && moved === 0)
      this.problems.push(`three loaders read ${share.toFixed(2)} times what one process reads`);
    return share;
  }
}

/** One undisturbed process. Gives the bytes of sources that it read. */
async function runCalm(folder: string): Promise<number> {
  const child = spawn(process.execPath, [cli, "run", join(folder, "pipeline.mjs"), "--json"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  let out = "";
  child.stdout.on("data", (text: Buffer) => {
    out += text.toString();
  });
  const code = await new Promise((resolve) => child.once("close", resolve));
  if (code !== 0) throw new Error(`the undisturbed run ended with ${code}`);
  const { sources: figures } = JSON.parse(out.trim().split("\n").at(-1) as string) as {
    sources: readonly { readonly readBytes: number }[];
  };
  return figures.reduce((sum, { readBytes }) => sum + readBytes, 0);
}

/** Plays `rounds` rounds in a folder. */
export async function exchange(
  folder: string,
  rounds: number,
  seed: number,
  random: () => number,
  note: (text: string) => void,
): Promise<ExchangeReport> {
  const begun = performance.now();
  writeData(folder);
  const uriOf = (name: string): string => pathToFileURL(join(folder, name)).href;
  const chaos = new Chaos(folder, random, note);
  process.on("exit", () => chaos.stop());
  const alone = await runCalm(folder);
  await chaos.play(uriOf("shared"), true);
  const readShare = chaos.readShare(alone);
  let { steps } = await chaos.compare(uriOf("calm"), uriOf("shared"));
  for (let round = 0; round < rounds && chaos.problems.length === 0; round++) {
    const name = `round-${round}`;
    await chaos.play(uriOf(name), false);
    steps += (await chaos.compare(uriOf("calm"), uriOf(name))).steps;
    note(`round ${round + 1} of ${rounds}: ${JSON.stringify(chaos.counts)}`);
    if (chaos.problems.length > 0) break;
    for (const place of [name, `${name}.sources`]) rmSync(join(folder, place), { recursive: true, force: true });
  }
  return {
    rounds,
    seed,
    seconds: Math.round((performance.now() - begun) / 1_000),
    steps,
    ...chaos.counts,
    handovers: chaos.handovers,
    readShare,
    problems: chaos.problems,
  };
}
