/** Reading an object or a range of it: every length is checked, and a transfer that broke off goes on where it broke. */
import { constants } from "node:buffer";
import { assertBytesMax } from "../arguments.js";
import { copyBody } from "../body.js";
import { type HttpAnswer, HttpProtocolError } from "../http/index.js";
import type { S3Calls, S3Request } from "./s3-calls.js";
import { foreignAnswer, networkFailure, readS3Error, type S3Action } from "./s3-failure.js";

/** Bytes `[start, start + length)`. */
interface Range {
  readonly start: number;
  readonly length: number;
}

/** An object whole. Node's buffers hold no more. */
const objectBytesMax = constants.MAX_LENGTH;
/** A server that ignores ranges sends the object from its beginning: so much of it is read past, at most. */
const ignoredRangeBytesMax = 64 * 1024 * 1024;
/** Times one read may go on after a break; then it is the caller's retry that decides. */
const resumesMax = 8;

/** The bytes; undefined when there is no such object. */
export async function readObject(
  calls: S3Calls,
  key: string,
  range: Range | undefined,
  signal: AbortSignal | undefined,
  bytesMax: number = objectBytesMax,
): Promise<Uint8Array | undefined> {
  // A range of nothing still has to say whether there is an object.
  if (range?.length === 0) {
    const probe = await readObject(calls, key, { start: 0, length: 1 }, signal);
    return probe?.subarray(0, 0);
  }
  const action: S3Action = { doing: "read", permission: "s3:GetObject", key };
  const start = range?.start ?? 0;
  const end = range ? start + range.length : Number.POSITIVE_INFINITY;
  let parts: Uint8Array[] = [];
  let at = start;
  let etag: string | undefined;
  for (let breaks = 0; ; breaks++) {
    const headers: Record<string, string> = { ...calls.readHeaders };
    if (range || at > 0) headers["range"] = rangeText(at, end);
    // An object that was replaced meanwhile must not be sewn to what is left of the old one.
    if (parts.length > 0 && etag !== undefined) headers["if-match"] = etag;
    const answerBytesMax = range ? Math.max(range.length, ignoredRangeBytesMax) : bytesMax;
    const request: S3Request = { action, method: "GET", key, headers, answerBytesMax, signal };
    const answer = await calls.send(request);
    if (answer.status === 412 && parts.length > 0 && breaks < resumesMax) {
      parts = [];
      at = start;
      continue;
    }
    if (answer.status === 404 && readS3Error(answer)?.code === "NoSuchKey") return undefined;
    if (answer.status === 416) return parts.length > 0 ? copyBody(parts) : new Uint8Array(0);
    if (answer.status !== 200 && answer.status !== 206) throw calls.failure(request, answer);
    // Longer than anything that was asked for: to go on would only bring more of it.
    const isWrong = answer.broken instanceof HttpProtocolError;
    const announced = Number(answer.headers["content-length"] ?? 0);
    if (isWrong && !range && Math.max(answer.body.byteLength, announced) >= bytesMax)
      assertBytesMax(`${calls.place.uri}/${key}`, Math.max(bytesMax + 1, announced), bytesMax);
    if (answer.broken && (isWrong || answer.headers["etag"] === undefined))
      throw networkFailure(calls.place, action, answer.broken);
    // Every object has an ETag; a page that a proxy put here has none.
    if (answer.headers["etag"] === undefined) throw foreignAnswer(calls.place, action, answer);
    etag = answer.headers["etag"];
    if (isEndless(answer))
      throw networkFailure(calls.place, action, new Error("the answer does not say how long it is"));
    const piece = pieceOf(answer, at);
    if (!piece) throw foreignAnswer(calls.place, action, answer);
    if (answer.status === 200 && at > start) parts = []; // the server ignored the range: this is the whole object
    if (answer.status === 200) at = start;
    const bytes =
      answer.status === 200 ? piece.bytes.subarray(start, Math.min(end, piece.bytes.byteLength)) : piece.bytes;
    parts.push(bytes);
    at += bytes.byteLength;
    if (!answer.broken && at >= Math.min(end, piece.total)) return parts.length === 1 ? parts[0] : copyBody(parts);
    if (breaks >= resumesMax || bytes.byteLength === 0) {
      throw networkFailure(calls.place, action, answer.broken ?? new Error("the answer was shorter than it said"));
    }
    signal?.throwIfAborted();
  }
}

function rangeText(at: number, end: number): string {
  return end > Number.MAX_SAFE_INTEGER ? `bytes=${at}-` : `bytes=${at}-${end - 1}`;
}

/** Ends with the connection, wherever that breaks: part of an object would pass for all of it. */
function isEndless({ status, headers }: HttpAnswer): boolean {
  return status === 200 && headers["content-length"] === undefined && headers["transfer-encoding"] === undefined;
}

interface Piece {
  readonly bytes: Uint8Array;
  /** Size of the whole object. */
  readonly total: number;
}

/** What an answer holds; undefined when it is not what was asked for. */
function pieceOf(answer: HttpAnswer, at: number): Piece | undefined {
  const { body } = answer;
  if (answer.status === 200) {
    const announced = Number(answer.headers["content-length"] ?? body.byteLength);
    return { bytes: body, total: answer.broken ? Math.max(announced, body.byteLength + 1) : announced };
  }
  const range = /^bytes (\d+)-(\d+)\/(\d+)$/.exec(answer.headers["content-range"] ?? "");
  if (!range || Number(range[1]) !== at) return undefined;
  const announced = Number(range[2]) - at + 1;
  return { bytes: body.byteLength > announced ? body.subarray(0, announced) : body, total: Number(range[3]) };
}
