/**
 * Property: `batchweave probe s3://…` tells a store that keeps the rules from one that ignores If-None-Match, in one process and among
 * several, and leaves nothing behind.
 * Method: the built command against a small server that keeps them, one that does not, and moto where it can be had.
 */
import { beforeAll, expect, test } from "vitest";
import { s3Access, startMoto } from "../../harness/s3-servers.js";
import { startTinyS3 } from "../../harness/tiny-s3.js";
import type { ProbeReport } from "../../src/index.js";
import { buildIfStale, type Ended, start } from "../cli/command-line.js";

const amongProcesses = "conditional create: one winner among processes";
const within = "conditional create: one winner of many";

beforeAll(() => buildIfStale());

function probe(endpoint: string): Promise<Ended> {
  const { bucket, environment } = s3Access(endpoint);
  const args = ["probe", `s3://${bucket}/probed`, "--rounds", "3", "--processes", "3", "--json"];
  return start(args, { ...environment }).ended;
}

function report({ lines }: Ended): ProbeReport {
  return lines[0] as ProbeReport;
}

test("a server that keeps the rules is safe", async () => {
  const server = await startTinyS3();
  try {
    const ended = await probe(server.endpoint);
    expect(ended.status, ended.stderr).toBe(0);
    expect(report(ended)).toMatchObject({ safe: true });
    expect(report(ended).cases.find((one) => one.name === amongProcesses)).toEqual({
      name: amongProcesses,
      ok: true,
      detail: "3 rounds of 3 processes with 11 creators each",
    });
    // 33 creators met on each key: the race took place, and among connections of several processes.
    const racers = server.requests.filter((one) => one.method === "PUT" && one.path.endsWith("/round-2"));
    expect(racers).toHaveLength(33);
    expect([...server.objects.keys()]).toEqual([]);
  } finally {
    await server.stop();
  }
});

test("hazard 21: a server that ignores the header is refused, by either race", async () => {
  const server = await startTinyS3({ isCareless: true });
  try {
    const ended = await probe(server.endpoint);
    expect(ended.status).toBe(2);
    expect(ended.error).toMatchObject({ code: "UNSAFE_STORE", message: expect.stringContaining(amongProcesses) });
    const broken = report(ended).cases.filter((one) => !one.ok);
    expect(broken.map((one) => one.name)).toEqual(expect.arrayContaining([within, amongProcesses]));
    expect(broken.at(-1)?.detail).toBe("round 0: 33 of 33 creators of one key were told they created it");
    expect([...server.objects.keys()]).toEqual([]);
  } finally {
    await server.stop();
  }
});

test("a process of the race that cannot reach the store says so, in one sentence", async () => {
  const ended = await probe("http://127.0.0.1:9");
  expect(ended.status).toBe(1);
  expect(ended.error).toMatchObject({ code: "STORE_UNAVAILABLE" });
});

test("moto is safe", async (context) => {
  const server = await startMoto();
  if ("skipped" in server) return context.skip(server.skipped);
  try {
    const ended = await probe(server.endpoint);
    expect(report(ended).cases.filter((one) => !one.ok)).toEqual([]);
    expect(ended.status, ended.stderr).toBe(0);
  } finally {
    await server.stop();
  }
});
