/**
 * Documents that are longer than a sequence, in pieces. Pure.
 *
 * A piece is a sample of its own: it has an id, positions from 0, and attention of its own, because pieces of one document may lie in different
 * sequences or batches. No prediction is lost: a piece knows the token that follows it.
 */
import { isTargetOf, type PreparedSample } from "./prepared-sample.js";

/** The id of piece `k` (from 1) of `n`: `0:17#2/5` is the second of five of sample `0:17`. */
export function pieceId(id: string, k: number, n: number): string {
  return `${id}#${k}/${n}`;
}

/** The sample and place that an id names, where it has the form of a piece's. */
export function parsePieceId(id: string): { readonly id: string; readonly k: number; readonly n: number } | undefined {
  const [, whole, k, n] = /^(.*)#(\d{1,9})\/(\d{1,9})$/s.exec(id) ?? [];
  return whole === undefined ? undefined : { id: whole, k: Number(k), n: Number(n) };
}

/**
 * A sample in pieces of at most `tokensMax` tokens, full ones first; the first `piecesMax` of them. An image is never cut; undefined where one
 * does not fit at all.
 */
export function splitSample(
  sample: PreparedSample,
  tokensMax: number,
  piecesMax: number = Number.POSITIVE_INFINITY,
): PreparedSample[] | undefined {
  const { tokens, lossMask, images = [] } = sample;
  const isTarget = isTargetOf(sample);
  const pieces: PreparedSample[] = [];
  for (let from = 0, to = 0; from < tokens.length && pieces.length < piecesMax; from = to) {
    const end = Math.min(from + tokensMax, tokens.length);
    to = images.find(({ at, tokens: held }) => at < end && at + held > end)?.at ?? end;
    if (to <= from) return undefined;
    const own = images.filter(({ at }) => at >= from && at < to).map((image) => ({ ...image, at: image.at - from }));
    pieces.push({
      ...sample,
      tokens: tokens.slice(from, to),
      ...(lossMask ? { lossMask: lossMask.slice(from, to) } : {}),
      ...(sample.images ? { images: own } : {}),
      nextToken: to < tokens.length && isTarget[to] === 1 ? tokens[to] : sample.nextToken,
    });
  }
  return pieces;
}
