/**
 * Property: each command does what its help says, for people and with --json, and a session of them tells one story: what was produced is
 * what is listed, shown and read, whichever process is killed in between. Method: run the built command in processes of its own, on real folders.
 */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { commands } from "../../src/cli/command-list.js";
import { syntheticBatch, syntheticSlice } from "../../src/cli/synthetic.js";
import { root } from "../source-tree.js";
import { buildIfStale, must, run, start, Workspace } from "./command-line.js";

const space = new Workspace();
const grid = { rows: 4, chunks: 2 };
const sliceBytes = 1_000;
const uri = space.uri("run");

beforeAll(async () => {
  buildIfStale();
  await must("create", uri, "--rows", "4", "--chunks", "2");
  await must("produce", uri, "--id", "p0", "--batches", "6", "--bytes", String(sliceBytes), "--samples", "3");
  await must("produce", uri, "--id", "p1", "--batches", "2", "--bytes", "400", "--tensors", "--close");
});

afterAll(() => space.remove());

function sha256(...parts: Uint8Array[]): string {
  return createHash("sha256").update(Buffer.concat(parts)).digest("hex");
}

/** What rank (d, c) of a mesh must get in an iteration, from the first six batches. */
function shareOf(mesh: { dp: number; cp: number }, d: number, c: number, iteration: number): Uint8Array[] {
  const globalRow = iteration * mesh.dp + d;
  const batch = { producer: "p0", counter: Math.floor(globalRow / grid.rows), grid, sliceBytes };
  const size = grid.chunks / mesh.cp;
  return Array.from({ length: size }, (_, i) => syntheticSlice(batch, globalRow % grid.rows, c * size + i));
}

/** Runs a command at a terminal that Python makes, with something typed. */
function typed(args: readonly string[], text: string): { status: number; output: string } {
  const script = `
import os, pty, sys
text = sys.argv[1].encode()
pid, fd = pty.fork()
if pid == 0:
    os.execvp(sys.argv[2], sys.argv[2:])
output = b""
while True:
    try:
        data = os.read(fd, 4096)
    except OSError:
        break
    if not data:
        break
    output += data
    if b"> " in output and text:
        os.write(fd, text)
        text = b""
print(output.decode())
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
`;
  const command = [process.execPath, "dist/src/cli/main.js", ...args];
  const { status, stdout } = spawnSync("python3", ["-c", script, text, ...command], { encoding: "utf8", cwd: root });
  return { status: status as number, output: stdout };
}

describe("help", () => {
  test("the general help names every command and the exit status", async () => {
    const { stdout, status } = await run("--help");
    for (const name of Object.keys(commands)) expect(stdout).toMatch(new RegExp(`^  ${name} `, "m"));
    expect(stdout).toMatch(/Exit status\n {2}0/);
    expect(status).toBe(0);
  });

  test("every command explains itself, has examples that name it, and takes --json", async () => {
    const helps = await Promise.all(
      Object.keys(commands).map(async (name) => [name, await run(name, "--help")] as const),
    );
    for (const [name, { stdout, status }] of helps) {
      expect(stdout).toMatch(new RegExp(`^batchweave ${name} `));
      expect(stdout).toMatch(new RegExp(`Examples\n  batchweave ${name} ?`));
      expect(stdout).toMatch(/ {2}--json /);
      expect(stdout).toMatch(/Exit status/);
      expect(status).toBe(0);
    }
  });

  test("the version is the package's", async () => {
    const { version } = JSON.parse(readFileSync("package.json", "utf8"));
    expect((await run("--version")).stdout.trim()).toBe(version);
  });
});

describe("looking", () => {
  test("info", async () => {
    const { lines } = await must("info", uri, "--json");
    expect(lines).toMatchObject([
      {
        uri,
        grid,
        order: { kind: "commit" },
        closed: true,
        steps: { trim: 0, end: 8 },
        producers: [
          { id: "p1", epoch: 1, seq: 2 },
          { id: "p0", epoch: 1, seq: 6 },
        ],
      },
    ]);
    const { stdout } = await must("info", uri);
    expect(stdout).toMatch(/steps +0 to 7 \(8 batches, 32 rows, about \d[^)]*B\), closed/);
  });

  test("ls finds namespaces below a folder and batches in a namespace", async () => {
    await must("create", space.uri("deep/er/other"), "--rows", "1");
    const below = await must("ls", space.uri("").replace(/\/$/, ""), "--json");
    expect(below.lines).toMatchObject([
      { uri: space.uri("deep/er/other"), grid: { rows: 1, chunks: 1 } },
      { uri, grid },
    ]);
    const batches = await must("ls", uri, "--from", "4", "--limit", "3", "--json");
    expect(batches.lines).toMatchObject([
      { step: 4, producer: "p0", seq: 4 },
      { step: 5, producer: "p0", seq: 5 },
      { step: 6, producer: "p1", seq: 0 },
    ]);
  });

  test("inspect shows a batch, and a slice with its sha256", async () => {
    const { lines } = await must("inspect", uri, "--step", "2", "--json");
    expect(lines).toMatchObject([{ step: 2, producer: "p0", seq: 2, resumePoint: { batch: 3 } }]);
    expect((lines[0] as { slices: unknown[] }).slices).toHaveLength(8);
    const slice = await must("inspect", uri, "--step", "2", "--slice", "3,1", "--json");
    const expected = syntheticSlice({ producer: "p0", counter: 2, grid, sliceBytes }, 3, 1);
    expect(slice.lines).toMatchObject([{ row: 3, chunk: 1, bytes: sliceBytes, sha256: sha256(expected) }]);
  });

  test("preview decodes tensors", async () => {
    const { lines } = await must("preview", uri, "--step", "6", "--slice", "1,0", "--json");
    const shape = [1, 50];
    expect(lines).toMatchObject([
      {
        kind: "tensors",
        tensors: [
          { name: "input_ids", dtype: "I32", shape },
          { name: "labels", dtype: "I32", shape },
        ],
      },
    ]);
    expect((await must("preview", uri, "--step", "6")).stdout).toMatch(/input_ids +I32 +\[1, 50\]/);
    expect((await must("preview", uri, "--step", "6", "--tokenizer", "bytes")).stdout).toMatch(
      /sequence 0, 50 tokens: "/,
    );
    const untold = await run("preview", uri, "--step", "0", "--tokenizer", "bytes", "--json");
    expect([untold.status, untold.error?.code]).toEqual([2, "INVALID_ARGUMENT"]);
    const plain = await must("preview", uri, "--step", "0", "--json");
    expect(plain.lines).toMatchObject([{ kind: "bytes", contentType: "application/octet-stream", bytes: sliceBytes }]);
  });

  test("looking and reading change nothing on the store", async () => {
    const before = space.snapshot("run");
    for (const args of [
      ["info", uri],
      ["ls", uri],
      ["inspect", uri, "--step", "1"],
      ["preview", uri, "--step", "1"],
      ["consume", uri, "--iterations", "5"],
      ["checkpoint", uri, "list"],
      ["reclaim", uri, "--dry-run", "--grace", "0", "--keep-versions", "1"],
    ])
      await must(...args);
    expect(space.snapshot("run")).toEqual(before);
  });

  test("probe finds a folder safe", async () => {
    const { lines } = await must("probe", space.uri("probed"), "--rounds", "1", "--json");
    expect(lines).toMatchObject([{ safe: true }]);
    expect(JSON.stringify(lines)).toContain("1 rounds of 4 processes with 8 creators each");
  });
});

describe("consume", () => {
  test("prints one compact line per iteration, with the sha256 of the share's bytes in order", async () => {
    const mesh = { dp: 2, cp: 2 };
    const { stdout } = await must(
      "consume",
      uri,
      "--dp",
      "2",
      "--cp",
      "2",
      "--rank",
      "3",
      "--iterations",
      "12",
      "--json",
    );
    const wanted = Array.from(
      { length: 12 },
      (_, i) => `{"iteration":${i},"digest":"${sha256(...shareOf(mesh, 1, 1, i))}"}\n`,
    );
    expect(stdout).toBe(wanted.join(""));
  });

  test("any dp reads the same rows; what is left over is said", async () => {
    const { stdout, stderr } = await must("consume", uri, "--dp", "3", "--rank", "1", "--json");
    expect(stdout.trim().split("\n")).toHaveLength(10);
    expect(stderr).toBe("");
    const plain = await must("consume", uri, "--dp", "3", "--rank", "1");
    expect(plain.stderr).toMatch(/2 rows too few/);
    const first = JSON.parse(stdout.split("\n")[3] as string);
    expect(first.digest).toBe(sha256(...shareOf({ dp: 3, cp: 1 }, 1, 0, 3)));
  });

  test("mesh and rank come from the launcher's variables", async () => {
    const { ended } = start(["consume", uri, "--cp", "2", "--iterations", "1", "--json"], {
      RANK: "3",
      WORLD_SIZE: "4",
    });
    const { lines } = await ended;
    expect(lines).toEqual([{ iteration: 0, digest: sha256(...shareOf({ dp: 2, cp: 2 }, 1, 1, 0)) }]);
  });

  test("goes on from its cursor file, on another mesh too, and from a step", async () => {
    const cursor = space.path("cursor.json");
    await must("consume", uri, "--dp", "2", "--rank", "0", "--iterations", "4", "--cursor-file", cursor);
    expect(JSON.parse(readFileSync(cursor, "utf8"))).toMatchObject({ row: 8, iteration: 4 });
    const wider = await must(
      "consume",
      uri,
      "--dp",
      "4",
      "--rank",
      "0",
      "--from",
      `@${cursor}`,
      "--iterations",
      "1",
      "--json",
    );
    const batch = { producer: "p0", counter: 2, grid, sliceBytes };
    const digest = sha256(syntheticSlice(batch, 0, 0), syntheticSlice(batch, 0, 1));
    expect(wider.lines).toEqual([{ iteration: 4, digest }]);
    const step = await must(
      "consume",
      uri,
      "--dp",
      "4",
      "--rank",
      "0",
      "--from",
      "step:2",
      "--iterations",
      "1",
      "--json",
    );
    expect(step.lines).toEqual([{ iteration: 0, digest }]);
  });

  test("fails with status 1 when no batch comes", async () => {
    const empty = space.uri("empty");
    await must("create", empty, "--rows", "1");
    const { status, error } = await run("consume", empty, "--wait-timeout", "0.2", "--json");
    expect([status, error?.code]).toEqual([1, "WAIT_TIMEOUT"]);
  });

  test("a reader that goes away ends it quietly", async () => {
    const { child, ended } = start(["consume", uri, "--json"]);
    child.stdout?.destroy();
    const { status, stderr } = await ended;
    expect([status, stderr]).toEqual([0, ""]);
  });
});

describe("checkpoints", () => {
  test("are registered, listed, started from, released", async () => {
    const held = space.uri("held");
    await must("create", held, "--rows", "2");
    await must("produce", held, "--id", "p", "--batches", "5", "--bytes", "64", "--close");
    await must("consume", held, "--checkpoint-every", "4", "--checkpoint-group", "run-1", "--keep-last", "2");
    const list = await must("checkpoint", held, "list", "--json");
    expect(list.lines).toMatchObject([
      { group: "run-1", id: "iter-8", row: 8, step: 4 },
      { group: "run-1", id: "iter-4", row: 4, step: 2 },
    ]);
    const from = ["consume", held, "--from", "checkpoint:iter-8", "--checkpoint-group", "run-1", "--json"];
    expect((await must(...from)).lines).toMatchObject([{ iteration: 8 }, { iteration: 9 }]);
    await must("checkpoint", held, "release", "iter-8", "--group", "run-1");
    expect((await must("checkpoint", held, "list", "--json")).lines).toMatchObject([{ id: "iter-4" }]);
    expect((await run(...from)).error?.code).toBe("NO_CHECKPOINT");
  });
});

describe("produce", () => {
  test("killed and started again, it goes on where the log says it was, and its bytes are the same", async () => {
    const killed = space.uri("killed");
    await must("create", killed, "--rows", "2");
    const args = ["produce", killed, "--id", "p", "--batches", "40", "--bytes", "500", "--interval", "20"];
    let end = 0;
    for (let epoch = 1; epoch <= 2; epoch++) {
      const { child, ended } = start([...args, "--rate", "8"]);
      // Until this holder itself has brought a batch into the log.
      for (let grown = false; !grown; ) {
        const info = (await must("info", killed, "--json")).lines[0] as {
          steps: { end: number };
          producers: { epoch: number }[];
        };
        grown = info.producers[0]?.epoch === epoch && info.steps.end > end;
        if (grown) end = info.steps.end;
      }
      child.kill("SIGKILL");
      expect((await ended).signal).toBe("SIGKILL");
    }
    const last = await must(...args, "--close", "--json");
    expect(last.lines).toMatchObject([{ producer: "p", epoch: 3, to: 40, closed: true, end: 40 }]);
    const { lines } = await must("consume", killed, "--policy", "global-batch", "--json");
    const digests = Array.from({ length: 40 }, (_, counter) => ({
      iteration: counter,
      digest: sha256(...syntheticBatch({ producer: "p", counter, grid: { rows: 2, chunks: 1 }, sliceBytes: 500 })),
    }));
    expect(lines).toEqual(digests);
    expect((await must(...args, "--json")).lines).toMatchObject([{ from: 40, to: 40, bytes: 0 }]);
  });

  test("a batch from files, with a resume point and a content type", async () => {
    const filed = space.uri("filed");
    await must("create", filed, "--rows", "2");
    writeFileSync(space.path("a.txt"), "hello");
    writeFileSync(space.path("b.txt"), "world");
    const slices = `${space.path("a.txt")},${space.path("b.txt")}`;
    const options = ["--slices", slices, "--resume-point", '{"offset": 2}', "--content-type", "text/plain"];
    await must("produce", filed, "--id", "f", ...options);
    expect((await must("inspect", filed, "--step", "0", "--json")).lines).toMatchObject([
      { contentType: "text/plain", resumePoint: { offset: 2 } },
    ]);
    expect((await must("preview", filed, "--step", "0", "--slice", "1,0")).stdout).toMatch(/world/);
  });

  test("a newer holder of the id fences the older one, which ends with status 1", async () => {
    const fought = space.uri("fought");
    await must("create", fought, "--rows", "1");
    const first = start(["produce", fought, "--id", "p", "--rate", "50", "--json"]);
    for (;;) {
      const { lines } = await must("info", fought, "--json");
      if ((lines[0] as { steps: { end: number } }).steps.end > 0) break;
    }
    await must("produce", fought, "--id", "p", "--batches", "1");
    const { status, error } = await first.ended;
    expect([status, error?.code]).toEqual([1, "FENCED"]);
  });

  test("to a closed log it ends with CLOSED and status 1", async () => {
    const { status, error } = await run("produce", uri, "--id", "late", "--batches", "1", "--json");
    expect([status, error?.code]).toEqual([1, "CLOSED"]);
  });
});

describe("close and delete", () => {
  test("close says where, delete leaves nothing but a marker", async () => {
    const gone = space.uri("gone");
    await must("create", gone, "--rows", "1");
    await must("produce", gone, "--id", "p", "--batches", "2", "--bytes", "10");
    expect((await must("close", gone, "--json")).lines).toEqual([{ uri: gone, closed: true, end: 2 }]);
    await must("delete", gone, "--yes");
    expect(Object.keys(space.snapshot("gone"))).toEqual([
      expect.stringMatching(/\/life\/[0-9a-f-]{36}\/boundary\/0{19}1\.json$/),
    ]);
    expect((await run("delete", gone, "--yes", "--json")).error?.code).toBe("NO_NAMESPACE");
  });

  test("a closed log is not opened: what was written before is done, anything more is refused, and nothing changes", async () => {
    const closed = space.uri("closed");
    await must("create", closed, "--rows", "1");
    await must("produce", closed, "--id", "p", "--batches", "2", "--bytes", "10", "--close");
    const before = space.snapshot("closed");
    const [again] = (await must("produce", closed, "--id", "p", "--batches", "2", "--json")).lines;
    expect(again).toMatchObject({ producer: "p", epoch: 1, from: 2, to: 2 });
    const more = await run("produce", closed, "--id", "p", "--batches", "3", "--json");
    expect([more.status, more.error?.code]).toEqual([1, "CLOSED"]);
    expect((await run("produce", closed, "--id", "q", "--json")).error?.code).toBe("CLOSED");
    expect(space.snapshot("closed")).toEqual(before);
  });

  test("at a terminal, delete asks for the URI and takes nothing else", async () => {
    const asked = space.uri("asked");
    await must("create", asked, "--rows", "1");
    const wrong = typed(["delete", asked], "yes\n");
    expect([wrong.status, wrong.output]).toEqual([
      2,
      expect.stringMatching(/error\[NOT_EMPTY\].*what was typed is not its URI/),
    ]);
    expect(Object.keys(space.snapshot("asked"))).toHaveLength(1);
    expect(typed(["delete", asked], `${asked}\n`).output).toMatch(/is gone: 2 objects deleted/);
    expect(Object.keys(space.snapshot("asked"))).toEqual([
      expect.stringMatching(/\/life\/[0-9a-f-]{36}\/boundary\/0{19}1\.json$/),
    ]);
  });

  test("lanes: closing names what is missing, and drops what waits only when told to", async () => {
    const lanes = space.uri("lanes");
    await must("create", lanes, "--rows", "1", "--order", "lanes", "--lanes", "2");
    await must("produce", lanes, "--id", "lane-1", "--batches", "1", "--bytes", "10");
    expect((await must("info", lanes)).stdout).toMatch(/1 batch for step 0, which is lane-0's/);
    expect(await run("close", lanes, "--json")).toMatchObject({ status: 2, error: { code: "INVALID_ARGUMENT" } });
    expect((await must("close", lanes, "--drop-waiting", "--json")).lines).toMatchObject([{ end: 0 }]);
  });
});

describe("long-running commands", () => {
  test("serve Prometheus text on the loopback address, and finish cleanly at SIGTERM", async () => {
    const served = space.uri("served");
    await must("create", served, "--rows", "1");
    const { child, ended } = start(["produce", served, "--id", "p", "--bytes", "100", "--metrics", "0"]);
    const url = await new Promise<string>((resolve) => {
      let text = "";
      child.stderr?.on("data", (data: Buffer) => {
        text += data.toString();
        const found = /metrics on (http:\/\/127\.0\.0\.1:\d+\/metrics)/.exec(text)?.[1];
        if (found) resolve(found);
      });
    });
    let text = "";
    while (!/batchweave_batches_committed_total\{[^}]*producer="p"[^}]*\} [1-9]/.test(text))
      text = await (await fetch(url)).text();
    expect(text).toMatch(/# TYPE batchweave_commits_total counter/);
    expect(text).toMatch(
      /batchweave_store_requests_total\{namespace="file:[^"]*",op="create",outcome="created"\} [1-9]/,
    );
    expect(text).toMatch(/batchweave_store_sent_bytes_total\{namespace="[^"]*"\} [1-9]/);
    child.kill("SIGTERM");
    const { status, stdout } = await ended;
    expect(status).toBe(143);
    // Whatever was accepted is in the log.
    const wrote = Number(/(\d+) batches,/.exec(stdout)?.[1]);
    expect((await must("info", served, "--json")).lines).toMatchObject([{ steps: { end: wrote } }]);
  });

  test("a rank serves its exposed data wait and lag, and saves its cursor at SIGINT", async () => {
    const waited = space.uri("waited");
    await must("create", waited, "--rows", "1");
    await must("produce", waited, "--id", "p", "--batches", "3", "--bytes", "10");
    const cursor = space.path("waited.json");
    const args = ["consume", waited, "--metrics", "0", "--cursor-file", cursor];
    const { child, ended } = start(args);
    const url = await new Promise<string>((resolve) => {
      child.stderr?.on("data", (data: Buffer) => {
        const found = /metrics on (\S+)/.exec(data.toString())?.[1];
        if (found) resolve(found);
      });
    });
    let text = "";
    while (!/batchweave_shares_total\{[^}]*rank="0"[^}]*\} 3/.test(text)) text = await (await fetch(url)).text();
    expect(text).toMatch(/batchweave_share_wait_seconds_count\{[^}]*\} 3/);
    expect(text).toMatch(/batchweave_lag_steps\{[^}]*\} 0/);
    // It waits for a fourth share, and the wait of this moment counts.
    const waitedSeconds = async (): Promise<number> =>
      Number(/batchweave_data_wait_seconds_total\{[^}]*\} (\S+)/.exec(await (await fetch(url)).text())?.[1]);
    const before = await waitedSeconds();
    await new Promise((resolve) => setTimeout(resolve, 500));
    expect(await waitedSeconds()).toBeGreaterThan(before + 0.3);
    child.kill("SIGINT");
    expect((await ended).status).toBe(130);
    expect(JSON.parse(readFileSync(cursor, "utf8"))).toMatchObject({ row: 3, iteration: 3 });
  });

  test("progress is a bar on a terminal", async () => {
    const barred = space.uri("barred");
    await must("create", barred, "--rows", "1");
    const { output, status } = typed(["produce", barred, "--id", "p", "--batches", "5", "--bytes", "10"], "");
    expect(output).toMatch(/\rp \[#{24}\] 5\/5/);
    expect(status).toBe(0);
  });

  test("info --watch ends when the log is closed", async () => {
    const { lines, status } = await run("info", uri, "--watch", "--json");
    expect([status, lines.length]).toEqual([0, 1]);
  });

  test("a port that is taken is bad input", async () => {
    const server = (await import("node:net")).createServer().listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const { port } = server.address() as { port: number };
    const { status, error } = await run("info", uri, "--metrics", String(port), "--json");
    server.close();
    expect([status, error?.code]).toEqual([2, "INVALID_ARGUMENT"]);
  });
});

test("BATCHWEAVE_DEBUG adds the stack, and nothing else does", async () => {
  const { stderr } = await start(["info", "nowhere:x"], { BATCHWEAVE_DEBUG: "1" }).ended;
  expect(stderr).toMatch(/\n\s+at /);
  expect((await run("info", "nowhere:x")).stderr.trim().split("\n")).toHaveLength(1);
});
