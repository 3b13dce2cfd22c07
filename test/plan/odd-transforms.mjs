// Transforms that misbehave in every way a user's might, for tests of the pool. Plain JavaScript: threads load it as it is.

/** @param {{ text: string }} value */
export function letters(value) {
  return { tokens: Int32Array.from(value.text, (c) => c.charCodeAt(0)) };
}

/** @param {{ n: number }} value @param {{ throwAt?: number[], hangAt?: number[], eatAt?: number[], exitAt?: number[], swellAt?: number[] }} options */
export function misbehave(value, options) {
  if (options.throwAt?.includes(value.n)) throw new Error(`refuses ${value.n}`);
  if (options.hangAt?.includes(value.n)) for (;;);
  if (options.exitAt?.includes(value.n)) process.exit(3);
  if (options.eatAt?.includes(value.n)) {
    const eaten = [];
    for (;;) eaten.push(new Array(100_000).fill(value.n));
  }
  if (options.swellAt?.includes(value.n)) {
    // Outside the heap, where the heap's limit does not reach.
    const swollen = [];
    for (;;) if (swollen.length < 10) swollen.push(Buffer.alloc(67_108_864, value.n + 1));
  }
  return { tokens: [value.n, value.n + 1] };
}

let calls = 0;

/** Fails the first two times it meets an odd number. @param {{ n: number }} value */
export function moody(value) {
  if (value.n % 2 === 1 && calls++ < 2) throw new Error("not now");
  return { tokens: [value.n] };
}

/** @param {{ n: number }} value */
export function sum(value) {
  let total = 0;
  for (let i = 0; i < 2_000_000; i++) total += (i * value.n) % 7;
  return { tokens: [total] };
}

const shared = Int32Array.of(1, 2, 3);

/** Gives the same array every time. */
export function same() {
  return { tokens: shared };
}

/** Leaves failures behind that nobody waits for; at 5 gives what cannot leave its thread. @param {{ n: number }} value */
export function careless(value) {
  if (value.n === 1) void Promise.reject(new Error("nobody waits for me"));
  if (value.n === 2)
    setTimeout(() => {
      throw new Error("too late");
    }, 1);
  return value.n === 5 ? { tokens: [1], call: () => 1 } : { tokens: [value.n] };
}

/** Refuses one sample and shortens another. @param {{ tokens: number[] }} value */
export function choosy(value) {
  if (value.tokens[0] === 3) throw new Error("refuses 3");
  return value.tokens[0] === 5 ? { tokens: [5] } : value;
}

/** Takes its time to refuse. */
export function slowRefusal() {
  const until = performance.now() + 5;
  while (performance.now() < until);
  throw new Error("refuses slowly");
}

/** Counts how many of it run at a time, over all threads. @param {{ n: number }} value @param {{ crowd: Int32Array, ms?: number }} options */
export async function crowd(value, { crowd, ms = 5 }) {
  const now = Atomics.add(crowd, 0, 1) + 1;
  for (let most = Atomics.load(crowd, 1); now > most; most = Atomics.load(crowd, 1))
    Atomics.compareExchange(crowd, 1, most, now);
  await new Promise((resolve) => setTimeout(resolve, ms));
  Atomics.sub(crowd, 0, 1);
  return { tokens: [value.n] };
}

/** Keeps its thread busy for `options.ms`. @param {{ text: string }} value @param {{ ms: number }} options */
export function slow(value, options) {
  const until = performance.now() + options.ms;
  while (performance.now() < until);
  return letters(value);
}
