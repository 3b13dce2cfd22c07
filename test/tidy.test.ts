/**
 * Property: the code has the shape that ARCHITECTURE.md describes. Rooms import one way and through doors,
 * time and chance are never ambient, no file is dead, names and lengths keep to the rules, the table of errors is used
 * and documented, design pages are numbered. Method: parse every file and look; each rule is also shown to find a violation made up for it.
 */
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "vitest";
import { BatchWeaveError, errorCodes } from "../src/errors.js";
import {
  exportedNames,
  importedNames,
  importsOf,
  lineOf,
  listFiles,
  parseFile,
  parseText,
  readText,
  resolveImport,
  root,
  type SourceFile,
  type SyntaxNode,
  walk,
} from "./source-tree.js";

/** Files that run on their own and that no `import` or `new URL("./x.js", import.meta.url)` names. */
const publicDoors = ["src/index.ts", "src/plan/index.ts"];
const entries = [...publicDoors, "src/cli/main.ts"];

const sources = listFiles("src", [".ts"]).map(parseFile);
const around = ["harness", "mutate", "sim", "bench", "scripts", "examples", "test"].flatMap((folder) =>
  listFiles(folder, [".ts", ".mjs"]),
);
const texts = [...sources.map((file) => file.path), ...around, ...listFiles("python", [".py"])];

/** Rooms by name: each folder of src with a door, `index.ts`. A room may have rooms of its own, such as `store/http`. */
const doors = new Map(
  sources
    .filter(({ path }) => path === "src/errors.ts" || path.endsWith("/index.ts"))
    .map((file) => [file.path.replace(/^src\/|\/?index\.ts$|\.ts$/g, "") || "index", file]),
);

/** What a door's comment says that its room may import; undefined when it does not say so. */
function mayImport(door: SourceFile | undefined): string[] | undefined {
  const said = /May import: ([^.]*)\./.exec(door?.firstComment.replace(/\s*\n \* ?/g, " ") ?? "")?.[1];
  return said?.startsWith("nothing") ? [] : said?.split(", ");
}

function roomOf(path: string): string {
  if (path === "src/errors.ts") return "errors";
  const folders = path.split("/").slice(1, -1);
  while (folders.length > 0 && !doors.has(folders.join("/"))) folders.pop();
  return folders.join("/") || "index";
}

const topFolder = (path: string): string => path.split("/")[0] as string;
const topOf = (room: string): string => room.split("/")[0] as string;
const isWithin = (room: string, outer: string): boolean => room.startsWith(`${outer}/`);

/** Why `from` may not import `target` of the room `to`; undefined when it may. From outside of src, only doors are open. */
function importProblem(from: string | undefined, to: string, target: string): string | undefined {
  const isDoor = target === doors.get(to)?.path;
  const isAround = `goes around the door of ${to}`;
  if (from !== undefined && isWithin(to, from)) return isDoor ? undefined : isAround;
  // A room within a room stands on what lies beside it there.
  if (from !== undefined && isWithin(from, to)) {
    if (isDoor) return `comes back through the door of ${to}`;
    return mayImport(doors.get(from))?.includes(to) ? undefined : `(${from}) may not import ${to}`;
  }
  const isSameHouse = from !== undefined && topOf(from) === topOf(to);
  if (!isSameHouse && to !== topOf(to)) return `goes around the door of ${topOf(to)}`;
  if (from !== undefined) {
    const asked = isSameHouse ? [from] : [from, topOf(from)];
    const refused = asked.find((room) => !mayImport(doors.get(room))?.includes(to));
    if (refused !== undefined) return `(${refused}) may not import ${to}`;
  }
  return isDoor ? undefined : isAround;
}

function importProblems(file: SourceFile): string[] {
  const problems: string[] = [];
  const inSrc = file.path.startsWith("src/");
  for (const specifier of importsOf(file)) {
    const target = resolveImport(file.path, specifier);
    if (!target?.startsWith("src/")) {
      if (inSrc && target !== undefined) problems.push(`${file.path} leaves src: ${specifier}`);
      continue;
    }
    const [from, to] = [inSrc ? roomOf(file.path) : undefined, roomOf(target)];
    const problem = from === to ? undefined : importProblem(from, to, target);
    if (problem !== undefined) problems.push(`${file.path} ${problem}: ${specifier}`);
  }
  return problems;
}

/** Rooms that could import each other in a circle, by what their doors say. */
function circles(allowed: ReadonlyMap<string, readonly string[]>): string[] {
  const found: string[] = [];
  const visit = (room: string, way: readonly string[]): void => {
    if (way.includes(room)) {
      found.push([...way.slice(way.indexOf(room)), room].join(" -> "));
      return;
    }
    // What lies around a room is its ground, not a neighbour.
    for (const next of allowed.get(room) ?? []) if (!isWithin(room, next)) visit(next, [...way, room]);
  };
  for (const room of allowed.keys()) visit(room, []);
  return found;
}

const ambientGlobals = ["Date", "performance", "setTimeout", "setInterval", "setImmediate", "crypto"];
const ambientMembers = ["Math.random", "process.hrtime", "process.uptime", "AbortSignal.timeout"];
const ambientModules = ["timers", "timers/promises", "perf_hooks"];
const hashing = ["createHash", "createHmac", "hash", "timingSafeEqual"];

/** Names of ambient time and chance that a file uses, each with its line. */
function ambientUses(file: SourceFile): { name: string; line: number }[] {
  const uses: { name: string; line: number }[] = [];
  const add = (name: string, node: SyntaxNode): unknown => uses.push({ name, line: lineOf(file, node) });
  walk(file.program, (node, parents) => {
    const parent = parents.at(-1);
    if (node.type === "MemberExpression") {
      const [object, property] = [node.object?.name, node.property?.name ?? String(node.property?.value)];
      if (ambientMembers.includes(`${object}.${property}`)) add(`${object}.${property}`, node);
      if ((object === "globalThis" || object === "global") && ambientGlobals.includes(property)) add(property, node);
    } else if (node.type === "Identifier" && ambientGlobals.includes(node.name ?? "")) {
      const isMember = parent?.type === "MemberExpression" && parent.property === node && !parent.computed;
      const isKey = /Property|Method|Signature/.test(parent?.type ?? "") && parent?.key === node && !parent.computed;
      if (!isMember && !isKey) add(node.name as string, node);
    } else if (node.type === "ImportDeclaration") {
      const module = String(node.source?.value).replace(/^node:/, "");
      if (ambientModules.includes(module)) add(module, node);
      if (module !== "crypto") return;
      for (const specifier of node.specifiers as { imported?: SyntaxNode }[]) {
        const name = specifier.imported?.name ?? "*";
        if (!hashing.includes(name)) add(`crypto.${name}`, node);
      }
    }
  });
  return uses;
}

function unreachable(files: readonly SourceFile[], from: readonly string[]): string[] {
  const byPath = new Map(files.map((file) => [file.path, file]));
  const seen = new Set<string>();
  const queue = [...from];
  for (let path = queue.pop(); path !== undefined; path = queue.pop()) {
    const file = byPath.get(path);
    if (file === undefined || seen.has(path)) continue;
    seen.add(path);
    for (const specifier of importsOf(file)) queue.push(resolveImport(path, specifier) ?? "");
  }
  return files.map((file) => file.path).filter((path) => !seen.has(path));
}

/** Exported names that no other of `files` imports, as `path: name`. What a public door offers is for users. */
function unusedExports(files: readonly SourceFile[]): string[] {
  const used = new Set<string>();
  for (const file of files) {
    for (const { specifier, name } of importedNames(file)) {
      const target = resolveImport(file.path, specifier);
      if (target !== file.path) used.add(`${target}: ${name}`);
    }
  }
  return files
    .filter(({ path }) => path.startsWith("src/") && !publicDoors.includes(path))
    .flatMap((file) => (used.has(`${file.path}: *`) ? [] : exportedNames(file).map((name) => `${file.path}: ${name}`)))
    .filter((name) => !used.has(name));
}

/** Codes that a file names as its own failure: not where it only asks (`isBatchWeaveError`, `===`, `case`). */
function codesThrown(file: SourceFile): string[] {
  const codes: string[] = [];
  walk(file.program, (node, parents) => {
    if (node.type !== "Literal" || typeof node.value !== "string" || !(node.value in errorCodes)) return;
    const parent = parents.at(-1);
    const asks =
      parent?.callee?.name === "isBatchWeaveError" ||
      parent?.type === "SwitchCase" ||
      parent?.type === "BinaryExpression";
    if (!asks && !parents.some((above) => above.type.startsWith("TSLiteral"))) codes.push(node.value);
  });
  return codes;
}

describe("rooms", () => {
  test("every folder of src is a room, and every door says which rooms it may import, in no circle", () => {
    const allowed = new Map([...doors].map(([room, door]) => [room, mayImport(door) ?? []]));
    expect([...doors].filter(([, door]) => mayImport(door) === undefined).map(([room]) => room)).toEqual([]);
    const unknown = [...allowed].flatMap(([room, names]) =>
      names.filter((name) => !doors.has(name)).map((name) => `${room}: ${name}`),
    );
    expect(unknown).toEqual([]);
    expect(circles(allowed)).toEqual([]);
    const folders = new Set(sources.map(({ path }) => path.split("/").slice(1, -1)[0] ?? "index"));
    expect([...folders].filter((room) => !doors.has(room))).toEqual([]);
  });

  test("the rule reads lists and finds circles", () => {
    const door = (text: string): string[] | undefined => mayImport(parseText("src/a/index.ts", `/** ${text} */`));
    expect(door("May import: errors, env.")).toEqual(["errors", "env"]);
    expect(door("May import: nothing of ours.")).toEqual([]);
    expect(door("Owns: all.")).toBeUndefined();
    expect(
      circles(
        new Map([
          ["a", ["b"]],
          ["b", ["c"]],
          ["c", []],
        ]),
      ),
    ).toEqual([]);
    expect(
      circles(
        new Map([
          ["a", ["b"]],
          ["b", ["a"]],
        ]),
      ),
    ).toEqual(["a -> b -> a", "b -> a -> b"]);
  });

  test("imports flow one way, and across rooms only through the door", () => {
    expect(sources.flatMap(importProblems)).toEqual([]);
  });

  test("around src, imports flow one way too: harness is everybody's, sim and bench are for those above, nobody imports a test", () => {
    const above: Record<string, readonly string[]> = {
      harness: [],
      sim: ["harness"],
      mutate: ["sim"],
      bench: ["harness", "sim"],
      scripts: ["harness", "sim"],
      examples: [],
      test: ["harness", "mutate", "sim", "bench", "scripts", "examples"],
    };
    const wrong = around
      .filter((path) => path.endsWith(".ts"))
      .flatMap((path) => importsOf(parseFile(path)).map((specifier) => ({ path, to: resolveImport(path, specifier) })))
      .filter(({ path, to }) => {
        const [from, folder] = [topFolder(path), topFolder(to ?? "src/")];
        return folder in above && from !== folder && !above[from]?.includes(folder);
      });
    expect(wrong).toEqual([]);
  });

  test("harness, sim, bench and scripts enter rooms through their doors; examples use the package like any user", () => {
    const files = around.filter((path) => path.endsWith(".ts") && !path.startsWith("test/")).map(parseFile);
    expect(files.flatMap(importProblems)).toEqual([]);
    const examples = files.filter((file) => file.path.startsWith("examples/"));
    expect(
      examples.filter((file) => importsOf(file).some((specifier) => /^\.\.\//.test(specifier))).map((f) => f.path),
    ).toEqual([]);
  });

  test("the rule finds a wrong direction, a sibling, a way around a door, and a type that is imported", () => {
    const bad = (path: string, text: string): string[] => importProblems(parseText(path, text));
    expect(bad("src/store/a.ts", 'import { x } from "../log/index.js";')).toHaveLength(1);
    expect(bad("src/producer/a.ts", 'export { x } from "../consumer/index.js";')).toHaveLength(1);
    expect(bad("src/log/a.ts", 'import type { X } from "../store/memory.js";')).toHaveLength(1);
    expect(bad("src/log/a.ts", 'let x: import("../store/memory.js").X;')).toHaveLength(1);
    expect(bad("src/cli/a.ts", 'await import("../log/index.js");')).toHaveLength(1);
    expect(bad("src/cli/a.ts", 'import { x } from "../errors.js";')).toHaveLength(1);
    expect(bad("src/log/a.ts", 'import { x } from "../../sim/clock.js";')).toHaveLength(1);
    expect(bad("src/store/s3/a.ts", 'import { x } from "../http/message.js";')).toHaveLength(1);
    expect(bad("src/store/http/a.ts", 'import { x } from "../s3/index.js";')).toHaveLength(1);
    expect(bad("src/store/http/a.ts", 'import { x } from "../index.js";')).toHaveLength(1);
    expect(bad("src/store/http/a.ts", 'import { x } from "../../errors.js";')).toHaveLength(1);
    expect(bad("src/store/a.ts", 'import { x } from "./http/message.js";')).toHaveLength(1);
    expect(bad("src/log/a.ts", 'import { x } from "../store/http/index.js";')).toHaveLength(1);
    expect(bad("bench/a.ts", 'import { x } from "../src/store/http/index.js";')).toHaveLength(1);
    expect(bad("src/store/s3/a.ts", 'import { x } from "../http/index.js"; import { y } from "../body.js";')).toEqual(
      [],
    );
    expect(bad("src/log/a.ts", 'import { x } from "../store/index.js"; import { y } from "./b.js";')).toEqual([]);
  });

  test("every door opens with what the room owns, may import and promises", () => {
    const wanted = ["Owns:", "May import:", "Promises:"];
    const bare = [...doors.values()].filter((file) => !wanted.every((word) => file.firstComment.includes(word)));
    expect(bare.map((file) => file.path)).toEqual([]);
  });
});

describe("time and chance", () => {
  test("nothing in src but env touches them", () => {
    const found = sources
      .filter((file) => roomOf(file.path) !== "env")
      .flatMap((file) => ambientUses(file).map(({ name, line }) => ({ path: file.path, name, line })));
    expect(found).toEqual([]);
  });

  test("the rule finds every disguise, and leaves names that only look alike", () => {
    const names = (text: string): string[] => ambientUses(parseText("src/log/a.ts", text)).map((use) => use.name);
    expect(names("Math.random(); Math['random']")).toEqual(["Math.random", "Math.random"]);
    expect(names("const t = `$" + "{Date.now()}`; new Date()")).toEqual(["Date", "Date"]);
    expect(names("globalThis.performance.now(); process.hrtime.bigint()")).toEqual(["performance", "process.hrtime"]);
    expect(names("AbortSignal.timeout(5); setTimeout(f, 1)")).toEqual(["AbortSignal.timeout", "setTimeout"]);
    expect(names('import { randomBytes, createHash } from "node:crypto";')).toEqual(["crypto.randomBytes"]);
    expect(names('import * as c from "crypto"; import { setTimeout as s } from "node:timers/promises";')).toContain(
      "crypto.*",
    );
    expect(names('env.setTimeout(1); const o = { Date: 1 }; "Date"; // Date.now()')).toEqual([]);
  });
});

describe("files", () => {
  test("none is dead: each is reached from an entry", () => {
    expect(unreachable(sources, entries)).toEqual([]);
  });

  test("the rule finds a file that nobody imports, and follows workers", () => {
    const files = [
      parseText("src/index.ts", 'export { a } from "./a.js";'),
      parseText("src/a.ts", 'new Worker(new URL("./worker.js", import.meta.url)); export const a = 1;'),
      parseText("src/worker.ts", ""),
      parseText("src/dead.ts", 'import "./a.js";'),
    ];
    expect(unreachable(files, ["src/index.ts"])).toEqual(["src/dead.ts"]);
  });

  test("none exports a name that no other file imports", () => {
    const others = around.filter((path) => path.endsWith(".ts")).map(parseFile);
    expect(unusedExports([...sources, ...others])).toEqual([]);
  });

  test("the rule finds such a name, also behind a door, and knows every way to import one", () => {
    const files = [
      parseText("src/a/index.ts", 'export { used, unused } from "./a.js";'),
      parseText(
        "src/a/a.ts",
        "export const used = 1, unused = 2; export interface Shown {} export class Dead {} const b = 1; export { b };",
      ),
      parseText("src/b/b.ts", 'import { used as u } from "../a/index.js"; let x: import("../a/a.js").Shown;'),
      parseText("src/b/c.ts", "export const c = 1; export function d() {}"),
      parseText("test/b.ts", 'import * as c from "../src/b/c.js";'),
      parseText("src/d/d.ts", "export const e = 1, f = 2, g = 3;"),
      parseText("test/d.ts", 'const { e } = await import("../src/d/d.js"); (await import("../src/d/d.js")).f();'),
    ];
    expect(unusedExports(files)).toEqual([
      "src/a/index.ts: unused",
      "src/a/a.ts: Dead",
      "src/a/a.ts: b",
      "src/d/d.ts: g",
    ]);
  });

  test("every relative import names a file that exists", () => {
    const missing = sources.flatMap((file) =>
      importsOf(file).flatMap((specifier) => {
        const target = resolveImport(file.path, specifier);
        return target === undefined || existsSync(join(root, target)) ? [] : [`${file.path}: ${specifier}`];
      }),
    );
    expect(missing).toEqual([]);
  });

  test("names are kebab-case nouns, none of them a drawer for everything", () => {
    const vague = /(^|\/)(utils?|types?|common|helpers?|misc)(\.|\/)/;
    const kebab = /^[a-z0-9]+(-[a-z0-9]+)*(\.test|\.stores|\.d)?\.(ts|mjs)$/;
    expect(texts.filter((path) => vague.test(path))).toEqual([]);
    expect(texts.filter((path) => !path.endsWith(".py") && !kebab.test(path.split("/").at(-1) as string))).toEqual([]);
  });

  test("none is longer than 500 lines", () => {
    const long = texts.map((path) => ({ path, lines: readText(path).split("\n").length - 1 }));
    expect(long.filter(({ lines }) => lines > 500)).toEqual([]);
  });

  test("none leaves work for later in a comment", () => {
    const words = new RegExp(`\\b(${["TO", "FIX", "XX"].map((s, i) => s + ["DO", "ME", "X"][i]).join("|")})\\b`);
    expect(texts.filter((path) => words.test(readText(path)))).toEqual([]);
  });
});

describe("errors", () => {
  const rows = readText("docs/errors.md")
    .split("\n")
    .filter((line) => /^\| `[A-Z_]+`/.test(line))
    .map((line) => line.split("|").map((cell) => cell.trim().replaceAll("`", "")));

  test("every code is documented once, with the remedy and exit status of the table", () => {
    const documented = rows.map(([, code, remedy, exit]) => [code, { remedy, exit: Number(exit) }]);
    expect(documented).toEqual(Object.entries(errorCodes));
    expect(rows.filter(([, , , , when, action]) => !when || !action)).toEqual([]);
  });

  test("every code is thrown somewhere in src", () => {
    const thrown = new Set(sources.filter((file) => file.path !== "src/errors.ts").flatMap(codesThrown));
    expect(Object.keys(errorCodes).filter((code) => !thrown.has(code))).toEqual([]);
  });

  test("a message that holds another sentence has one full stop, and an ellipsis and a path stay", () => {
    const said = (message: string): string => new BatchWeaveError("LIMIT", message).message;
    expect(said("It failed: there is no room.. Try again..")).toBe("It failed: there is no room. Try again.");
    for (const kept of ["Wait... Try a/.. and 0..3.", "Read ../x, not .. here: a/.."]) expect(said(kept)).toBe(kept);
  });

  test("asking for a code is not throwing it", () => {
    const text = `if (isBatchWeaveError(e, "FENCED") || e.code === "CLOSED") throw new BatchWeaveError(a ? "LIMIT" : b, m);
      type Code = "CORRUPT"; const code = "STORE_FULL";`;
    expect(codesThrown(parseText("src/log/a.ts", text))).toEqual(["LIMIT", "STORE_FULL"]);
  });
});

describe("design pages", () => {
  const pages = readdirSync(join(root, "docs/design")).filter((name) => /^\d/.test(name));

  test("are numbered without gaps and without doubles, and carry their number in the title", () => {
    const numbers = pages.map((_, index) => String(index + 1).padStart(4, "0"));
    expect(pages.map((name) => name.slice(0, 4))).toEqual(numbers);
    expect(pages.filter((name) => !readText(`docs/design/${name}`).startsWith(`# ${name.slice(0, 4)} `))).toEqual([]);
  });

  test("that a file names are there, and none cites a document outside the repository", () => {
    const texts = [
      ...["src", "sim", "bench", "test", "docs", "python"].flatMap((dir) => listFiles(dir, [".ts", ".md", ".py"])),
    ];
    const dead = ["ARCHITECTURE.md", "FORMAT.md", "README.md", ...texts].flatMap((path) =>
      [...readText(path).matchAll(/design\/(\d{4}[\w-]*)/g)]
        .filter(([, page]) => !pages.some((name) => name === `${page}.md` || name.startsWith(`${page}-`)))
        .map(([text]) => `${path}: ${text}`),
    );
    expect(dead).toEqual([]);
    const outside = /\b(DESIGN|STYLE|HAZARDS)(\.md| \d)/;
    expect(texts.filter((path) => outside.test(readText(path)))).toEqual([]);
  });
});

describe("package", () => {
  const manifest = JSON.parse(readText("package.json"));

  test("what it exports and runs has a source file, and each public door is exported", () => {
    const targets = Object.values(manifest.exports as Record<string, { default?: string }>).flatMap((to) =>
      to.default === undefined ? [] : [to.default.replace(/^\.\/dist\//, "").replace(/\.js$/, ".ts")],
    );
    expect(targets).toEqual(publicDoors);
  });

  const locks = ["package-lock.json", "docs/site/package-lock.json"];

  test.each(locks)("%s holds every platform's variant of what it locks", (path) => {
    const { packages } = JSON.parse(readText(path)) as {
      packages: Record<string, { optionalDependencies?: Record<string, string> }>;
    };
    const missing = Object.entries(packages).flatMap(([path, { optionalDependencies = {} }]) =>
      Object.keys(optionalDependencies).filter(
        (name) => !(`node_modules/${name}` in packages || `${path}/node_modules/${name}` in packages),
      ),
    );
    expect(missing).toEqual([]);
  });

  test.each(locks)("neither %s nor the npm settings name a place to download from", (path) => {
    const lock = JSON.parse(readText(path));
    const resolved = Object.entries<{ resolved?: string }>(lock.packages).filter(([, entry]) => entry.resolved);
    expect(resolved).toEqual([]);
    expect(readText(".npmrc")).not.toMatch(/registry=|:\/\/|^\/\//m);
  });
});
