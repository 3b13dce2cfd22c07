/**
 * The proof at the end of the demo. It trusts nothing that the log says: what each producer must have written follows from its id and a
 * counter, where each slice must have been seen follows from the rank's place in the mesh, and the two are compared. Pure.
 */

/** One slice that a producer was meant to write. */
export interface Identity {
  readonly producer: string;
  readonly counter: number;
  readonly row: number;
  readonly chunk: number;
}

/** One iteration as a rank saw it: digests of its slices, in order. */
export interface Sighting {
  readonly iteration: number;
  readonly digests: readonly string[];
}

/** The log as one mesh saw it: what each rank saw, in the order it saw it. */
export interface Reading {
  readonly dp: number;
  readonly cp: number;
  readonly ranks: readonly (readonly Sighting[])[];
}

/** What a reading amounts to. All but `slices` and `order` must be 0. */
export interface Finding {
  readonly slices: number;
  /** Slices that were written and not seen. */
  readonly lost: number;
  /** Slices seen more than once. */
  readonly duplicated: number;
  /** Slices seen at a place, or batches at a step, where they do not belong. */
  readonly outOfOrder: number;
  /** Digests that no producer wrote. */
  readonly foreign: number;
  /** `producer/counter` of every step. */
  readonly order: readonly string[];
}

/** Shape of the namespace. */
interface Shape {
  readonly rows: number;
  readonly chunks: number;
}

/** Where rank `rank` sees digest number `at` of iteration `iteration`: policy per-rank, contiguous chunks, Megatron's rank order. */
function placeOf(
  { dp, cp }: Reading,
  { chunks }: Shape,
  rank: number,
  iteration: number,
  at: number,
): { globalRow: number; chunk: number } {
  const [d, c] = [Math.floor(rank / cp), rank % cp];
  return { globalRow: iteration * dp + d, chunk: c * (chunks / cp) + at };
}

/** Compares what was seen with what was meant to be written. */
export function judge(reading: Reading, shape: Shape, expected: ReadonlyMap<string, Identity>): Finding {
  const seen = new Map<string, number>();
  const steps = new Map<number, string>();
  let [slices, foreign, outOfOrder] = [0, 0, 0];
  reading.ranks.forEach((sightings, rank) => {
    let last = -1;
    for (const { iteration, digests } of sightings) {
      if (iteration < last) outOfOrder++;
      last = iteration;
      digests.forEach((digest, at) => {
        slices++;
        const identity = expected.get(digest);
        if (!identity) {
          foreign++;
          return;
        }
        seen.set(digest, (seen.get(digest) ?? 0) + 1);
        if (!belongs(identity, placeOf(reading, shape, rank, iteration, at), shape, steps)) outOfOrder++;
      });
    }
  });
  const counts = [...seen.values()];
  const order = [...steps].sort(([a], [b]) => a - b).map(([, batch]) => batch);
  return {
    slices,
    lost: expected.size - seen.size,
    duplicated: counts.reduce((sum, count) => sum + count - 1, 0),
    outOfOrder: outOfOrder + descents(order),
    foreign,
    order,
  };
}

/** Whether a slice is at its row and chunk, in a step whose other slices are of the same batch. */
function belongs(
  { producer, counter, row, chunk }: Identity,
  place: { globalRow: number; chunk: number },
  { rows }: Shape,
  steps: Map<number, string>,
): boolean {
  const step = Math.floor(place.globalRow / rows);
  const batch = `${producer}/${counter}`;
  const found = steps.get(step) ?? batch;
  steps.set(step, found);
  return found === batch && place.globalRow % rows === row && place.chunk === chunk;
}

/** How often a producer's batches do not come in the order in which it wrote them. */
function descents(order: readonly string[]): number {
  const next = new Map<string, number>();
  let count = 0;
  for (const batch of order) {
    const cut = batch.lastIndexOf("/");
    const [producer, counter] = [batch.slice(0, cut), Number(batch.slice(cut + 1))];
    if (counter < (next.get(producer) ?? 0)) count++;
    next.set(producer, counter + 1);
  }
  return count;
}

/** What a rank that was rolled back made of it: the second run replaces everything from its first iteration on. */
export function rollBack(
  first: readonly Sighting[],
  second: readonly Sighting[],
): { readonly sightings: readonly Sighting[]; readonly reread: number; readonly differing: number } {
  const from = second[0]?.iteration ?? Number.POSITIVE_INFINITY;
  const again = first.filter(({ iteration }) => iteration >= from);
  const differing = again.filter(({ iteration, digests }) => {
    const twin = second[iteration - from];
    return twin !== undefined && twin.digests.join() !== digests.join();
  });
  const kept = first.filter(({ iteration }) => iteration < from);
  return { sightings: [...kept, ...second], reread: again.length, differing: differing.length };
}

/** Ways to damage what a rank saw, to show that the proof notices. */
export const sabotages = ["drop", "duplicate", "swap"] as const;
export type Sabotage = (typeof sabotages)[number];

/** What a rank saw, damaged. */
export function damage(sightings: readonly Sighting[], how: Sabotage): Sighting[] {
  const at = Math.floor(sightings.length / 2);
  const [one, other] = [sightings[at], sightings[at + 1]];
  if (!one || !other) return [];
  const before = sightings.slice(0, at);
  const after = sightings.slice(at + 2);
  if (how === "drop") return [...before, other, ...after];
  if (how === "duplicate") return [...before, one, one, other, ...after];
  const swapped = [
    { iteration: one.iteration, digests: other.digests },
    { iteration: other.iteration, digests: one.digests },
  ];
  return [...before, ...swapped, ...after];
}
