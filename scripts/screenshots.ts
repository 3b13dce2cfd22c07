/**
 * Pictures of every view of the dashboard, light and dark, wide and narrow, in a folder that git ignores:
 *
 *   npm run screenshots
 */
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { builtPage, chromiumPath, repositoryRoot, startChromium } from "../harness/chromium.js";
import { makeWorld } from "../harness/dashboard-world.js";
import { inScratchFolder } from "../harness/scratch-folder.js";
import { serveDashboard } from "../src/dashboard/index.js";
import { listNamespaces, openNamespace, systemEnv } from "../src/index.js";
import { openTokenizer } from "../src/plan/index.js";

const views = ["overview", "log", "fleet", "sources", "storage", "family", "step"];
const into = join(repositoryRoot, ".cache/screenshots");

async function takePictures(folder: string, chromium: string): Promise<void> {
  const root = pathToFileURL(folder).href;
  const world = await makeWorld(root);
  const tokenizer = await openTokenizer({ kind: "bytes" });
  const page = builtPage(repositoryRoot);
  const dashboard = await serveDashboard(
    { uri: root, tokenizer: { name: "bytes", decode: (tokens) => tokenizer.decode(tokens) }, page },
    {
      env: systemEnv,
      open: (uri, signal) => openNamespace(uri, { signal }),
      list: (uri, signal) => listNamespaces(uri, { signal }),
    },
  );
  const browser = await startChromium(chromium);
  try {
    for (const colorScheme of ["light", "dark"] as const) {
      for (const width of [1280, 390]) {
        const context = await browser.newContext({ viewport: { width, height: 800 }, colorScheme });
        const tab = await context.newPage();
        await tab.goto(dashboard.url);
        for (const view of views) {
          const query = `?ns=${encodeURIComponent(`${root}/train`)}`;
          await tab.goto(`${dashboard.url.split("#")[0]}#/${view === "overview" ? "" : view + query}`);
          await tab.waitForSelector(view === "overview" ? "table" : ".card");
          // Charts need some looks.
          await tab.waitForTimeout(view === "log" ? 5_000 : 800);
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
