/** A real browser for tests and pictures: the Chromium of the machine, driven through playwright-core. It reaches nothing but loopback. */
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { type Browser, chromium } from "playwright-core";

const places = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

/** Where the browser is: `CHROMIUM`, or where Linux puts it. Undefined: there is none. */
export function chromiumPath(): string | undefined {
  return [process.env["CHROMIUM"] ?? "", ...places].find((path) => path !== "" && existsSync(path));
}

/** Starts it. */
export async function startChromium(path: string): Promise<Browser> {
  return await chromium.launch({
    executablePath: path,
    args: [
      "--no-sandbox",
      "--disable-gpu",
      "--disable-quic",
      "--no-first-run",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
    ],
  });
}

/** Builds the dashboard's page when it is stale, and says where it lies. */
export function builtPage(root: string): URL {
  execFileSync(process.execPath, [join(root, "scripts/build-page.mjs")], { stdio: "inherit" });
  return new URL(`file://${join(root, "dist/dashboard/")}`);
}

/** The root of the repository, from the source or the build of this file. */
export const repositoryRoot: string = fileURLToPath(
  new URL(import.meta.url.includes("/dist/") ? "../.." : "..", import.meta.url),
);
