/** What a key may look like, in one place, so that no backend can be talked out of its root. */
import { BatchWeaveError } from "../errors.js";

/** Longest key in bytes (keys are ASCII): leaves room for a prefix below S3's 1,024. */
const keyBytesMax = 900;

const segment = /^[A-Za-z0-9._=-]+$/;
const key = /^[A-Za-z0-9._=-]+(?:\/[A-Za-z0-9._=-]+)*$/;
const dots = /(?:^|\/)\.{1,2}(?:\/|$)/;

/** Whether `name` can stand between two slashes of a key. */
export function isKeySegment(name: string): boolean {
  return segment.test(name) && name !== "." && name !== "..";
}

/** Whether some key may start with `text`. Listings of other prefixes are empty, and some servers would not even be asked. */
export function isKeyPrefix(text: string): boolean {
  return text.length <= keyBytesMax && /^(?!\/)[A-Za-z0-9._=/-]*$/.test(text) && !/\/\/|(?:^|\/)\.{1,2}\//.test(text);
}

/** Whether `text` is a key. */
export function isKey(text: string): boolean {
  return text.length <= keyBytesMax && key.test(text) && !dots.test(text);
}

/**
 * Throws INVALID_ARGUMENT unless `text` is a key. Without empty, `.` or `..` segments, backslashes or NUL, joining it to a root
 * cannot lead out of that root.
 */
export function assertKey(text: string): void {
  if (isKey(text)) return;
  const shown = JSON.stringify(text.length > 120 ? `${text.slice(0, 120)}…` : text);
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${shown} is not a key; use segments of A-Z a-z 0-9 . _ = - joined by "/", none of them empty, "." or "..", at most ${keyBytesMax} bytes.`,
    { key: text },
  );
}
