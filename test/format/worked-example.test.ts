/**
 * Property: the bytes in FORMAT.md are the bytes that the code makes and reads, so the document cannot drift.
 * Method: make every example again and compare it with the document; decode the lineage block that stands there.
 */
import { describe, expect, test } from "vitest";
import { auditBatchObject, decodeLineage } from "../../src/format/index.js";
import { readText } from "../source-tree.js";
import { batchObject, examples, extent, hexDump, lineageSamples, name, place, spec } from "./worked-example.js";

const document = readText("FORMAT.md");

/** The code block after a marker. */
function shown(example: string): string | undefined {
  const marker = `<!-- example: ${example} -->\n\`\`\`text\n`;
  const start = document.indexOf(marker) + marker.length;
  return document.includes(marker) ? document.slice(start, document.indexOf("\n```", start)) : undefined;
}

function bytesOf(dump: string): Buffer {
  return Buffer.from(dump.replace(/^[0-9a-f]{4} {2}| {2}\|.*$/gm, "").replace(/\s/g, ""), "hex");
}

describe("FORMAT.md", () => {
  test.each(Object.keys(examples))("shows the %s as the code makes it", (example) => {
    expect(shown(example)).toBe(examples[example]);
  });

  test("its batch object reads back from the bytes shown", () => {
    const bytes = bytesOf(shown("batch") ?? "");
    expect(bytes.equals(batchObject)).toBe(true);
    const { metadata, rawBytes } = auditBatchObject(bytes, "example", spec.uuid, name, place, extent);
    expect(metadata.resumePoint).toEqual({ at: 2 });
    expect(rawBytes).toBe(8);
  });

  test("its lineage block holds the samples of the example", () => {
    const bytes = bytesOf(shown("lineage") ?? "");
    expect(hexDump(bytes)).toBe(shown("lineage"));
    expect(decodeLineage(bytes, "example")).toEqual(lineageSamples);
  });

  test("every example of the document is checked", () => {
    const marked = [...document.matchAll(/<!-- example: (.*?) -->/g)].map((match) => match[1]);
    expect(marked).toEqual(["namespace", "batch", "batch-parts", "manifest", "rest", "lineage"]);
  });
});
