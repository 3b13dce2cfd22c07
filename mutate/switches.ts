/** All mutants of a file in one text: each stands beside what it changes, and a switch decides which of them holds. Pure: text and mutants in, text out. */
import type { Mutant } from "./mutants.js";

interface Place {
  readonly start: number;
  readonly end: number;
  readonly ways: { readonly id: number; readonly replacement: string }[];
}

/** The text in which mutant number `firstId + i` holds while `$isMutant(firstId + i)`. Which places a test comes by, `$isMutant` hears as well. */
export function withSwitches(text: string, mutants: readonly Mutant[], firstId: number): string {
  const places = new Map<string, Place>();
  for (const [i, { start, end, replacement }] of mutants.entries()) {
    const place = places.get(`${start}-${end}`) ?? { start, end, ways: [] };
    places.set(`${start}-${end}`, place);
    place.ways.push({ id: firstId + i, replacement });
  }
  const sorted = [...places.values()].sort((a, b) => a.start - b.start || b.end - a.end);
  let next = 0;
  const render = (start: number, end: number): string => {
    let out = "";
    let at = start;
    while (next < sorted.length && (sorted[next] as Place).start < end) {
      const place = sorted[next++] as Place;
      out += text.slice(at, place.start) + choice(place, render(place.start, place.end));
      at = place.end;
    }
    return out + text.slice(at, end);
  };
  return render(0, text.length);
}

/** A statement that may be gone, or an expression with its other forms. */
function choice({ ways }: Place, own: string): string {
  if (ways[0]?.replacement === ";") return `{ if (!$isMutant(${ways[0].id})) ${own} }`;
  return `(${ways.map(({ id, replacement }) => `$isMutant(${id}) ? ${replacement} : `).join("")}${own})`;
}
