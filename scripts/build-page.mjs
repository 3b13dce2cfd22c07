// Builds the dashboard's page into dist/dashboard, when a source of it is newer than the last build.
import { existsSync, readdirSync, statSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";

const root = fileURLToPath(new URL("..", import.meta.url));
const from = join(root, "dashboard");
const built = join(root, "dist/dashboard/index.html");
const newest = Math.max(
  statSync(fileURLToPath(import.meta.url)).mtimeMs,
  ...readdirSync(from, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => statSync(join(entry.parentPath, entry.name)).mtimeMs),
);
if (!existsSync(built) || statSync(built).mtimeMs < newest) {
  const { build } = await import("vite");
  await build({ configFile: join(from, "vite.config.ts") });
}
