/**
 * Property: the dashboard's server answers only GET, only with the token, only by its own name, only for namespaces it was started for; whatever a page asks
 * is bounded and shared; a store that hangs is said in time. Method: real requests over loopback to a server over a memory store that counts, fails and hangs.
 */

import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { get, type IncomingHttpHeaders } from "node:http";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { afterAll, beforeAll, expect, test } from "vitest";
import { diagnose } from "../../src/cli/diagnosis.js";
import { type Dashboard, serveDashboard } from "../../src/dashboard/index.js";
import { createNamespace, MemoryStore, openNamespace, systemEnv } from "../../src/index.js";
import { WatchedStore } from "./watched-store.js";

const uri = "memory:dashboard-server";
const token = "a-token-of-24-characters";
const folder = mkdtempSync(join(tmpdir(), "batchweave-page-"));
const watched = new WatchedStore(new MemoryStore(uri));
let dashboard: Dashboard;
let opened = 0;

/** One raw request: fetch would not send another Host. */
function ask(
  path: string,
  headers: Record<string, string> = { authorization: `Bearer ${token}` },
  method = "GET",
): Promise<{ status: number; headers: IncomingHttpHeaders; body: string }> {
  const { hostname, port } = new URL(dashboard.url);
  return new Promise((resolve, reject) => {
    const request = get({ hostname, port, path, headers, method }, (response) => {
      let body = "";
      response.on("data", (part: Buffer) => {
        body += part.toString();
      });
      response.on("end", () => resolve({ status: response.statusCode as number, headers: response.headers, body }));
    });
    request.on("error", reject);
  });
}

beforeAll(async () => {
  for (const name of ["index.html", "page.js", "page.css"]) writeFileSync(join(folder, name), `the ${name}`);
  const ns = await createNamespace(uri, { grid: { rows: 1, chunks: 1 } }, { store: watched.store });
  await using producer = await ns.producer({ id: "p" });
  for (let i = 0; i < 5; i++) await producer.append([Buffer.from(`batch ${i}`)]);
  await producer.flush();
  dashboard = await serveDashboard(
    { uri, token, answerMsMax: 1_500, page: pathToFileURL(`${folder}/`) },
    {
      env: systemEnv,
      open: async (at, signal) => {
        opened++;
        return await openNamespace(at, { store: watched.store, signal });
      },
      list: async function* () {},
      diagnose: (now, before) => diagnose(now, before, 0),
    },
  );
});
afterAll(async () => {
  await dashboard.close();
  rmSync(folder, { recursive: true, force: true });
});

test("the page needs no token and everything else does; nothing is written, framed, sniffed or kept", async () => {
  expect(dashboard.url).toMatch(/^http:\/\/127\.0\.0\.1:\d+\/#token=a-token-of-24-characters$/);
  const page = await ask("/", {});
  expect(page).toMatchObject({ status: 200, body: "the index.html" });
  expect(page.headers["content-security-policy"]).toMatch(/default-src 'none'; script-src 'self'; style-src 'self'/);
  expect(page.headers).toMatchObject({ "x-content-type-options": "nosniff", "cache-control": "no-store" });
  for (const headers of [{}, { authorization: "Bearer wrong" }, { authorization: token }, { cookie: `token=${token}` }])
    expect((await ask("/api/log", headers as Record<string, string>)).status).toBe(401);
  expect((await ask("/api/log")).status).toBe(200);
  for (const method of ["POST", "PUT", "DELETE"]) expect((await ask("/api/log", undefined, method)).status).toBe(405);
  for (const path of ["/../package.json", "/src/main.tsx", "/page.js.map"]) expect((await ask(path)).status).toBe(404);
});

test("a name that another site made to point here is refused, and so is a token that is too short", async () => {
  const authorization = `Bearer ${token}`;
  expect((await ask("/api/log", { authorization, host: "evil.example" })).status).toBe(403);
  expect((await ask("/api/log", { authorization, host: "localhost:1" })).status).toBe(200);
  const access = {
    env: systemEnv,
    open: openNamespace as never,
    list: async function* () {},
    diagnose: diagnose as never,
  };
  await expect(serveDashboard({ uri, token: "short" }, access)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
});

test("only namespaces that the place or a log named are opened", async () => {
  const before = opened;
  const { status, body } = await ask("/api/log?ns=file:///etc");
  expect(status).toBe(400);
  expect(body).toMatch(/file:\/\/\/etc is not at or below memory:dashboard-server/);
  expect(opened).toBe(before);
});

test("a link to a namespace below the place works before anything else was asked, and no link leads out of it", async () => {
  const place = "memory:place";
  const asked: string[] = [];
  const fresh = await serveDashboard(
    { uri: place, token, page: pathToFileURL(`${folder}/`) },
    {
      env: systemEnv,
      open: async (at, signal) => {
        asked.push(at);
        return await openNamespace(uri, { store: watched.store, signal });
      },
      list: async function* () {},
      diagnose: (now, before) => diagnose(now, before, 0),
    },
  );
  try {
    const ask = async (ns: string): Promise<number> => {
      const url = `${fresh.url.split("#")[0]}api/log?ns=${encodeURIComponent(ns)}`;
      return (await fetch(url, { headers: { authorization: `Bearer ${token}` } })).status;
    };
    expect(await ask(`${place}/runs/7b`)).toBe(200);
    expect(await ask(`${place}/with%20space`)).toBe(200);
    const before = asked.length;
    for (const way of [
      "../x",
      "a/../../x",
      "a/%2e%2e/x",
      "a/.%2E/x",
      "a%2f..%2fx",
      "a//x",
      "a\\x",
      "a?x",
      "a#x",
      "%00",
      "",
    ])
      expect([way, await ask(`${place}/${way}`)]).toEqual([way, 400]);
    expect(await ask(`${place}-other`)).toBe(400);
    expect(asked.length).toBe(before);
  } finally {
    await fresh.close();
  }
});

test("bad questions are answered in words", async () => {
  expect((await ask("/api/step?step=-1")).body).toMatch(/step must be a whole number/);
  expect((await ask("/api/step?step=99")).body).toMatch(/Step 99 is not published yet/);
  // Neither asks for a namespace: what is no view is none wherever one looks.
  for (const path of ["/api/nothing", "/api/nothing?ns=memory:elsewhere", "/api/constructor"]) {
    const { status, body } = await ask(path);
    expect(status).toBe(404);
    expect(JSON.parse(body)).toMatchObject({ error: { code: "NOT_FOUND" } });
    expect(body).toMatch(/There is no \/api\/\w+ here\. There are \/api\/overview, .*\/api\/slice\./);
  }
  const { body } = await ask("/api/slice?step=2");
  expect(JSON.parse(body)).toMatchObject({ kind: "text", text: "batch 2" });
});

test("twenty pages at once cost the store what one costs", async () => {
  await systemEnv.sleep(1_100);
  const before = watched.requests;
  await ask("/api/log");
  const one = watched.requests - before;
  await systemEnv.sleep(1_100);
  const answers = await Promise.all(Array.from({ length: 20 }, () => ask("/api/log")));
  expect(answers.every(({ status }) => status === 200)).toBe(true);
  expect(watched.requests - before - one).toBeLessThanOrEqual(one + 2);
});

test("a store that hangs is said in time, and asked again afterwards", async () => {
  await systemEnv.sleep(1_100);
  watched.mode = "hanging";
  const { status, body } = await ask("/api/log");
  expect(status).toBe(503);
  expect(body).toMatch(/STORE_UNAVAILABLE.*has not answered for 2 s/);
  watched.mode = "well";
  await systemEnv.sleep(1_100);
  expect((await ask("/api/log")).status).toBe(200);
});
