/**
 * Property: the page shows every view of a log, follows it live, says when the store is gone and keeps what it had, takes no name for markup, works by
 * keyboard, in light and dark, at 1280 and 390 pixels, asks no server but its own, and opens a log of ten million steps and ten thousand producers with few
 * requests. Method: the built page in a real headless Chromium, over real namespaces on files and a made-up large one in memory.
 */
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, describe, expect, type TestContext, test } from "vitest";
import { builtPage, chromiumPath, startChromium } from "../../harness/chromium.js";
import { goOn, hostileName, makeWorld, type World } from "../../harness/dashboard-world.js";
import { diagnose } from "../../src/cli/diagnosis.js";
import { type Dashboard, type DashboardSettings, serveDashboard } from "../../src/dashboard/index.js";
import { createNamespace, listNamespaces, MemoryStore, openNamespace, systemEnv } from "../../src/index.js";
import { openTokenizer } from "../../src/plan/index.js";
import { root as repository } from "../source-tree.js";
import { largeLog } from "./large-log.js";
import { WatchedStore } from "./watched-store.js";

const path = chromiumPath();
const folder = mkdtempSync(join(tmpdir(), "batchweave-dashboard-"));
const place = pathToFileURL(folder).href;
const running: Dashboard[] = [];
let browser: Browser;
let world: World;
let dashboard: Dashboard;
let builtAt: URL;

async function serve(settings: DashboardSettings, store?: WatchedStore): Promise<Dashboard> {
  const served = await serveDashboard(
    { page: builtAt, ...settings },
    {
      env: systemEnv,
      open: (uri, signal) => openNamespace(uri, { signal, store: store?.store }),
      list: (uri, signal) => listNamespaces(uri, { signal }),
      diagnose: (now, before) => diagnose(now, before, 0),
    },
  );
  running.push(served);
  return served;
}

beforeAll(async () => {
  if (path === undefined) return;
  builtAt = builtPage(repository);
  world = await makeWorld(place);
  browser = await startChromium(path);
  const tokenizer = await openTokenizer({ kind: "bytes" });
  dashboard = await serve({ uri: place, tokenizer: { name: "bytes", decode: (tokens) => tokenizer.decode(tokens) } });
});
afterAll(async () => {
  await browser?.close();
  for (const one of running) await one.close();
  await world?.close();
  rmSync(folder, { recursive: true, force: true });
});

/** A tab, and everything about it that must not happen. */
interface Tab {
  readonly page: Page;
  readonly wrong: string[];
}

async function openTab(context: TestContext, url: string, options = {}): Promise<Tab> {
  const made = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
  context.onTestFinished(() => made.close());
  const page = await made.newPage();
  // How long a view takes is the machine's; what it shows is ours.
  page.setDefaultTimeout(120_000);
  const wrong: string[] = [];
  page.on("pageerror", (error) => wrong.push(`threw ${error.message}`));
  page.on("console", (message) => {
    // A refused view is on the page; the browser also logs the status.
    if (message.type() === "error" && !/status of (4|5)\d\d/.test(message.text())) wrong.push(message.text());
  });
  page.on("request", (request) => {
    if (new URL(request.url()).hostname !== "127.0.0.1" && !/^(blob|data):/.test(request.url()))
      wrong.push(`asked ${request.url()}`);
  });
  await page.goto(url);
  return { page, wrong };
}

const inTrain = (view: string): string =>
  `${dashboard.url.split("#")[0]}#/${view}?ns=${encodeURIComponent(`${place}/train`)}`;

async function open(context: TestContext, view: string, options = {}): Promise<Tab> {
  const tab = await openTab(context, dashboard.url, options);
  await tab.page.goto(inTrain(view));
  return tab;
}

const browserTest = (name: string, body: (context: TestContext) => Promise<void>): void =>
  test(name, async (context) => {
    if (path === undefined)
      context.skip(
        "there is no Chromium on this machine: install it (apt-get install chromium), or name it in CHROMIUM",
      );
    await body(context);
  });

describe("views", () => {
  browserTest("all namespaces below the place, each with a way in", async (context) => {
    const { page, wrong } = await openTab(context, dashboard.url);
    await page.getByRole("link", { name: "runs/raw" }).waitFor();
    expect(await page.locator("tbody tr").count()).toBe(6);
    expect(await page.locator("tr", { hasText: "runs/raw" }).innerText()).toMatch(/ended\s+60/);
    expect(page.url()).not.toContain("token");
    await page.getByRole("link", { name: "train", exact: true }).click();
    await page.getByText("next step").waitFor();
    expect(wrong).toEqual([]);
  });

  browserTest("the log: trim, checkpoints, pins, single steps, charts", async (context) => {
    const { page, wrong } = await open(context, "log");
    await page.locator(".strip .kept").first().waitFor();
    expect(await page.locator(".strip .trimmed").count()).toBe(1);
    expect(await page.locator(".strip").first().locator(".mark").count()).toBe(3);
    expect(await page.locator(".strip").first().locator(".pin").count()).toBeGreaterThanOrEqual(1);
    expect(await page.getByLabel(/^checkpoint iter-24 of default at step 24$/).count()).toBe(2);
    await page.locator(".cell").nth(3).waitFor();
    expect(await page.locator(".facts").innerText()).toMatch(/8 of 24 steps/);
    await page.locator(".cell").nth(3).click();
    await page.getByText("rows down, chunks across").waitFor();
    expect(page.url()).toContain("#/step/19?");
    expect(wrong).toEqual([]);
  });

  browserTest("the fleet: lanes, and processes by their pulses", async (context) => {
    const { page, wrong } = await open(context, "fleet");
    await page.getByText("lane-1").waitFor();
    await expect.poll(() => page.locator("main").innerText()).toMatch(/waiting for source photos/);
    expect(await page.locator("main").innerText()).toMatch(/sources photos 480 samples, waited for 9\.1 s/);
    expect(wrong).toEqual([]);
  });

  browserTest("sources: the mixture against its schedule, balance, cost by rank", async (context) => {
    const { page, wrong } = await open(context, "sources");
    await page.getByText("phase skills").waitFor();
    // The schedule of the second phase, and draws that met it exactly.
    expect(await page.locator("tr", { hasText: "code" }).innerText()).toMatch(/50\.0 %\s+50\.0 %/);
    expect(await page.locator(".meter .wanted").count()).toBe(3);
    // The sentence of `batchweave top`, from the pulse of a process that waits for a source.
    await page.getByText("loader host-a waits for source photos").waitFor();
    expect(await page.locator(".card", { hasText: "Loading" }).innerText()).toMatch(/photos\s/);
    await page.getByRole("button", { name: "ranks" }).first().click();
    await page.getByText("Cost by rank, step 32").waitFor();
    expect(await page.locator(".costs rect.after").count()).toBe(4);
    expect(wrong).toEqual([]);
  });

  browserTest("storage: what is kept, for whom, and its price", async (context) => {
    const { page, wrong } = await open(context, "storage");
    await page.getByText("What keeps the log").waitFor();
    expect(await page.locator(".facts").innerText()).toMatch(/\$0\.\d+ a month/);
    expect(await page.locator("tr", { hasText: "default / iter-16" }).innerText()).toMatch(/about .* MB/);
    expect(await page.locator("tr", { hasText: "train-fixed" }).count()).toBe(1);
    expect(wrong).toEqual([]);
  });

  browserTest("the family of a fork, from any of its members", async (context) => {
    const { page, wrong } = await open(context, "family");
    await page.getByRole("link", { name: "annealed" }).waitFor();
    expect(await page.locator(".tree > li > ul > li > ul > li").count()).toBe(2);
    await page.getByRole("link", { name: "train-again" }).click();
    await page.getByText("next step").waitFor();
    await page.getByRole("link", { name: "Family" }).click();
    await page.locator("a.self", { hasText: "train-again" }).waitFor();
    expect(await page.locator(".tree li").count()).toBe(4);
    expect(wrong).toEqual([]);
  });

  browserTest(
    "a step down to its samples: tokens as text, images as pictures, and a name that is a script stays a name",
    async (context) => {
      const { page, wrong } = await open(context, "step/39");
      await page.locator(".text p").first().waitFor();
      expect(await page.locator(".text p").first().innerText()).toMatch(/\w+ \w+ \w+/);
      await page.locator(".images canvas").first().waitFor();
      const drawn = await page.evaluate(
        `(() => { const { data } = document.querySelector(".images canvas").getContext("2d").getImageData(16, 16, 1, 1); return [data[0], data[3]]; })()`,
      );
      // The disc in the middle of the picture that the pipeline cut into patches.
      expect(drawn).toEqual([230, 255]);
      expect(await page.getByText(hostileName).count()).toBeGreaterThanOrEqual(1);
      expect(await page.evaluate(() => (globalThis as { pwned?: number }).pwned)).toBeUndefined();
      await page.getByRole("button", { name: "3,1" }).click();
      await page.getByText("Slice 3,1").waitFor();
      expect(wrong).toEqual([]);
    },
  );
});

describe("use", () => {
  browserTest("without the token the page asks for it, and takes the printed address", async (context) => {
    const { page } = await openTab(context, dashboard.url.split("#")[0] as string);
    await page.getByLabel("token").fill(dashboard.url);
    await page.getByRole("button", { name: "open" }).click();
    await page.getByRole("link", { name: "runs/raw" }).waitFor();
  });

  browserTest("by keyboard: views, steps, search, light and dark, help", async (context) => {
    const { page, wrong } = await open(context, "log", { colorScheme: "light" });
    await page.getByText("next step").waitFor();
    const background = (): Promise<string> => page.evaluate("getComputedStyle(document.body).backgroundColor");
    const light = await background();
    await page.keyboard.press("t");
    expect(await background()).not.toBe(light);
    await page.keyboard.press("6");
    await page.getByText("rows down, chunks across").waitFor();
    await page.keyboard.press("ArrowLeft");
    await expect.poll(() => page.url()).toContain("#/step/38?");
    await page.keyboard.press("2");
    await page.getByText("Producers and lanes").waitFor();
    await page.keyboard.press("/");
    await page.keyboard.type("lane-1");
    await expect.poll(() => page.locator("tbody").first().innerText()).not.toContain("lane-0");
    await page.keyboard.press("Escape");
    await page.keyboard.press("?");
    await page.getByRole("dialog").waitFor();
    expect(wrong).toEqual([]);
  });

  browserTest("390 pixels are enough for every view, in the dark too", async (context) => {
    const { page, wrong } = await open(context, "log", { viewport: { width: 390, height: 800 }, colorScheme: "dark" });
    for (const view of ["log", "fleet", "sources", "storage", "family", "step"]) {
      await page.goto(inTrain(view));
      await page.locator(".card").first().waitFor();
      const [scroll, client] = await page.evaluate<number[]>(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]",
      );
      expect({ view, scroll }).toEqual({ view, scroll: client });
    }
    expect(wrong).toEqual([]);
  });
});

describe("live", () => {
  browserTest(
    "new steps appear without a reload, and a store that is gone is said while the last numbers stay",
    async (context) => {
      const uri = "memory:dashboard-live";
      const watched = new WatchedStore(new MemoryStore(uri));
      const ns = await createNamespace(uri, { grid: { rows: 1, chunks: 1 } }, { store: watched.store });
      await using producer = await ns.producer({ id: "p" });
      await producer.append([Buffer.from("a")]);
      await producer.flush();
      const served = await serve({ uri, answerMsMax: 2_000 }, watched);
      const { page, wrong } = await openTab(context, served.url);
      const next = page.locator(".fact", { hasText: "next step" }).locator(".value");
      await expect.poll(() => next.innerText()).toBe("1");
      await producer.append([Buffer.from("b")]);
      await producer.flush();
      await expect.poll(() => next.innerText()).toBe("2");
      for (const mode of ["failing", "hanging"] as const) {
        watched.mode = mode;
        await page.getByRole("alert").waitFor({ timeout: 120_000 });
        expect(await page.getByRole("alert").innerText()).toMatch(/STORE_UNAVAILABLE .*What is shown is of/);
        expect(await next.innerText()).toBe("2");
        watched.mode = "well";
        await page.getByRole("alert").waitFor({ state: "detached", timeout: 120_000 });
      }
      expect(wrong).toEqual([]);
    },
  );

  browserTest("a pipeline that goes on is followed in the strip of steps", async (context) => {
    const { page } = await open(context, "log");
    await page.locator(".cell").first().waitFor();
    const before = await page.locator(".cell").count();
    await goOn(place, 44);
    await expect.poll(() => page.locator(".cell").count()).toBe(before + 4);
  });
});

describe("size", () => {
  /** Time from the address to the first steps on the page, and what the server worked for it: on a busy machine only that tells something. */
  async function opening(context: TestContext, served: Dashboard): Promise<{ tab: Tab; ms: number; cpuMs: number }> {
    const [begun, used] = [performance.now(), process.cpuUsage()];
    const tab = await openTab(context, served.url);
    await tab.page.locator(".cell").first().waitFor();
    const { user, system } = process.cpuUsage(used);
    return { tab, ms: performance.now() - begun, cpuMs: (user + system) / 1_000 };
  }

  browserTest(
    "ten million steps of ten thousand producers open as a small log does, with few requests",
    async (context) => {
      const [steps, producers] = [10_000_000, 10_000];
      const looked = [
        steps - 128,
        steps - 64,
        ...Array.from({ length: 8 }, (_, i) => Math.floor(((steps - 1) * i) / 7)),
      ];
      const watched = new WatchedStore(await largeLog(steps, producers, looked));
      watched.delayMs = 20;
      const small = new WatchedStore(new MemoryStore("memory:dashboard-small"));
      const ns = await createNamespace(
        "memory:dashboard-small",
        { grid: { rows: 1, chunks: 1 } },
        { store: small.store },
      );
      await using producer = await ns.producer({ id: "p" });
      await producer.append([Buffer.from("a")]);
      await producer.flush();
      small.delayMs = 20;
      const first = await opening(context, await serve({ uri: "memory:dashboard-small" }, small));
      await first.tab.page.close();
      const { tab, ms, cpuMs } = await opening(context, await serve({ uri: "memory:dashboard-large" }, watched));
      const atOpening = watched.requests;
      console.log(
        `opened in ${Math.round(ms)} ms with ${atOpening} requests and ${Math.round(cpuMs)} ms of work; a log of one step in ${Math.round(first.ms)} ms and ${Math.round(first.cpuMs)} ms`,
      );
      expect(await tab.page.locator(".facts").innerText()).toMatch(/10,000,000/);
      expect(atOpening).toBeLessThanOrEqual(60);
      expect(cpuMs).toBeLessThan(2_000);
      await tab.page.keyboard.press("2");
      await tab.page.getByText("page 1 of 200").waitFor();
      await tab.page.getByLabel("find producers and processes by name").fill("p-9999");
      await tab.page.locator("td", { hasText: "p-9999" }).waitFor();
      expect(await tab.page.locator("tbody tr").count()).toBeLessThanOrEqual(3);
      await tab.page.locator("input").blur();
      await tab.page.keyboard.press("4");
      await tab.page.getByText("What keeps the log").waitFor();
      // Estimated from a few runs of steps: 1,300 bytes each on average.
      expect(await tab.page.locator(".facts").innerText()).toMatch(/about 1[23]\.\d GB/);
      expect(watched.requests).toBeLessThanOrEqual(200);
      expect(tab.wrong).toEqual([]);
    },
  );
});
