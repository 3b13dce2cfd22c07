/** Transforms: plain functions in a module, named by it, so that a worker thread can find them too. */
import { BatchWeaveError } from "../../index.js";
import { importPeer } from "../peer.js";
import { offerOwnPackage } from "./own-package.js";

/** What a transform is told besides the value. */
export interface TransformContext {
  readonly source: string;
  readonly id: string;
}

/** A transform as a user writes it: no state, the same answer for the same input. May be async. */
export type TransformFunction<In = unknown, Out = unknown, Options = unknown> = (
  value: In,
  options: Options,
  context: TransformContext,
) => Out | Promise<Out>;

/**
 * Where a transform runs. `loader`: before planning, the default. `constructor`: after planning, so that buffers hold the smaller input.
 * `consumer`: not at all here; the slice carries the input and says what is left to do. The later ones must leave lengths alone.
 */
export type Placement = "loader" | "constructor" | "consumer";

/** A transform in a pipeline: where its function is, and what it is given. Plain data. */
export interface Transform {
  /** URL of the module. */
  readonly module: string;
  /** Name of the export. */
  readonly name: string;
  /** Given to every call; must survive structured cloning. */
  readonly options: unknown;
  readonly at: Placement;
}

/**
 * Names a transform: `transform(import.meta.resolve("./clean.js"), "clean", { lower: true })`. The options are the function's second argument.
 */
export function transform(
  module: string | URL,
  name: string,
  options: unknown = {},
  settings: { readonly at?: Placement | undefined } = {},
): Transform {
  return { module: String(module), name, options, at: settings.at ?? "loader" };
}

/** The same transform somewhere else. */
export function placed(given: Transform, at: Placement): Transform {
  return { ...given, at };
}

const loaded = new Map<string, Promise<Record<string, unknown>>>();

/** The function behind a transform. A module in TypeScript is loaded through tsx, or by Node.js itself. */
export async function loadTransform({ module, name }: Pick<Transform, "module" | "name">): Promise<TransformFunction> {
  let promise = loaded.get(module);
  if (!promise) {
    promise = importModule(module);
    loaded.set(module, promise);
  }
  const found = (await promise.catch((error: unknown) => Promise.reject(notLoaded(module, name, error))))[name];
  if (typeof found === "function") return found as TransformFunction;
  throw new BatchWeaveError("INVALID_ARGUMENT", `${module} exports no function ${name}. Mend the transform's name.`);
}

function notLoaded(module: string, name: string, cause: unknown): BatchWeaveError {
  const { code, message = String(cause) } = (cause ?? {}) as Partial<NodeJS.ErrnoException>;
  const isPackage = code === "ERR_MODULE_NOT_FOUND" && /^Cannot find package/.test(message);
  return new BatchWeaveError(
    isPackage ? "MISSING_PACKAGE" : "INVALID_ARGUMENT",
    `The transform ${name} cannot be loaded: ${message}. ${isPackage ? "Install the package" : "Mend the module"}: ${module}`,
    { module, name },
    cause,
  );
}

let typescript: Promise<unknown> | undefined;

/** Both kinds: a `.ts` file whose package does not say `"type": "module"` is CommonJS. Newer versions of Node.js strip types themselves. */
async function registerTypeScript(): Promise<void> {
  const what = "Modules in TypeScript";
  try {
    const cjs = await importPeer<typeof import("tsx/cjs/api")>("tsx/cjs/api", what);
    const esm = await importPeer<typeof import("tsx/esm/api")>("tsx/esm/api", what);
    cjs.register();
    esm.register();
  } catch (error) {
    if (!(process.features as { typescript?: unknown }).typescript) throw error;
  }
}

/** Imports a module by URL; TypeScript through tsx where it is installed. */
export async function importModule(module: string): Promise<Record<string, unknown>> {
  offerOwnPackage(module);
  if (/\.[cm]?tsx?$/.test(module)) {
    // Registered for the whole process, not for one import: a pipeline must see the same classes as the program that runs it.
    typescript ??= registerTypeScript();
    await typescript;
  }
  const found = (await import(module)) as Record<string, unknown>;
  const inner = found["default"] as Record<string, unknown> | undefined;
  // What was an ES module before it was compiled to CommonJS has its exports one level down.
  return inner?.["__esModule"] === true ? inner : found;
}

/** Bytes a value takes, about: what is copied when it moves. */
export function sizeOf(value: unknown): number {
  if (typeof value === "string") return value.length;
  if (typeof value !== "object" || value === null) return 8;
  if (ArrayBuffer.isView(value) || value instanceof ArrayBuffer) return value.byteLength;
  let sum = 0;
  if (Array.isArray(value)) for (const item of value) sum += sizeOf(item);
  else for (const key in value) sum += key.length + sizeOf((value as Record<string, unknown>)[key]);
  return sum;
}
