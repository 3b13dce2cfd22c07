/** Mutants of TypeScript sources: one small change each, such as a guard that is gone or a boundary that is off by one. Pure: text in, mutants out. */
import { parseSync } from "vite";

/** One change of one file. */
export interface Mutant {
  readonly file: string;
  readonly line: number;
  /** What was done, for people. */
  readonly what: string;
  readonly start: number;
  readonly end: number;
  readonly replacement: string;
  /** The line as it was, trimmed: names a mutant across edits elsewhere in the file. */
  readonly source: string;
  /** Which one of several of its kind in the line; the first unless told. */
  readonly nth?: number;
  /** First and last line of which one is executed by whoever meets the change; its own line unless told. */
  readonly within?: readonly [first: number, last: number];
}

interface Node {
  readonly type: string;
  readonly start: number;
  readonly end: number;
  readonly [field: string]: unknown;
}

const swaps: Readonly<Record<string, string>> = {
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "===": "!==",
  "!==": "===",
  "+": "-",
  "-": "+",
  "*": "/",
  "&&": "||",
  "||": "&&",
};

/** Calls whose absence no test is promised to notice: what is only told to people. */
const telling =
  /^(await )?(this\.)?#?(parts\.)?(metrics|observer|counter|counters|console|terminal|onEvent)\b|\.(count|observeMs|unref)\(/;

/** Every mutant of a file, in the order of its text. */
export function mutantsOf(file: string, text: string): Mutant[] {
  const found: { readonly at: number; readonly mutant: Mutant }[] = [];
  const lines = text.split("\n");
  const add = (node: Node, replacement: string, what: string, at: number = node.start): void => {
    const line = text.slice(0, at).split("\n").length;
    const source = (lines[line - 1] as string).trim();
    found.push({ at, mutant: { file, line, what, start: node.start, end: node.end, replacement, source } });
  };
  const of = (node: Node): string => text.slice(node.start, node.end);
  const visit = (node: Node): void => {
    // Types vanish.
    if (node.type.startsWith("TS") && !/^TS(As|Satisfies|NonNull)/.test(node.type)) return;
    if (node.type === "ImportDeclaration" || isTold(node, of)) return;
    const { operator } = node as { readonly operator?: string };
    if (node.type === "BinaryExpression" || node.type === "LogicalExpression") {
      const [left, right] = [node["left"] as Node, node["right"] as Node];
      const swapped = swaps[operator ?? ""];
      const isText = [left, right].some((side) => /^(["'`])/.test(of(side)));
      if (swapped && !(operator === "+" && isText)) {
        const at = text.indexOf(operator as string, left.end);
        const rest = text.slice(at + (operator as string).length, node.end);
        add(node, `(${text.slice(node.start, at)}${swapped}${rest})`, `${operator} became ${swapped}`, at);
      }
    } else if (node.type === "UnaryExpression" && operator === "!") {
      add(node, `(${of(node["argument"] as Node)})`, "a negation is gone");
    } else if (node.type === "IfStatement") {
      add(node["test"] as Node, "false", "an if never holds");
      if (!node["alternate"]) add(node["test"] as Node, "true", "an if always holds");
    } else if (node.type === "ConditionalExpression") {
      add(node["test"] as Node, "true", "a choice is always the first");
      add(node["test"] as Node, "false", "a choice is always the second");
    } else if (node.type === "ExpressionStatement") {
      const expression = node["expression"] as Node;
      const inner = expression.type === "AwaitExpression" ? (expression["argument"] as Node) : expression;
      if (inner.type === "CallExpression" && !/^super\(/.test(of(node))) add(node, ";", "a call is gone");
    } else if (node.type === "Literal" && typeof node["value"] === "boolean") {
      add(node, String(!node["value"]), `${node["value"]} became ${!node["value"]}`);
    } else if (node.type === "Literal" && Number.isInteger(node["value"]) && (node["value"] as number) < 2 ** 31) {
      add(node, String((node["value"] as number) + 1), `${node["value"]} became ${(node["value"] as number) + 1}`);
    }
    for (const [name, field] of Object.entries(node)) {
      if (name === "key" && node["computed"] === false) continue;
      for (const child of Array.isArray(field) ? field : [field])
        if (typeof (child as Node | null)?.type === "string") visit(child as Node);
    }
  };
  const { body } = parseSync(file, text).program as unknown as { readonly body: readonly Node[] };
  for (const statement of body) if (!isTuned(file, statement)) visit(statement);
  found.sort((a, b) => a.at - b.at || a.mutant.start - b.mutant.start || a.mutant.end - b.mutant.end);
  return found.map(({ mutant }) => mutant);
}

/** What people are told is not what the program does: errors, counters, sentences, and a choice between two of them. A name or a key has no blank. */
function isTold(node: Node, of: (node: Node) => string): boolean {
  if (node.type === "ThrowStatement") return true;
  if (node.type === "NewExpression") return /Error$/.test(of(node["callee"] as Node));
  if (node.type === "TemplateLiteral") return isSentence(of(node));
  if (node.type === "ExpressionStatement") return telling.test(of(node));
  if (node.type !== "ConditionalExpression") return false;
  const sides = [node["consequent"], node["alternate"]].map((side) => of(side as Node));
  return sides.some(isSentence) && sides.every((side) => side === '""' || isSentence(side));
}

const isSentence = (text: string): boolean => /^(["'`]).* .*\1$/s.test(text);

/**
 * A number that is private to a module is tuned, not promised: what others rely on is exported, or stands where it is used. In `format` every
 * number is the format.
 */
function isTuned(file: string, node: Node): boolean {
  if (node.type !== "VariableDeclaration" || /(^|\/)format\//.test(file)) return false;
  const isNumber = (value: Node | null): boolean =>
    value?.type === "BinaryExpression"
      ? isNumber(value["left"] as Node) && isNumber(value["right"] as Node)
      : value?.type === "Literal" && typeof value["value"] === "number";
  return (node["declarations"] as { readonly init: Node | null }[]).every(({ init }) => isNumber(init));
}

/** The text with the change made. */
export function applyMutant(text: string, { start, end, replacement }: Mutant): string {
  return text.slice(0, start) + replacement + text.slice(end);
}

/** Names a mutant in the list of known ones: file, what was done, the line's text. */
export function keyOf({ file, what, source, nth = 1 }: Pick<Mutant, "file" | "what" | "source" | "nth">): string {
  return `${file}: ${what}${nth > 1 ? ` #${nth}` : ""}: ${source}`;
}

/** The same mutants, each with a key of its own. */
export function numbered(mutants: readonly Mutant[]): Mutant[] {
  const seen = new Map<string, number>();
  return mutants.map((mutant) => {
    const key = keyOf({ ...mutant, nth: 1 });
    const nth = (seen.get(key) ?? 0) + 1;
    seen.set(key, nth);
    return nth === 1 ? mutant : { ...mutant, nth };
  });
}
