/** Who goes first, when any one of many will do and their number is unknown. */

/**
 * A delay from 0 to `spanMs` whose density grows exponentially (by `crowd` over the span). Of n processes that draw one, the earliest comes at
 * about `spanMs * (1 - ln n / ln crowd)`, and within a time t after it only about `crowd ** (t / spanMs)` come, whatever n up to `crowd` is:
 * few race, and all others see what the first one did before it is their turn.
 */
export function spreadMs(uniform: number, spanMs: number, crowd: number): number {
  if (crowd <= 1) return 0;
  return (spanMs * Math.log(1 + uniform * (crowd - 1))) / Math.log(crowd);
}
