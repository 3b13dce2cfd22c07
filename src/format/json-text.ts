/** Reading JSON of any writer: strict UTF-8, no byte order mark, and no name twice in one object. */

// A byte order mark is kept, and then it is not JSON.
const decoder = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });
const [quote, backslash, colon] = [0x22, 0x5c, 0x3a];

/**
 * Parses JSON. A name that comes twice is refused, because readers differ in which of the two they take: the names that the text holds are
 * counted, and so are those that are left. Throws SyntaxError, or TypeError for what is not UTF-8.
 */
export function parseJson(bytes: Uint8Array): unknown {
  const value: unknown = JSON.parse(decoder.decode(bytes));
  if (namesIn(Buffer.from(bytes.buffer, bytes.byteOffset, bytes.length)) !== namesOf(value))
    throw new SyntaxError("a name occurs twice in an object");
  return value;
}

/** Strings that a colon follows, in bytes that are JSON. */
function namesIn(bytes: Buffer): number {
  let count = 0;
  for (let from = bytes.indexOf(quote); from >= 0; ) {
    let end = bytes.indexOf(quote, from + 1);
    while (isEscaped(bytes, end)) end = bytes.indexOf(quote, end + 1);
    let next = end + 1;
    while (bytes[next] === 0x20 || bytes[next] === 0x0a || bytes[next] === 0x0d || bytes[next] === 0x09) next++;
    if (bytes[next] === colon) count++;
    from = bytes.indexOf(quote, end + 1);
  }
  return count;
}

/** An odd number of backslashes stands before it. */
function isEscaped(bytes: Buffer, at: number): boolean {
  let first = at;
  while (bytes[first - 1] === backslash) first--;
  return (at - first) % 2 === 1;
}

/** Names of all objects in a value. Not recursive: the value may be nested as deeply as its author likes. */
function namesOf(value: unknown): number {
  let count = 0;
  const rest: unknown[] = [value];
  while (rest.length > 0) {
    const item = rest.pop();
    if (typeof item !== "object" || item === null) continue;
    const isList = Array.isArray(item);
    const values: readonly unknown[] = isList ? item : Object.values(item);
    if (!isList) count += values.length;
    for (const one of values) if (typeof one === "object" && one !== null) rest.push(one);
  }
  return count;
}
