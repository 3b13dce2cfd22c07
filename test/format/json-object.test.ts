/**
 * Properties of every stored JSON object: it reads back as it was, byte for byte; any changed byte, any truncation and any extension is
 * refused with an error that names the object; unknown fields survive; newer versions and foreign namespaces have their own codes;
 * hostile JSON does no harm. Method: random values of every kind.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  asVersion,
  decodeManifest,
  decodeTable,
  encodeManifest,
  genesisManifest,
  manifestKey,
  sealJson,
} from "../../src/format/index.js";
import * as any from "./arbitrary.js";
import { refusal } from "./refusal.js";
import { storedKinds, storedObject } from "./stored-object.js";
import { spec } from "./worked-example.js";

const text = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8");

/** The same object with other fields; its checksum fits. */
function resealed(bytes: Uint8Array, change: (fields: Record<string, unknown>) => Record<string, unknown>): Uint8Array {
  const { format, kind, namespace, crc32: _, ...fields } = JSON.parse(text(bytes));
  const changed = change({ format, kind, namespace, ...fields });
  return sealJson(changed["kind"] as "root", changed["namespace"] as string, changed);
}

describe.each(storedKinds)("%s", (kind) => {
  // A segment has thousands of bytes, each of which is tried.
  const runs = kind === "segment" ? 1 : 8;

  test("reads back as it was", () => {
    fc.assert(
      fc.property(storedObject(kind), ({ bytes, decode, encode }) => {
        expect(text(encode(decode(bytes)))).toBe(text(bytes));
      }),
    );
  });

  test("every changed byte is noticed", () => {
    fc.assert(
      fc.property(storedObject(kind), fc.integer({ min: 1, max: 255 }), ({ bytes, key, decode }, mask) => {
        for (let at = 0; at < bytes.length; at++) {
          const damaged = Uint8Array.from(bytes);
          (damaged[at] as number) ^= mask;
          refusal(() => decode(damaged), key);
        }
      }),
      { numRuns: runs },
    );
  });

  test("every truncation and any extension is noticed", () => {
    fc.assert(
      fc.property(
        storedObject(kind),
        fc.uint8Array({ minLength: 1, maxLength: 40 }),
        ({ bytes, key, decode }, more) => {
          for (let length = 0; length < bytes.length; length++) refusal(() => decode(bytes.subarray(0, length)), key);
          refusal(() => decode(Buffer.concat([bytes, more])), key);
          refusal(() => decode(Buffer.concat([bytes, bytes])), key);
          refusal(() => decode(new Uint8Array(bytes.length)), key);
        },
      ),
      { numRuns: runs },
    );
  });

  test("random bytes are noticed", () => {
    fc.assert(
      fc.property(storedObject(kind), fc.uint8Array({ maxLength: 200 }), ({ key, decode }, bytes) => {
        refusal(() => decode(bytes), key);
      }),
    );
  });

  test("a newer version, another kind and another namespace are told apart", () => {
    fc.assert(
      fc.property(storedObject(kind), any.uuid, ({ bytes, key, decode, namespace }, other) => {
        const read = (change: Record<string, unknown>): string =>
          refusal(() => decode(resealed(bytes, (fields) => ({ ...fields, ...change }))), key).code;
        expect(read({ format: 3 })).toBe("UNSUPPORTED_FORMAT");
        expect(read({ kind: kind === "root" ? "node" : "root" })).toBe("CORRUPT");
        if (kind !== "namespace" && other !== namespace) expect(read({ namespace: other })).toBe("WRONG_NAMESPACE");
      }),
      { numRuns: 20 },
    );
  });

  test("any field that is missing or of another type is refused or understood, never a crash", () => {
    fc.assert(
      fc.property(
        storedObject(kind),
        fc.nat(),
        fc.oneof(any.json, fc.constantFrom<unknown>({ toString: "" }, { toJSON: 1 }, { valueOf: {} })),
        fc.boolean(),
        ({ bytes, key, decode, encode }, pick, value, drop) => {
          const broken = resealed(bytes, (fields) => damagedField(fields, pick, value, drop));
          let read: unknown;
          try {
            read = decode(broken);
          } catch {
            refusal(() => decode(broken), key);
            return;
          }
          encode(read);
        },
      ),
      { numRuns: kind === "segment" ? 100 : 500 },
    );
  });
});

/** Replaces or drops one value somewhere in the tree. */
function damagedField(
  fields: Record<string, unknown>,
  pick: number,
  value: unknown,
  drop: boolean,
): Record<string, unknown> {
  const copy = JSON.parse(JSON.stringify(fields));
  const places: [Record<string, unknown>, string][] = [];
  const visit = (node: Record<string, unknown>): void => {
    for (const [name, child] of Object.entries(node)) {
      if (node !== copy || !["format", "kind", "namespace"].includes(name)) places.push([node, name]);
      if (typeof child === "object" && child !== null) visit(child as Record<string, unknown>);
    }
  };
  visit(copy);
  const [node, name] = places[pick % places.length] as [Record<string, unknown>, string];
  if (drop && Array.isArray(node)) node.splice(Number(name), 1);
  else if (drop) delete node[name];
  else node[name] = value;
  return copy;
}

const key = manifestKey(asVersion(3));
const decode = (bytes: Uint8Array): ReturnType<typeof decodeManifest> =>
  decodeManifest(bytes, key, spec.uuid, asVersion(3));
const commit = { id: "v0u1t2s3r4q5", by: "p", time: 1 };
const plain = encodeManifest({ ...genesisManifest(spec), version: asVersion(3), commit });

/** The manifest with a piece of JSON text put into it unparsed. */
function withText(piece: string): Uint8Array {
  const marked = text(resealed(plain, (fields) => ({ ...fields, zzz: "@" })));
  const { format: _f, kind: _k, namespace: _n, crc32: _c, ...fields } = JSON.parse(marked.replace('"@"', piece));
  return sealJson("manifest", spec.uuid, fields);
}

describe("fields of a later version", () => {
  test("survive a rewrite, wherever they may stand", () => {
    const later = resealed(plain, (fields) => ({ ...fields, retention: { days: 3 }, "0": [1], constructor: "x" }));
    expect(text(encodeManifest(decode(later)))).toBe(text(later));
  });

  test("may even be called __proto__", () => {
    const later = withText('1,"__proto__":{"admin":true}');
    const read = decode(later);
    expect(text(later)).toContain('"__proto__":{"admin":true}');
    expect(text(encodeManifest(read))).toBe(text(later));
    expect(Object.getPrototypeOf(read.rest)).toBe(Object.prototype);
    expect(({} as Record<string, unknown>)["admin"]).toBeUndefined();
  });

  test("a producer called __proto__ is refused, as it is everywhere", () => {
    const entry = [[1, "0123456789ab", 0, 1, 0], { a: 1 }];
    const bytes = sealJson("table", spec.uuid, { producers: JSON.parse(`{"__proto__":${JSON.stringify(entry)}}`) });
    expect(refusal(() => decodeTable(bytes, "index/x", spec.uuid), "index/x").code).toBe("CORRUPT");
  });
});

/** Seals text that JSON.stringify would not write. */
function sealedText(body: string): Uint8Array {
  const sealed = text(sealJson("manifest", spec.uuid, {}));
  const head = sealed.slice(0, sealed.indexOf(',"crc32"'));
  const crcOf = (content: string): string => {
    // The checksum of any text, by way of an object that holds nothing else.
    const table = new Uint32Array(256).map((_, n) => {
      let c = n;
      for (let bit = 0; bit < 8; bit++) c = c & 1 ? (c >>> 1) ^ 0xedb88320 : c >>> 1;
      return c;
    });
    let c = 0xffffffff;
    for (const byte of Buffer.from(content)) c = (c >>> 8) ^ (table[(c ^ byte) & 0xff] as number);
    return (~c >>> 0).toString(16).padStart(8, "0");
  };
  const content = `${head}${body}`;
  return Buffer.from(`${content},"crc32":"${crcOf(content)}"}\n`);
}

describe("hostile JSON under a valid checksum", () => {
  const good = text(plain)
    .replace(/^.*?"version"/, ',"version"')
    .replace(/,"crc32".*\n$/, "");

  test("producers whose ids are numbers are written where they are read back", () => {
    const read = decode(
      sealedText(
        good.replace('"producers":{}', '"producers":{"a":[0,"000000000000",1,0,0],"7":[0,"000000000000",1,0,0]}'),
      ),
    );
    const swapped = new Map([...read.producers].sort(([a], [b]) => (a < b ? 1 : -1)));
    expect([...swapped.keys()]).toEqual(["a", "7"]);
    const written = encodeManifest({ ...read, producers: swapped });
    expect(text(encodeManifest(decode(written)))).toBe(text(written));
  });

  test("the way this test seals text is the right one", () => {
    expect(text(sealedText(good))).toBe(text(plain));
  });

  test.each([
    ["an array nested 100,000 levels deep", `,"x":${"[".repeat(1e5)}${"]".repeat(1e5)}`],
    ["an object nested 100,000 levels deep", `,"x":${'{"a":'.repeat(1e5)}1${"}".repeat(1e5)}`],
    ["brackets that never close", `,"x":${"[".repeat(1e5)}`],
    ["NaN", ',"x":NaN'],
    ["a name that comes twice", ',"orphanCutoff":0'],
    ["a name that comes twice, once in disguise", ',"orphan\\u0043utoff":0'],
    ["a name that comes twice in an object further down", ',"x":[{"a":{"b":1,"c":"\\\\\\"","b":1}}]'],
    ["a byte order mark within", ',\ufeff"x":1'],
    ["a string that never ends", ',"x":"'],
    ["a control character", ',"x":"\u0000"'],
  ])("%s is refused", (_, piece) => {
    refusal(() => decode(sealedText(good + piece)), key);
  });

  test("numbers that are no whole numbers are refused, and those that are one by value are not", () => {
    const withCutoff = (number: string) => sealedText(good.replace('"orphanCutoff":0', `"orphanCutoff":${number}`));
    for (const number of ['"1"', "null", "1.5", "-1", "[1]", "1e400", "1e999", "9007199254740993", "0.5", "true"])
      refusal(() => decode(withCutoff(number)), key);
    for (const number of ["1.0", "1e0", "10E-1", "-0"])
      expect(decode(withCutoff(number)).orphanCutoff).toBe(number === "-0" ? -0 : 1);
  });

  test("names that only look alike are two", () => {
    expect(decode(sealedText(`${good},"x\\"":":\\"x\\":","x":{"x":1,"X":{"x":2}}`)).rest).toHaveProperty("x");
  });

  test("bytes that are not UTF-8 are refused", () => {
    const bytes = Buffer.from(sealedText(`${good},"x":"@"`));
    bytes[bytes.indexOf("@")] = 0xff;
    refusal(() => decode(bytes), key);
  });
});
