/** The known word that a user may have meant. */

/** The word that differs least, if it differs little; undefined when none is near. */
export function nearest(typed: string, words: readonly string[]): string | undefined {
  let [best, least]: [string | undefined, number] = [undefined, Math.max(1, Math.floor(typed.length / 3)) + 1];
  for (const word of words) {
    const steps = word.startsWith(typed) && typed.length >= 3 ? 1 : distance(typed.toLowerCase(), word.toLowerCase());
    if (steps < least) [best, least] = [word, steps];
  }
  return best;
}

/** Letters to insert, leave out, replace or swap with their neighbour. */
function distance(a: string, b: string): number {
  let [before, last]: [number[], number[]] = [[], Array.from({ length: b.length + 1 }, (_, j) => j)];
  for (let i = 1; i <= a.length; i++) {
    const row = [i];
    for (let j = 1; j <= b.length; j++) {
      const isSame = a[i - 1] === b[j - 1];
      let cost = Math.min((last[j] ?? 0) + 1, (row[j - 1] ?? 0) + 1, (last[j - 1] ?? 0) + (isSame ? 0 : 1));
      if (i > 1 && j > 1 && a[i - 1] === b[j - 2] && a[i - 2] === b[j - 1])
        cost = Math.min(cost, (before[j - 2] ?? 0) + 1);
      row.push(cost);
    }
    [before, last] = [last, row];
  }
  return last[b.length] ?? 0;
}
