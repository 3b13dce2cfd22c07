/**
 * Pictures of every view of the dashboard, light and dark, wide and narrow, in a folder that git ignores:
 *
 *   npm run screenshots
 */
import { type ChildProcess, spawn } from "node:child_process";
import { once } from "node:events";
import { mkdirSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { builtPage, chromiumPath, repositoryRoot, startChromium } from "../harness/chromium.js";
import { goOn, makeWorld } from "../harness/dashboard-world.js";
import { inScratchFolder } from "../harness/scratch-folder.js";

const views = ["overview", "log", "fleet", "sources", "storage", "family", "step"];
/** The pipeline goes on to here, under the eyes of the first picture; its limit of lag stops it at 56. */
const stepsMax = 52;
const into = join(repositoryRoot, ".cache/screenshots");

/** The command itself, as its users start it. */
async function startDashboard(root: string): Promise<{ child: ChildProcess; url: string }> {
  const main = join(repositoryRoot, "dist/src/cli/main.js");
  const args = [main, "dashboard", root, "--tokenizer", "bytes", "--json"];
  const child = spawn(process.execPath, args, { stdio: ["ignore", "pipe", "inherit"] });
  const [first] = (await once(child.stdout, "data")) as [Buffer];
  return { child, url: (JSON.parse(first.toString()) as { url: string }).url };
}

async function takePictures(folder: string, chromium: string): Promise<void> {
  const root = pathToFileURL(folder).href;
  const world = await makeWorld(root);
  builtPage(repositoryRoot);
  const { child, url } = await startDashboard(root);
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
    child.kill("SIGTERM");
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
