/**
 * Large puts in parts, sent in parallel. Nothing is visible before the upload is completed, and a crash in the middle leaves parts that cost
 * money until they are aborted: by us after a failure, by `abortUploads` later, by a lifecycle rule of the bucket at last.
 * Never used for a conditional create: some servers accept its precondition here and overwrite all the same.
 */
import { parseDate } from "../../env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../../errors.js";
import { mapParallel } from "../../flow/index.js";
import { bodyBytes, bodyParts } from "../body.js";
import type { AbortUploadsOptions, Body } from "../object-store.js";
import type { S3Calls } from "./s3-calls.js";
import { foreignAnswer, readS3Error, type S3Action } from "./s3-failure.js";
import { childText, escapeXml, parseXml } from "./xml.js";

const partsMax = 10_000;
const partsInFlight = 4;

/** Writes `body` in parts of `partBytes`. */
export async function putInParts(
  calls: S3Calls,
  key: string,
  body: Body,
  partBytes: number,
  signal: AbortSignal | undefined,
): Promise<void> {
  const total = bodyBytes(body);
  const bytesEach = Math.max(partBytes, Math.ceil(total / partsMax));
  const action: S3Action = { doing: "write", permission: "s3:PutObject", key };
  const uploadId = await beginUpload(calls, action, signal);
  try {
    const etags = await sendParts(calls, action, uploadId, cutBody(body, bytesEach), signal);
    await completeUpload(calls, action, uploadId, etags, signal);
  } catch (e) {
    // Its own failure would hide the one that matters; what is left is found by abortUploads.
    await abortUpload(calls, key, uploadId, undefined).catch(() => {});
    throw isGone(e) ? cutOff(calls, key, e) : e;
  }
}

function isGone(e: unknown): e is BatchWeaveError {
  return isBatchWeaveError(e) && e.details["s3"] === "NoSuchUpload";
}

/** Another process aborted it, or it was completed and the answer got lost. Either way the same bytes may be sent again. */
function cutOff(calls: S3Calls, key: string, cause: BatchWeaveError): BatchWeaveError {
  return new BatchWeaveError(
    "STORE_UNAVAILABLE",
    `Cannot write ${calls.place.uri}/${key}: its upload is gone, aborted by a reclaim or by a lifecycle rule of the bucket; try again.`,
    { key, s3: "NoSuchUpload" },
    cause,
  );
}

async function beginUpload(calls: S3Calls, action: S3Action, signal: AbortSignal | undefined): Promise<string> {
  const answer = await calls.sendOk({
    action,
    method: "POST",
    key: action.key,
    query: { uploads: "" },
    headers: calls.writeHeaders,
    signal,
  });
  const root = parseXml(new TextDecoder().decode(answer.body));
  const uploadId = childText(root, "UploadId");
  if (root?.name !== "InitiateMultipartUploadResult" || !uploadId) throw foreignAnswer(calls.place, action, answer);
  return uploadId;
}

async function sendParts(
  calls: S3Calls,
  action: S3Action,
  uploadId: string,
  parts: readonly Body[],
  signal: AbortSignal | undefined,
): Promise<string[]> {
  // All that ran have ended when one failed: an abort of the upload must not race with parts under way.
  return mapParallel(parts, partsInFlight, async (body, index) => {
    const answer = await calls.sendOk({
      action,
      method: "PUT",
      key: action.key,
      query: { partNumber: String(index + 1), uploadId },
      headers: calls.readHeaders,
      body,
      signal,
    });
    const { etag } = answer.headers;
    if (etag === undefined) throw foreignAnswer(calls.place, action, answer);
    return etag;
  });
}

async function completeUpload(
  calls: S3Calls,
  action: S3Action,
  uploadId: string,
  etags: readonly string[],
  signal: AbortSignal | undefined,
): Promise<void> {
  const parts = etags.map((etag, i) => `<Part><PartNumber>${i + 1}</PartNumber><ETag>${escapeXml(etag)}</ETag></Part>`);
  const request = {
    action,
    method: "POST" as const,
    key: action.key,
    query: { uploadId },
    headers: { ...calls.readHeaders, "content-type": "application/xml" },
    body: new TextEncoder().encode(`<CompleteMultipartUpload>${parts.join("")}</CompleteMultipartUpload>`),
    signal,
  };
  const answer = await calls.sendOk(request);
  // S3 sends the status before it knows: the error, if any, comes in the body.
  const error = readS3Error(answer);
  if (error) {
    throw new BatchWeaveError(
      "STORE_UNAVAILABLE",
      `Cannot write ${calls.place.uri}/${action.key}: the store could not put its parts together (${error.code}); try again.`,
      { key: action.key, s3: error.code },
    );
  }
  if (parseXml(new TextDecoder().decode(answer.body))?.name !== "CompleteMultipartUploadResult") {
    throw foreignAnswer(calls.place, action, answer);
  }
}

async function abortUpload(
  calls: S3Calls,
  key: string,
  uploadId: string,
  signal: AbortSignal | undefined,
): Promise<void> {
  const action: S3Action = { doing: "abort the upload of", permission: "s3:AbortMultipartUpload", key };
  const request = { action, method: "DELETE" as const, key, query: { uploadId }, signal };
  const answer = await calls.send(request);
  if (answer.status >= 300 && answer.status !== 404) throw calls.failure(request, answer);
}

/** Aborts uploads below `prefix` that began before `beforeMs`; gives their number. The clock only chooses: an upload that is cut off fails and is begun again. */
export async function abortUploadsBefore(
  calls: S3Calls,
  prefix: string,
  beforeMs: number,
  { only, signal }: AbortUploadsOptions = {},
): Promise<number> {
  const action: S3Action = { doing: "list uploads of", permission: "s3:ListBucketMultipartUploads", key: "" };
  const root = calls.place.prefix;
  const wanted = `${root}${prefix}`;
  let filter: Record<string, string> = { prefix: wanted };
  let marker: Record<string, string> = {};
  let aborted = 0;
  for (;;) {
    const query = { uploads: "", ...filter, ...marker };
    const answer = await calls.sendOk({ action, method: "GET", query, signal });
    if (filter["prefix"] !== undefined && /minio/i.test(String(answer.headers["server"]))) {
      filter = {}; // MinIO takes a prefix for a whole key
      continue;
    }
    const page = parseXml(new TextDecoder().decode(answer.body));
    if (page?.name !== "ListMultipartUploadsResult") throw foreignAnswer(calls.place, action, answer);
    for (const upload of page.children.filter((child) => child.name === "Upload")) {
      const [key, uploadId, initiated] = ["Key", "UploadId", "Initiated"].map((name) => childText(upload, name));
      const begunMs = parseDate(initiated);
      if (!key?.startsWith(wanted) || !uploadId || begunMs === undefined || begunMs >= beforeMs) continue;
      if (only?.(key.slice(root.length)) === false) continue;
      await abortUpload(calls, key.slice(root.length), uploadId, signal);
      aborted++;
    }
    const [nextKey, nextId] = [childText(page, "NextKeyMarker"), childText(page, "NextUploadIdMarker")];
    if (childText(page, "IsTruncated") !== "true" || !nextKey) return aborted;
    marker = { "key-marker": nextKey, ...(nextId && { "upload-id-marker": nextId }) };
  }
}

/** Cuts a body into bodies of `bytesEach`, without copying. */
function cutBody(body: Body, bytesEach: number): Body[] {
  const cuts: Uint8Array[][] = [];
  let current: Uint8Array[] = [];
  let room = bytesEach;
  for (let part of bodyParts(body)) {
    while (part.byteLength > 0) {
      const taken = part.subarray(0, room);
      current.push(taken);
      part = part.subarray(taken.byteLength);
      room -= taken.byteLength;
      if (room > 0) continue;
      cuts.push(current);
      current = [];
      room = bytesEach;
    }
  }
  if (current.length > 0) cuts.push(current);
  return cuts;
}
