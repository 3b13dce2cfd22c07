/** Tensors put together along an axis, byte by byte, whatever their dtype. Pure. */
import { cannot } from "./join-rule.js";
import { dtypeBytes, type Tensor, tensorValues } from "./safetensors.js";

const product = (shape: readonly number[]): number => shape.reduce((a, n) => a * n, 1);
const bytesOf = ({ data }: Tensor): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** The same tensor with a new axis in front. */
export function stackable(part: Tensor): Tensor {
  return { ...part, shape: [1, ...part.shape] };
}

/** Both halves of a tensor along an axis. */
export function halvesOf(name: string, part: Tensor, axis: number): readonly [Tensor, Tensor] {
  const { shape, dtype } = part;
  const length = shape[axis] ?? 0;
  if (length % 2 !== 0) throw cannot(name, `a part of ${length} has no two halves`);
  const run = (product(shape.slice(axis)) / 2) * dtypeBytes(dtype);
  const runs = product(shape.slice(0, axis));
  const from = bytesOf(part);
  const half = (which: 0 | 1): Tensor => {
    const data = new Uint8Array(run * runs);
    for (let i = 0; i < runs; i++) data.set(from.subarray((2 * i + which) * run, (2 * i + which + 1) * run), i * run);
    return { dtype, shape: shape.with(axis, length / 2), data };
  };
  return [half(0), half(1)];
}

/** Puts parts together along `axis`, or takes one of equal ones. A single part is returned as it is. */
export function joinAlong(
  name: string,
  parts: readonly Tensor[],
  axis: number | "same",
  { ends, pad }: { readonly ends?: true | undefined; readonly pad?: number | undefined },
): Tensor {
  const [first, ...others] = parts as readonly [Tensor, ...Tensor[]];
  const { dtype, shape } = first;
  if (others.some((part) => part.dtype !== dtype)) throw cannot(name, "their dtypes differ");
  if (axis === "same") {
    const is = (part: Tensor): boolean =>
      `${part.shape}` === `${shape}` && Buffer.compare(bytesOf(part), bytesOf(first)) === 0;
    if (!others.every(is)) throw cannot(name, "every chunk of a row was to hold the same, and they differ");
    return first;
  }
  if (ends) return joinEnds(name, parts, axis);
  if (parts.some((part) => part.shape.length !== shape.length) || axis >= shape.length)
    throw cannot(name, `the shapes ${parts.map((part) => `[${part.shape}]`).join(", ")} have no common axis ${axis}`);
  if (others.length === 0) return first;
  const target = shape.map((_, i) => Math.max(...parts.map((part) => part.shape[i] as number)));
  const even = parts.map((part) => padded(name, part, target.with(axis, part.shape[axis] as number), pad));
  const joined = target.with(
    axis,
    even.reduce((sum, part) => sum + (part.shape[axis] as number), 0),
  );
  const runs = product(target.slice(0, axis));
  const data = new Uint8Array(product(joined) * dtypeBytes(dtype));
  let at = 0;
  const sources = even.map(bytesOf);
  for (let i = 0; i < runs; i++) {
    for (const source of sources) {
      const run = source.length / runs;
      data.set(source.subarray(i * run, (i + 1) * run), at);
      at += run;
    }
  }
  return { dtype, shape: joined, data };
}

/** The tensor in the first corner of a larger one that is filled with `pad`. */
function padded(name: string, part: Tensor, target: readonly number[], pad: number | undefined): Tensor {
  const { dtype, shape } = part;
  if (shape.every((n, i) => n === target[i])) return part;
  if (pad === undefined) throw cannot(name, `one has the shape [${shape}], and another one is as large as [${target}]`);
  const data = filled(name, part, product(target), pad);
  const size = dtypeBytes(dtype);
  const width = (shape.at(-1) as number) * size;
  const from = bytesOf(part);
  const lines = width === 0 ? 0 : from.length / width;
  for (let line = 0; line < lines; line++) {
    let rest = line;
    let offset = 0;
    let step = target.at(-1) as number;
    for (let i = shape.length - 2; i >= 0; i--) {
      offset += (rest % (shape[i] as number)) * step;
      rest = Math.floor(rest / (shape[i] as number));
      step *= target[i] as number;
    }
    data.set(from.subarray(line * width, (line + 1) * width), offset * size);
  }
  return { dtype, shape: target, data };
}

function filled(name: string, { dtype }: Tensor, elements: number, pad: number): Uint8Array {
  const data = new Uint8Array(elements * dtypeBytes(dtype));
  const values = tensorValues({ dtype, shape: [elements], data });
  if (values.BYTES_PER_ELEMENT !== dtypeBytes(dtype) && pad !== 0) throw cannot(name, `${pad} cannot fill up ${dtype}`);
  (values as { fill(value: number | bigint): unknown }).fill(isBig(values) ? BigInt(pad) : pad);
  return data;
}

const isBig = (values: unknown): values is BigInt64Array | BigUint64Array =>
  values instanceof BigInt64Array || values instanceof BigUint64Array;

/** Running ends: each part begins with 0, and goes on from the last end before it. */
function joinEnds(name: string, parts: readonly Tensor[], axis: number): Tensor {
  const { dtype } = parts[0] as Tensor;
  const lists = parts.map((part) => [...tensorValues(part)].map(BigInt));
  if (
    !/^[IU]\d/.test(dtype) ||
    axis !== 0 ||
    parts.some(({ shape }) => shape.length !== 1) ||
    lists.some(([n]) => n !== 0n)
  )
    throw cannot(name, "it is to be running ends, whole numbers that begin with 0");
  const joined = [0n];
  for (const list of lists) {
    const before = joined.at(-1) as bigint;
    for (const end of list.slice(1)) joined.push(before + end);
  }
  const tensor = { dtype, shape: [joined.length], data: new Uint8Array(joined.length * dtypeBytes(dtype)) };
  const values = tensorValues(tensor);
  joined.forEach((end, i) => {
    values[i] = isBig(values) ? end : Number(end);
    if (BigInt(values[i] as number | bigint) !== end) throw cannot(name, `the end ${end} is too large for ${dtype}`);
  });
  return tensor;
}
