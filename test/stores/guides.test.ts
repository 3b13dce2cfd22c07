/**
 * Property: the guides ask for exactly the permissions that the stores need, no more and no fewer.
 * Method: the permissions that failing requests name, taken from the sources, against the policies in the guides.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { root } from "../source-tree.js";

const folder = join(root, "src/store");

/** Everything in the sources of one store that looks so. */
function named(files: RegExp, pattern: RegExp): string[] {
  const texts = readdirSync(folder)
    .filter((name) => files.test(name))
    .map((name) => readFileSync(join(folder, name), "utf8"));
  return [...new Set(texts.flatMap((text) => [...text.matchAll(pattern)].map((found) => found[0])))].sort();
}

/** The JSON blocks of a guide. */
function policies(guide: string): unknown[] {
  const text = readFileSync(join(root, "docs/guide", guide), "utf8");
  return [...text.matchAll(/```json\n([\s\S]*?)```/g)].map(([, json]) => JSON.parse(json as string));
}

test("s3: the policies together allow what requests need, and the reclaimer's all of it", () => {
  const needed = named(/^s3.*\.ts$/, /(?<=permission: ")s3:\w+/g);
  expect(needed).toHaveLength(6);
  const allowed = policies("s3.md").flatMap((policy) => {
    const { Statement } = policy as { Statement?: { Action: string | string[] }[] };
    return Statement ? [[...new Set(Statement.flatMap(({ Action }) => Action))].sort()] : [];
  });
  const [producer, rank, reclaimer] = allowed;
  expect(allowed).toHaveLength(3);
  expect(reclaimer).toEqual(needed);
  expect(needed).toEqual(expect.arrayContaining([...(producer as string[]), ...(rank as string[])]));
  expect(rank).not.toContain("s3:DeleteObject");
});

test("gcs: the role holds what requests need", () => {
  const needed = named(/^gcs\.ts$/, /storage\.objects\.\w+/g);
  expect(policies("gcs.md")).toMatchObject([{ includedPermissions: needed }]);
});

test("azure: the roles that denials name are the guide's", () => {
  const needed = named(/^azure\.ts$/, /Blob Data \w+/g);
  const text = readFileSync(join(root, "docs/guide/azure.md"), "utf8");
  expect(needed).toHaveLength(2);
  for (const role of needed) expect(text).toContain(`Storage ${role}`);
  expect(policies("azure.md")).toHaveLength(1);
});
