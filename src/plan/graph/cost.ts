/**
 * What a sample costs: floating-point operations and activation bytes, from its lengths and the shape of the model. Pure.
 *
 * Sequences are packed with attention inside each sample only, so the cost of a bin is the sum over its samples. Operations are forward
 * plus backward (three times forward). Memory is the activations that training keeps (Korthikanti et al., without the attention matrix,
 * which fused kernels do not store): 34 bytes per token, layer and hidden unit.
 */
import { BatchWeaveError } from "../../index.js";
import { imageTokens, type SampleMeta } from "../load/sample-meta.js";

/** Compute in floating-point operations, memory in bytes. Any unit will do as long as one plan keeps to it. */
export interface SampleCost {
  readonly compute: number;
  readonly memory: number;
}

/** Cost of one sample from its metadata. A bare number is compute, with tokens as memory. */
export type CostFunction = (meta: SampleMeta) => SampleCost | number;

/** The shape of a transformer. */
interface ModelShape {
  readonly layers: number;
  readonly heads: number;
  readonly hidden: number;
  /** Width of the MLP (of one expert). */
  readonly mlp: number;
  /** Matrices of the MLP: 2, or 3 with a gate. Default 3. */
  readonly mlpMatrices?: number | undefined;
  /** Key and value heads. Default: as many as heads. */
  readonly keyValueHeads?: number | undefined;
  readonly vocabulary?: number | undefined;
  /** Mixture of experts: how many there are and how many each token visits. */
  readonly experts?: number | undefined;
  readonly topk?: number | undefined;
}

/**
 * The models of MegaScale-Data's Table 1 (layers, heads, hidden, topk). The table leaves out MLP width, vocabulary and number of experts;
 * those are chosen so that the parameter counts come out at the models' names (Mixtral's and ViT-g/G's are the published ones).
 */
export const models: Readonly<Record<"vit-1b" | "vit-2b" | "llama-12b" | "tmoe-25b" | "mixtral-8x7b", ModelShape>> = {
  "vit-1b": { layers: 39, heads: 16, hidden: 1408, mlp: 6144, mlpMatrices: 2 },
  "vit-2b": { layers: 48, heads: 16, hidden: 1664, mlp: 8192, mlpMatrices: 2 },
  "llama-12b": { layers: 45, heads: 36, hidden: 4608, mlp: 12_288, vocabulary: 128_256 },
  "tmoe-25b": { layers: 42, heads: 16, hidden: 2048, mlp: 5760, vocabulary: 128_256, experts: 16, topk: 2 },
  "mixtral-8x7b": {
    layers: 32,
    heads: 32,
    hidden: 4096,
    mlp: 14_336,
    keyValueHeads: 8,
    vocabulary: 32_000,
    experts: 8,
    topk: 2,
  },
};

/** A preset by name, or a shape of your own. */
export type Model = keyof typeof models | ModelShape;

function shapeOf(model: Model): ModelShape {
  return typeof model === "string" ? models[model] : model;
}

function nameOf(model: Model): string {
  return typeof model === "string" ? model : `${model.layers} x ${model.hidden}`;
}

/** A name for `describe()`. */
function named(name: string, cost: CostFunction): CostFunction {
  return Object.defineProperty(cost, "name", { value: name });
}

/** Forward operations of one token in one layer, attention scores apart. */
function linearOps(shape: ModelShape): number {
  const { hidden, mlp, mlpMatrices = 3, heads, keyValueHeads = heads, experts, topk = 1 } = shape;
  const projections = 2 * hidden * hidden * (2 + (2 * keyValueHeads) / heads);
  const feedForward = 2 * hidden * mlp * mlpMatrices;
  return projections + (experts === undefined ? feedForward : topk * feedForward + 2 * hidden * experts);
}

const activationBytes = 34;
/** Forward and backward together, in units of forward. */
const passes = 3;

/** Cost in the language backbone, dense or mixture of experts: causal attention over the sample's whole sequence, MLP, output layer. */
export function backboneCost(model: Model): CostFunction {
  const shape = shapeOf(model);
  const perToken = passes * (shape.layers * linearOps(shape) + 2 * shape.hidden * (shape.vocabulary ?? 0));
  // Scores and their use: 4 l^2 h, of which causal attention needs half.
  const perSquare = passes * shape.layers * 2 * shape.hidden;
  const perTokenBytes = activationBytes * shape.layers * shape.hidden;
  return named(`backbone ${nameOf(model)}`, ({ tokens }) => ({
    compute: tokens * (perToken + tokens * perSquare),
    memory: tokens * perTokenBytes,
  }));
}

/** Cost in a vision transformer: every image attends to itself in full. Samples without images cost nothing. */
export function encoderCost(model: Model): CostFunction {
  const shape = shapeOf(model);
  const perToken = passes * shape.layers * linearOps(shape);
  const perSquare = passes * shape.layers * 4 * shape.hidden;
  const perTokenBytes = activationBytes * shape.layers * shape.hidden;
  return named(`encoder ${nameOf(model)}`, (meta) => {
    let compute = 0;
    for (const patches of meta.images ?? []) compute += patches * (perToken + patches * perSquare);
    return { compute, memory: imageTokens(meta) * perTokenBytes };
  });
}

/** Both modules on the same ranks. */
export function sumCosts(...costs: readonly CostFunction[]): CostFunction {
  return (meta) => {
    let [compute, memory] = [0, 0];
    for (const cost of costs) {
      const one = cost(meta);
      compute += typeof one === "number" ? one : one.compute;
      memory += typeof one === "number" ? meta.tokens : one.memory;
    }
    return { compute, memory };
  };
}

/** Tokens, nothing else: what a loader without a cost model balances. */
export const tokenCost: CostFunction = ({ tokens }) => ({ compute: tokens, memory: tokens });

/** Columns of costs, one entry per sample: what balancing works on. */
export interface CostColumns {
  readonly compute: Float64Array;
  readonly memory: Float64Array;
  readonly tokens: Float64Array;
}

/** Evaluates a cost function over samples. */
export function costColumns(samples: readonly SampleMeta[], cost: CostFunction): CostColumns {
  const n = samples.length;
  const columns = { compute: new Float64Array(n), memory: new Float64Array(n), tokens: new Float64Array(n) };
  for (let i = 0; i < n; i++) {
    const sample = samples[i] as SampleMeta;
    const one = cost(sample);
    columns.tokens[i] = sample.tokens;
    columns.compute[i] = typeof one === "number" ? one : one.compute;
    columns.memory[i] = typeof one === "number" ? sample.tokens : one.memory;
    if (!isCost(columns.compute[i] as number) || !isCost(columns.memory[i] as number)) throw notACost(sample, one);
  }
  return columns;
}

const isCost = (value: number): boolean => value >= 0 && value < Number.POSITIVE_INFINITY;

function notACost({ source, id }: SampleMeta, cost: unknown): BatchWeaveError {
  const text = typeof cost === "object" ? JSON.stringify(cost) : String(cost);
  return new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The cost function gave ${text} for sample ${id} of source ${source}. Return a finite number that is not negative, or { compute, memory } of such.`,
    { source, id },
  );
}
