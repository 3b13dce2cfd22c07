/**
 * The project's own source as data: its files, their syntax trees, and what each imports.
 * Used by the tests that check the shape of the code; nothing here runs the code it reads.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, posix, relative, sep } from "node:path";
import { fileURLToPath } from "node:url";
import { parseSync } from "vite";

/** The root of the repository. */
export const root: string = join(dirname(fileURLToPath(import.meta.url)), "..");

/** Any node of the tree; only the fields that the tests look at are named. */
export interface SyntaxNode {
  type: string;
  start: number;
  name?: string;
  value?: unknown;
  computed?: boolean;
  operator?: string;
  exportKind?: string;
  source?: SyntaxNode | null;
  callee?: SyntaxNode;
  object?: SyntaxNode;
  property?: SyntaxNode;
  arguments?: SyntaxNode[];
  [field: string]: unknown;
}

/** One source file. Paths are relative to the root, with forward slashes. */
export interface SourceFile {
  path: string;
  text: string;
  program: SyntaxNode;
  firstComment: string;
}

/** Every file below `folder` whose name ends in one of `endings`, sorted. A folder that does not exist has none. */
export function listFiles(folder: string, endings: readonly string[]): string[] {
  const from = join(root, folder);
  if (!existsSync(from)) return [];
  return readdirSync(from, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && endings.some((ending) => entry.name.endsWith(ending)))
    .map((entry) => relative(root, join(entry.parentPath, entry.name)).split(sep).join("/"))
    .filter((path) => !/(^|\/)(node_modules|__pycache__|fixtures)\//.test(path))
    .sort();
}

/** The text of a file, by its path relative to the root. */
export function readText(path: string): string {
  return readFileSync(join(root, path), "utf8");
}

/** Parses one file; a file that does not parse fails the test that reads it. */
export function parseFile(path: string): SourceFile {
  return parseText(path, readText(path));
}

/** Parses `text` as if it were the file at `path`. */
export function parseText(path: string, text: string): SourceFile {
  const { program, comments, errors } = parseSync(path, text);
  if (errors.length > 0) throw new Error(`${path} does not parse: ${errors[0]?.message}`);
  return { path, text, program: program as unknown as SyntaxNode, firstComment: comments[0]?.value ?? "" };
}

/** Visits every node below `node`, parents first. `parents` runs from the root to the node's own parent. */
export function walk(
  node: SyntaxNode,
  visit: (node: SyntaxNode, parents: readonly SyntaxNode[]) => void,
  parents: readonly SyntaxNode[] = [],
): void {
  visit(node, parents);
  const below = [...parents, node];
  for (const field of Object.values(node)) {
    for (const child of Array.isArray(field) ? field : [field]) {
      if (typeof child === "object" && child !== null && typeof (child as SyntaxNode).type === "string") {
        walk(child as SyntaxNode, visit, below);
      }
    }
  }
}

/**
 * Every module that a file names: imports and re-exports, `import()`, `import("x").Type`, and
 * `new URL("./worker.js", import.meta.url)`, which is how a file that runs as its own process or thread is named.
 */
export function importsOf(file: SourceFile): string[] {
  const found: string[] = [];
  walk(file.program, (node) => {
    const named = node.type === "NewExpression" && node.callee?.name === "URL" ? node.arguments?.[0] : node.source;
    if (typeof named?.value !== "string") return;
    if (node.type !== "NewExpression" || /^\.\.?\/.*\.js$/.test(named.value)) found.push(named.value);
  });
  return found;
}

/** The names that a file exports, re-exports included. */
export function exportedNames(file: SourceFile): string[] {
  const names: string[] = [];
  for (const node of file.program["body"] as SyntaxNode[]) {
    if (node.type !== "ExportNamedDeclaration") continue;
    for (const { exported } of node["specifiers"] as { exported: SyntaxNode }[]) names.push(exported.name as string);
    const declared = node["declaration"] as
      | (SyntaxNode & { id?: SyntaxNode; declarations?: { id: SyntaxNode }[] })
      | null;
    for (const { id } of declared?.declarations ?? (declared ? [{ id: declared.id }] : []))
      if (id?.name) names.push(id.name);
  }
  return names;
}

/** Each name that a file takes from a module; `*`: all of them, or any. */
export function importedNames(file: SourceFile): { specifier: string; name: string }[] {
  const found: { specifier: string; name: string }[] = [];
  walk(file.program, (node, parents) => {
    if (typeof node.source?.value !== "string") return;
    const specifier = node.source.value;
    const add = (name: string | undefined): unknown => found.push({ specifier, name: name ?? "*" });
    if (node.type === "ImportDeclaration" || node.type === "ExportNamedDeclaration") {
      type Specifier = { imported?: SyntaxNode; local?: SyntaxNode };
      for (const one of node["specifiers"] as Specifier[]) {
        add(node.type === "ImportDeclaration" ? one.imported?.name : one.local?.name);
      }
    } else if (node.type === "TSImportType") add((node["qualifier"] as SyntaxNode | null)?.name);
    else for (const name of namesOfAwaited(parents)) add(name);
  });
  return found;
}

/** Of `const { a } = await import(…)` and `(await import(…)).a`; undefined stands for any name. */
function namesOfAwaited(parents: readonly SyntaxNode[]): (string | undefined)[] {
  const user =
    parents.at(-1)?.type === "AwaitExpression"
      ? parents.filter(({ type }) => type !== "ParenthesizedExpression").at(-2)
      : undefined;
  if (user?.type === "MemberExpression") return [user.property?.name];
  const pattern = user?.type === "VariableDeclarator" ? (user["id"] as SyntaxNode) : undefined;
  if (pattern?.type !== "ObjectPattern") return [undefined];
  return (pattern["properties"] as { key?: SyntaxNode }[]).map(({ key }) => key?.name);
}

/** The source file that a relative specifier means, or undefined for a package or a builtin. */
export function resolveImport(from: string, specifier: string): string | undefined {
  if (!specifier.startsWith(".")) return undefined;
  return posix.join(posix.dirname(from), specifier).replace(/\.js$/, ".ts");
}

/** 1-based line of a node, for messages. */
export function lineOf(file: SourceFile, node: SyntaxNode): number {
  return file.text.slice(0, node.start).split("\n").length;
}
