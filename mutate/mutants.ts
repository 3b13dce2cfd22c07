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
  const mutants: Mutant[] = [];
  const lines = text.split("\n");
  const add = (node: Pick<Node, "start" | "end">, replacement: string, what: string): void => {
    const line = text.slice(0, node.start).split("\n").length;
    const source = (lines[line - 1] as string).trim();
    mutants.push({ file, line, what, start: node.start, end: node.end, replacement, source });
  };
  const of = (node: Node): string => text.slice(node.start, node.end);
  const visit = (node: Node): void => {
    // Types vanish, and what an error says is not what the program does.
    if (node.type.startsWith("TS") && !/^TS(As|Satisfies|NonNull)/.test(node.type)) return;
    if (node.type === "ThrowStatement" || node.type === "ImportDeclaration") return;
    const { operator } = node as { readonly operator?: string };
    if (node.type === "BinaryExpression" || node.type === "LogicalExpression") {
      const [left, right] = [node["left"] as Node, node["right"] as Node];
      const swapped = swaps[operator ?? ""];
      const isText = [left, right].some((side) => /^(["'`])/.test(of(side)));
      if (swapped && !(operator === "+" && isText)) {
        const at = text.indexOf(operator as string, left.end);
        add({ start: at, end: at + (operator as string).length }, swapped, `${operator} became ${swapped}`);
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
      if (inner.type === "CallExpression" && !telling.test(of(node)) && !/^super\(/.test(of(node)))
        add(node, ";", "a call is gone");
    } else if (node.type === "Literal" && typeof node["value"] === "boolean") {
      add(node, String(!node["value"]), `${node["value"]} became ${!node["value"]}`);
    } else if (node.type === "Literal" && Number.isInteger(node["value"]) && (node["value"] as number) < 2 ** 31) {
      add(node, String((node["value"] as number) + 1), `${node["value"]} became ${(node["value"] as number) + 1}`);
    }
    for (const field of Object.values(node))
      for (const child of Array.isArray(field) ? field : [field])
        if (typeof (child as Node | null)?.type === "string") visit(child as Node);
  };
  visit(parseSync(file, text).program as unknown as Node);
  return mutants.sort((a, b) => a.start - b.start || a.end - b.end);
}

/** The text with the change made. */
export function applyMutant(text: string, { start, end, replacement }: Mutant): string {
  return text.slice(0, start) + replacement + text.slice(end);
}

/** Names a mutant in the list of known ones: file, what was done, the line's text. */
export function keyOf({ file, what, source }: Pick<Mutant, "file" | "what" | "source">): string {
  return `${file}: ${what}: ${source}`;
}
