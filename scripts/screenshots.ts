/**
 * Pictures of every view of the dashboard, light and dark, wide and narrow, in a folder that git ignores:
 *
 *   npm run screenshots
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { builtPage, chromiumPath, repositoryRoot, startChromium } from "../harness/chromium.js";
import { goOn, makeWorld } from "../harness/dashboard-world.js";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { diagnose } from "../src/cli/index.js";
import { type Dashboard, serveDashboard } from "../src/dashboard/index.js";
import { listNamespaces, openNamespace, systemEnv } from "../src/index.js";
import { openTokenizer } from "../src/plan/index.js";

const views = ["overview", "log", "fleet", "sources", "storage", "family", "step"];
/** The pipeline goes on to here, under the eyes of the first picture; its limit of lag stops it at 56. */
const stepsMax = 52;
const into = join(repositoryRoot, ".cache/screenshots");

/** In this process, so that it ends with it, however it ends. */
async function startDashboard(root: string): Promise<Dashboard> {
  const tokenizer = await openTokenizer({ kind: "bytes" });
  return await serveDashboard(
    {
      uri: root,
      page: builtPage(repositoryRoot),
      tokenizer: { name: "bytes", decode: (tokens) => tokenizer.decode(tokens) },
    },
    {
      env: systemEnv,
      open: (uri, signal) => openNamespace(uri, { signal }),
      list: (uri, signal) => listNamespaces(uri, { signal }),
      diagnose: (now, before) => diagnose(now, before, 0),
    },
  );
}

async function takePictures(folder: string, chromium: string): Promise<void> {
  const root = pathToFileURL(folder).href;
  const world = await makeWorld(root);
  const dashboard = await startDashboard(root);
  const { url } = dashboard;
  const browser = await startChromium(chromium);
  let steps = 40;
  try {
    for (const colorScheme of ["light", "dark"] as const) {
      for (const width of [1280, 390]) {
        const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
        const tab = await context.newPage();
        await tab.goto(url);
        for (const view of views) {
          const query = `?ns=${encodeURIComponent(`${root}/train`)}`;
          await tab.goto(`${url.split("#")[0]}#/${view === "overview" ? "" : view + query}`);
          await tab.waitForSelector(view === "overview" ? "table" : ".card");
          // Charts need some looks, and something to show.
          for (let i = 0; view === "log" && i < 5; i++) {
            steps = Math.min(stepsMax, steps + 3);
            await goOn(root, steps);
            await tab.waitForTimeout(1_200);
          }
          await tab.waitForTimeout(800);
          const path = join(into, `${view}-${colorScheme}-${width}.png`);
          await tab.screenshot({ path, fullPage: true });
          console.log(path);
        }
        await context.close();
      }
    }
  } finally {
    await browser.close();
    await dashboard.close();
    await world.close();
  }
}

const chromium = chromiumPath();
if (chromium === undefined) {
  console.error("There is no Chromium here: install it, or say where it is in CHROMIUM.");
  process.exitCode = 77;
} else {
  mkdirSync(into, { recursive: true });
  await inScratchFolder(undefined, (folder) => takePictures(folder, chromium));
}
