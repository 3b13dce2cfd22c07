/** `scheme://bucket/prefix`, the same for every cloud store. */
import { BatchWeaveError } from "../errors.js";
import { isKey } from "./key.js";

/** Longest prefix: together with the longest key it stays below the 1,024 bytes that every store takes. */
const prefixBytesMax = 120;

/**
 * A URI for a message: a user may have put a key or a query with one into it, and messages must not repeat that. A key may hold slashes;
 * buckets and prefixes hold neither "@" nor ":".
 */
export function withoutSecrets(uri: string): string {
  const bare = uri.replace(/[?#].*$/s, "");
  if (/^file:/i.test(bare)) return bare.replace(/^(file:)\/\/[^/]*@/i, "$1//…@");
  return bare.replace(/\/\/.*@/s, "//…@").replace(/\/\/[^/]*:[^/]*/, "//…");
}

/** Splits a URI into bucket (or container) and prefix, neither with a slash at its ends. */
export function splitBucketUri(
  uri: string,
  scheme: string,
  bucketWord: string,
): { readonly bucket: string; readonly prefix: string } {
  const parts = /^[a-z0-9]+:\/\/([^/?#]*)(\/[^?#]*)?([?#].*)?$/.exec(uri);
  const bucket = parts?.[1] ?? "";
  if (!parts || bucket === "" || /[@:]/.test(bucket + (parts[2] ?? "")) || parts[3] !== undefined) {
    const shown = withoutSecrets(uri);
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `"${shown}" does not name a ${bucketWord}; write ${scheme}://${bucketWord}/prefix, without user, "?" or "#".`,
      { uri: shown },
    );
  }
  return { bucket, prefix: (parts[2] ?? "").replace(/^\/+|\/+$/g, "") };
}

/** Throws INVALID_ARGUMENT unless the prefix is one that keys can follow. */
export function assertBucketPrefix(uri: string, prefix: string): void {
  if (prefix === "" || (isKey(prefix) && prefix.length <= prefixBytesMax)) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The prefix of ${uri} cannot be used; write segments of A-Z a-z 0-9 . _ = - joined by single slashes, at most ${prefixBytesMax} bytes.`,
    { uri },
  );
}
