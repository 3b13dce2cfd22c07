/** Auditing documents that were split: whether a log holds each of their pieces as often as the source gave the document. Pure. */
import { parsePieceId } from "../load/sample-pieces.js";

/** How often each piece of a document is held, and how many pieces it has. */
interface HeldDocument {
  readonly n: number;
  readonly held: number[];
}

/**
 * Compares pieces and takes them, with their documents, out of both counts; what remains are whole samples. `given` and `held` count by `source id`.
 * `begun`: documents whose first pieces were used, how many each time. `maybe`: documents of which any piece may be missing, because the log leaves out
 * batches, or there; those that are there are taken out as well. Names come back once for each time too few or too often.
 */
export function balancePieces(
  given: Map<string, number>,
  held: Map<string, number>,
  begun: ReadonlyMap<string, readonly number[]>,
  maybe: Map<string, number> = new Map(),
): { readonly lost: string[]; readonly repeated: string[] } {
  const documents = takePieces(given, held);
  const [lost, repeated]: [string[], string[]] = [[], []];
  for (const [key, { n, held: counts }] of documents) {
    // What was left out as a whole is held under the document's own name.
    const whole = (given.get(key) ?? 0) - (held.get(key) ?? 0);
    const loose = maybe.get(key) ?? 0;
    for (const some of [given, held, maybe]) some.delete(key);
    for (let k = 1; k <= n; k++) {
      const wanted = whole + (begun.get(key) ?? []).filter((used) => used >= k).length;
      const difference = (counts[k - 1] ?? 0) - wanted;
      for (let i = 0; i < -difference; i++) lost.push(`${key}#${k}/${n}`);
      for (let i = loose; i < difference; i++) repeated.push(`${key}#${k}/${n}`);
    }
  }
  for (const [key, times] of begun)
    if (!documents.has(key)) for (const used of times) for (let k = 0; k < used; k++) lost.push(key);
  return { lost, repeated };
}

function takePieces(given: ReadonlyMap<string, number>, held: Map<string, number>): Map<string, HeldDocument> {
  const documents = new Map<string, HeldDocument>();
  for (const [key, count] of [...held]) {
    // A source may name its samples like pieces; then it gave that very name.
    const piece = given.has(key) ? undefined : parsePieceId(key);
    if (!piece) continue;
    held.delete(key);
    const document = documents.get(piece.id) ?? { n: piece.n, held: [] };
    documents.set(piece.id, document);
    document.held[piece.k - 1] = (document.held[piece.k - 1] ?? 0) + count;
  }
  return documents;
}
