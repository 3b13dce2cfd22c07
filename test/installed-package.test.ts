/**
 * Property: a program that has only the package and what it always brings along compiles against its types with `skipLibCheck: false`, and can be bundled into one
 * file that runs without the optional stores; what the package ships is complete, and the links of its README lead to files of it. Method: a copy of what npm would
 * pack in a folder of its own, TypeScript and esbuild on a program there, and the bundle run by Node.
 */
import { execFileSync } from "node:child_process";
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildIfStale } from "./cli/command-line.js";
import { readText, root } from "./source-tree.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-installed-"));
const installed = join(folder, "node_modules/batchweave");
let packed: string[];

const program = `
import { createNamespace, isBatchWeaveError, openNamespace, type StartFrom } from "batchweave";
import { definePipeline, type PipelineSpec } from "batchweave/plan";

export const start: StartFrom = { checkpoint: "iter-20" };
export const define: (spec: PipelineSpec) => unknown = definePipeline;

const ns = await createNamespace("memory:installed", { grid: { rows: 1, chunks: 1 } });
{
  await using producer = await ns.producer({ id: "p" });
  await producer.append([new TextEncoder().encode("a batch")]);
}
await ns.endLog();
for await (const share of await ns.consumer({ mesh: { dp: 1 }, rank: 0, from: "earliest" }))
  console.log(new TextDecoder().decode(share.slices[0]?.bytes));
for (const uri of ["az://container/run", "gs://bucket/run"])
  await openNamespace(uri, { storeSettings: { azure: { account: "a", accountKey: "aGk=" } } }).catch((error: unknown) =>
    console.log(isBatchWeaveError(error) ? error.message : String(error)),
  );
`;

/** The package's own dependencies with theirs, and the types of Node that every program in TypeScript has. */
function alwaysInstalled(): Set<string> {
  const found = new Set<string>();
  const add = (names: object | undefined): void => {
    for (const name of Object.keys(names ?? {})) {
      if (found.has(name)) continue;
      found.add(name);
      add((JSON.parse(readText(`node_modules/${name}/package.json`)) as { dependencies?: object }).dependencies);
    }
  };
  add((JSON.parse(readText("package.json")) as { dependencies: object }).dependencies);
  add({ "@types/node": "" });
  return found;
}

beforeAll(() => {
  buildIfStale();
  execFileSync(process.execPath, [join(root, "scripts/build-page.mjs")]);
  const listed = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], {
    cwd: root,
    encoding: "utf8",
  });
  packed = (JSON.parse(listed) as [{ files: { path: string }[] }])[0].files.map(({ path }) => path);
  for (const path of packed) {
    mkdirSync(dirname(join(installed, path)), { recursive: true });
    cpSync(join(root, path), join(installed, path));
  }
  for (const name of alwaysInstalled())
    cpSync(join(root, "node_modules", name), join(folder, "node_modules", name), { recursive: true });
  writeFileSync(join(folder, "package.json"), JSON.stringify({ type: "module" }));
  writeFileSync(join(folder, "program.ts"), program);
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("its types compile with skipLibCheck: false and without any optional package", () => {
  const compilerOptions = {
    strict: true,
    skipLibCheck: false,
    module: "nodenext",
    target: "es2023",
    lib: ["es2023", "esnext.disposable"],
    types: ["node"],
    noEmit: true,
  };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["program.ts"] }));
  const tsc = join(root, "node_modules/typescript/bin/tsc");
  let said = "";
  try {
    execFileSync(process.execPath, [tsc, "-p", folder], { encoding: "utf8" });
  } catch (error) {
    said = (error as { stdout: string }).stdout;
  }
  expect(said).toBe("");
});

test("a bundle runs without the optional stores, and names them when they are asked for", async ({ skip }) => {
  // It comes with tsx, a peer that the tests install.
  const name: string = "esbuild";
  const bundler = (await import(name).catch(() => undefined)) as typeof import("esbuild") | undefined;
  if (!bundler) return skip("esbuild is not installed");
  const outfile = join(folder, "bundle.mjs");
  const { warnings } = await bundler.build({
    absWorkingDir: folder,
    entryPoints: ["program.ts"],
    bundle: true,
    platform: "node",
    format: "esm",
    target: "node20",
    // Parts of undici are CommonJS and require Node's own modules.
    banner: {
      js: 'import { createRequire as requireFor } from "node:module"; const require = requireFor(import.meta.url);',
    },
    outfile,
    logLevel: "silent",
  });
  expect(warnings.map(({ text }) => text)).toEqual([]);
  // Nothing but the bundle: what it needs is in it.
  const alone = mkdtempSync(join(tmpdir(), "batchweave-bundle-"));
  cpSync(outfile, join(alone, "bundle.mjs"));
  try {
    const said = execFileSync(process.execPath, [join(alone, "bundle.mjs")], { encoding: "utf8" });
    expect(said.trim().split("\n")).toEqual([
      "a batch",
      "@azure/storage-blob is not installed. Install it with: npm install @azure/storage-blob",
      "@google-cloud/storage is not installed. Install it with: npm install @google-cloud/storage",
    ]);
  } finally {
    rmSync(alone, { recursive: true, force: true });
  }
});

test("it ships the page of the dashboard, and every file and folder that its README links to", () => {
  expect(packed).toEqual(expect.arrayContaining(["dist/dashboard/index.html", "dist/dashboard/page.js", "README.md"]));
  const links = [...readText("README.md").matchAll(/\]\(([^)#\s]+)[^)]*\)|src="([^"]+)"/g)]
    .map(([, link, source]) => (link ?? source) as string)
    .filter((link) => !/^[a-z]+:/.test(link));
  expect(links.length).toBeGreaterThan(10);
  expect(links.filter((link) => !existsSync(join(installed, link)))).toEqual([]);
  const manifest = JSON.parse(readFileSync(join(installed, "package.json"), "utf8")) as { dependencies: object };
  expect(Object.keys(manifest.dependencies)).not.toContain("preact");
});
