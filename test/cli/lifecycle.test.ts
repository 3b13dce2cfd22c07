/**
 * Property: a training engineer's session works from the command line alone: produce, consume with checkpoints, roll back, fork with a skip, ask what
 * a step held, reclaim, verify; and verify notices damage. Method: run the built command on a real folder, step by step.
 */
import { readFileSync, unlinkSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { buildIfStale, must, run, Workspace } from "./command-line.js";

const space = new Workspace();
const uri = space.uri("run");
const fork = space.uri("fork");

beforeAll(async () => {
  buildIfStale();
  await must("create", uri, "--rows", "2");
  await must("produce", uri, "--id", "p", "--batches", "30", "--bytes", "200", "--samples", "4");
});

afterAll(() => space.remove());

/** Digests of global batches, one per line. */
async function digests(of: string, ...args: string[]): Promise<string[]> {
  const { lines } = await must("consume", of, "--policy", "global-batch", ...args, "--json");
  return (lines as { digest: string }[]).map(({ digest }) => digest);
}

describe("a session", () => {
  let all: string[];

  test("consume with checkpoints, then roll back to one of them", async () => {
    all = await digests(uri, "--iterations", "30", "--checkpoint-every", "10");
    expect(all).toHaveLength(30);
    expect(await digests(uri, "--from", "checkpoint:iter-20", "--iterations", "10")).toEqual(all.slice(20));
  });

  test("steps are told by the first and the last, in every command; a log without any has none", async () => {
    const empty = space.uri("empty");
    await must("create", empty, "--rows", "1");
    expect((await must("top", uri, "--once")).stdout).toContain(" steps 0 to 29 ");
    expect((await must("ls", space.uri("").replace(/\/$/, ""))).stdout).toMatch(/ none yet .*\n.* 0 to 29 /);
    expect((await must("ls", empty)).stderr).toContain("holds no steps (none yet; the next is 0).");
    expect((await must("find", empty, "--sample", "x")).stdout).toContain("There is no step in that range");
  });

  test("what did step N hold, and which step held sample X?", async () => {
    const { lines } = await must("inspect", uri, "--step", "12", "--samples", "--json");
    const { samples } = lines[0] as { samples: { source: string; id: string }[] };
    expect(samples).toHaveLength(4);
    expect(samples[2]).toMatchObject({ source: "synthetic", id: "p/12/2", row: 0 });
    const found = await must("find", uri, "--sample", "p/12/2", "--json");
    expect(found.lines).toMatchObject([{ matches: [{ step: 12, index: 2 }], stepsWithoutLineage: 0 }]);
    expect((await must("find", uri, "--sample", "p/12/2")).stdout).toMatch(/^ +12 +2 +synthetic/m);
    expect((await must("find", uri, "--sample", "nobody", "--json")).lines).toMatchObject([{ matches: [] }]);
  });

  test("fork without the bad batches; it goes on by itself", async () => {
    const made = await must("fork", uri, fork, "--at", "25", "--skip", "5-6,20", "--json");
    expect(made.lines).toMatchObject([{ uri: fork, of: uri, steps: { trim: 0, end: 22 } }]);
    await must("produce", fork, "--id", "own", "--batches", "2", "--bytes", "200", "--close");
    const kept = all.slice(0, 25).filter((_, step) => ![5, 6, 20].includes(step));
    const seen = await digests(fork);
    expect(seen.slice(0, 22)).toEqual(kept);
    expect(seen).toHaveLength(24);
    expect((await must("inspect", fork, "--step", "5", "--json")).lines).toMatchObject([{ seq: 7, origin: uri }]);
    expect((await must("info", uri)).stdout).toMatch(/forked +file:.*fork holds steps 0 to 24/);
    expect((await must("info", fork)).stdout).toMatch(/fork of +file:.*run \(22 steps\)/);
  });

  test("a parent whose batches are shared is not deleted by mistake", async () => {
    const { status, error } = await run("delete", uri, "--yes", "--json");
    expect([status, error?.code]).toEqual([2, "NOT_EMPTY"]);
  });

  test("reclaim takes what no checkpoint and no fork holds", async () => {
    const now = ["--grace", "0", "--keep-versions", "1"];
    await must("checkpoint", uri, "release", "iter-10");
    await must("checkpoint", uri, "release", "iter-20");
    const dry = await must("reclaim", uri, "--dry-run", ...now, "--json");
    expect(dry.lines).toMatchObject([{ dryRun: true, trim: { before: 0, after: 30 } }]);
    // What is short comes first: a key of any length pushes nothing away.
    expect((await must("reclaim", uri, "--dry-run", ...now)).stdout).toMatch(
      /\n *bytes {2}why +object\n *\d+ {2}\w+ +life\//,
    );
    const done = await must("reclaim", uri, ...now, "--json");
    // The fork holds 0 to 24, and a producer's last batch holds its resume point.
    expect(done.lines).toMatchObject([{ dryRun: false, batches: { objects: 4 } }]);
    expect(await digests(fork)).toHaveLength(24);
    expect((await run("consume", uri, "--from", "step:3", "--json")).error?.code).toBe("RECLAIMED");
  });

  test("a step that is gone is not a step that has not come yet", async () => {
    expect((await run("inspect", uri, "--step", "3", "--json")).error?.code).toBe("RECLAIMED");
    const { status, stderr } = await run("inspect", uri, "--step", "30");
    expect([status, stderr]).toEqual([2, expect.stringContaining("Step 30 is not published yet: the last step is 29")]);
    expect((await run("inspect", fork, "--step", "99")).stderr).toContain("the log is closed and the last step is 23");
  });

  test("verify is clean, for both", async () => {
    for (const one of [uri, fork]) {
      const { lines } = await must("verify", one, "--json");
      expect(lines).toMatchObject([{ ok: true, level: "bytes", problems: [] }]);
    }
    expect((await must("verify", fork)).stdout).toMatch(/is clean: every byte was read and checked/);
  });

  test("without the fork the parent's batches go", async () => {
    await must("delete", fork, "--yes");
    const { lines } = await must("reclaim", uri, "--grace", "0", "--keep-versions", "1", "--json");
    expect((lines[0] as { batches: { objects: number } }).batches.objects).toBeGreaterThan(20);
    expect((await must("verify", uri, "--json")).lines).toMatchObject([{ ok: true }]);
  });
});

describe("verify notices", () => {
  async function damaged(name: string, damage: (batch: string) => void): Promise<Awaited<ReturnType<typeof run>>> {
    const one = space.uri(name);
    await must("create", one, "--rows", "2");
    await must("produce", one, "--id", "p", "--batches", "3", "--bytes", "200", "--close");
    const { lines } = await must("inspect", one, "--step", "1", "--json");
    damage(join(fileURLToPath(one), (lines[0] as { keys: string[] }).keys[0] as string));
    return await run("verify", one, "--json");
  }

  test("one flipped bit of a slice", async () => {
    const { status, error, lines } = await damaged("flipped", (path) => {
      const bytes = readFileSync(path);
      bytes[50] = (bytes[50] as number) ^ 1;
      writeFileSync(path, bytes);
    });
    expect([status, error?.code]).toEqual([2, "CORRUPT"]);
    expect(lines).toMatchObject([{ ok: false, problems: [{ severity: "error", step: 1 }] }]);
  });

  test("a missing object", async () => {
    const { status, lines } = await damaged("missing", unlinkSync);
    expect(status).toBe(2);
    expect(lines).toMatchObject([{ ok: false, problems: [{ severity: "error", step: 1 }] }]);
  });
});
