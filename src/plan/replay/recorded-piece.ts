/** What becomes of a recorded sample whose document has other tokens now: the same one, a piece of the document, several, or none. Pure. */
import type { Fault } from "../load/fault.js";
import { stopFor } from "../load/fault.js";
import type { PreparedSample } from "../load/prepared-sample.js";
import { parsePieceId, pieceId, splitSample } from "../load/sample-pieces.js";
import type { TooLong } from "../load/source-loader.js";

/** The document that a recorded id names, and which piece of how many. `isDocument`: whether an id is one of the source's own. */
export function documentOf(
  id: string,
  isDocument: (id: string) => boolean,
): { readonly id: string; readonly k: number; readonly n: number } {
  const piece = isDocument(id) ? undefined : parsePieceId(id);
  return piece ?? { id, k: 1, n: 1 };
}

/** Piece `k` of `n` of a document: cut as a pipeline cuts, where that gives as many; otherwise n about equal parts. An image is never cut. */
function pieceOf(sample: PreparedSample, k: number, n: number, tokensMax: number): PreparedSample | undefined {
  if (n === 1) return sample;
  const pieces = splitSample(sample, tokensMax);
  if (pieces?.length === n) return pieces[k - 1];
  const { tokens, images = [] } = sample;
  const edge = (j: number): number => {
    const at = Math.floor((tokens.length * j) / n);
    return images.find((image) => image.at < at && image.at + image.tokens > at)?.at ?? at;
  };
  const [from, to] = [edge(k - 1), edge(k)];
  if (to <= from) return undefined;
  const own = images.filter(({ at }) => at >= from && at < to).map((image) => ({ ...image, at: image.at - from }));
  return {
    ...sample,
    tokens: tokens.slice(from, to),
    ...(sample.lossMask ? { lossMask: sample.lossMask.slice(from, to) } : {}),
    ...(sample.images ? { images: own } : {}),
    nextToken: to < tokens.length && !images.some(({ at }) => at === to) ? tokens[to] : sample.nextToken,
  };
}

/** Samples that stand for a recorded one now, with their ids, and what was lost. */
interface Replayed {
  readonly samples: readonly { readonly id: string; readonly value: PreparedSample }[];
  readonly faults: readonly Fault[];
}

/** A recorded sample from its document as it is prepared now. */
export function replayedSample(
  source: string,
  id: string,
  { k, n }: { readonly k: number; readonly n: number },
  document: PreparedSample,
  rule: { readonly tokensMax: number; readonly tooLong: TooLong },
): Replayed {
  const fault = { source, id, attempts: 1 };
  const piece = pieceOf(document, k, n, rule.tokensMax);
  const length = piece?.tokens.length ?? 0;
  if (!piece || length === 0)
    return { samples: [], faults: [{ ...fault, stage: "empty", reason: "it has no tokens" }] };
  if (length <= rule.tokensMax) return { samples: [{ id, value: piece }], faults: [] };
  const reason = `${length} tokens do not fit into a sequence of ${rule.tokensMax}`;
  const tooLong: Fault = { ...fault, stage: "length", reason };
  if (rule.tooLong === "stop") throw stopFor(tooLong);
  if (rule.tooLong === "skip") return { samples: [], faults: [{ ...tooLong, tokens: length }] };
  const pieces = splitSample(piece, rule.tokensMax, rule.tooLong === "truncate" ? 1 : undefined);
  if (!pieces)
    return { samples: [], faults: [{ ...tooLong, reason: `${reason}, nor does one of its images`, tokens: length }] };
  if (rule.tooLong === "split")
    return { samples: pieces.map((value, i) => ({ id: pieceId(id, i + 1, pieces.length), value })), faults: [] };
  const { nextToken: _, ...first } = pieces[0] as PreparedSample;
  const tokens = length - first.tokens.length;
  return { samples: [{ id, value: first }], faults: [{ ...tooLong, reason: `${reason}: truncated`, tokens }] };
}
