/**
 * Property: the guides ask for exactly the permissions that the stores need, no more and no fewer; and each role can do its work with its own.
 * Method: the permissions that failing requests name, taken from the sources, against the policies in the guides; and a run in which every role's
 * store allows what the S3 guide's policy for it allows.
 */
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { BatchWeaveError } from "../../src/errors.js";
import { createNamespace, openNamespace } from "../../src/index.js";
import { assertSafe, MemoryStore, type ObjectStore, probeStore } from "../../src/store/index.js";
import { root } from "../source-tree.js";

const folder = join(root, "src/store");

/** Everything in the sources of one store that looks so. */
function named(store: string, pattern: RegExp): string[] {
  const texts = readdirSync(join(folder, store)).map((name) => readFileSync(join(folder, store, name), "utf8"));
  return [...new Set(texts.flatMap((text) => [...text.matchAll(pattern)].map((found) => found[0])))].sort();
}

/** The JSON blocks of a guide. */
function policies(guide: string): unknown[] {
  const text = readFileSync(join(root, "docs/guide", guide), "utf8");
  return [...text.matchAll(/```json\n([\s\S]*?)```/g)].map(([, json]) => JSON.parse(json as string));
}

test("s3: the policies together allow what requests need, and the reclaimer's all of it", () => {
  const needed = named("s3", /(?<=permission: ")s3:\w+/g);
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
  const needed = named("gcs", /storage\.objects\.\w+/g);
  expect(policies("gcs.md")).toMatchObject([{ includedPermissions: needed }]);
});

test("azure: the roles that denials name are the guide's", () => {
  const needed = named("azure", /Blob Data \w+/g);
  const text = readFileSync(join(root, "docs/guide/azure.md"), "utf8");
  expect(needed).toHaveLength(2);
  for (const role of needed) expect(text).toContain(`Storage ${role}`);
  expect(policies("azure.md")).toHaveLength(1);
});

interface Statement {
  readonly Action: string | readonly string[];
  readonly Resource: string | readonly string[];
  readonly Condition?: { readonly StringLike: { readonly "s3:prefix": string } };
}

const asList = (one: string | readonly string[]): readonly string[] => (typeof one === "string" ? [one] : one);
const isLike = (text: string, pattern: string): boolean =>
  new RegExp(`^${pattern.split("*").join(".*")}$`, "s").test(text);

/** Whether one of the guide's policies allows an action on `path` below the prefix (a listing: of names that start so). */
function allows(policy: { readonly Statement: readonly Statement[] }, action: string, path: string): boolean {
  return policy.Statement.some(({ Action, Resource, Condition }) => {
    if (!asList(Action).includes(action)) return false;
    const named = Condition?.StringLike["s3:prefix"];
    if (action.startsWith("s3:ListBucket")) return named === undefined || isLike(`PREFIX/${path}`, named);
    return asList(Resource).some((resource) => isLike(`arn:aws:s3:::BUCKET/PREFIX/${path}`, resource));
  });
}

/** `store` as S3 would give it to somebody with this policy; `used` collects what was needed. */
function guarded(
  store: ObjectStore,
  policy: { readonly Statement: readonly Statement[] },
  used: Set<string>,
): ObjectStore {
  const ask = (action: string, ...paths: readonly string[]): void => {
    for (const path of paths) used.add(`${action} ${path.replace(/^life\/[^/]*\//, "").split("/")[0]}`);
    for (const path of paths)
      if (!allows(policy, action, path)) throw new BatchWeaveError("STORE_DENIED", `${action} on ${path}`);
  };
  return {
    uri: store.uri,
    async create(key, body, options) {
      ask("s3:PutObject", key);
      return store.create(key, body, options);
    },
    async put(key, body, options) {
      ask("s3:PutObject", key);
      return store.put(key, body, options);
    },
    async get(key, options) {
      ask("s3:GetObject", key);
      return store.get(key, options);
    },
    async getRange(key, start, length, options) {
      ask("s3:GetObject", key);
      return store.getRange(key, start, length, options);
    },
    async list(prefix, options) {
      ask("s3:ListBucket", prefix);
      return store.list(prefix, options);
    },
    async delete(keys, options) {
      ask("s3:DeleteObject", ...keys);
      return store.delete(keys, options);
    },
  };
}

test("s3: producers, ranks and the reclaimer get along with their own policies", async () => {
  const found = policies("s3.md").filter((one) => "Statement" in (one as object));
  const [producer, rank, reclaimer] = found as [
    { Statement: Statement[] },
    { Statement: Statement[] },
    { Statement: Statement[] },
  ];
  const [memory, used] = [
    new MemoryStore(),
    { producer: new Set<string>(), rank: new Set<string>(), reclaimer: new Set<string>() },
  ];
  const stores = {
    producer: guarded(memory, producer, used.producer),
    rank: guarded(memory, rank, used.rank),
    reclaimer: guarded(memory, reclaimer, used.reclaimer),
  };
  const uri = "s3://bucket/run";
  assertSafe(await probeStore(stores.producer, systemEnv, { rounds: 1 }));
  const writing = await createNamespace(uri, { grid: { rows: 6, chunks: 1 } }, { store: stores.producer });
  const crew = await Promise.all(["a", "b"].map((id) => writing.producer({ id, extentBytesMax: 8 })));
  // Enough for a page's worth of intents, which are then deleted, and for sealed segments. With so many extents no two share a name.
  for (let batch = 0; batch < 700; batch++) {
    await Promise.all(crew.map((one) => one.append(Array.from({ length: 6 }, () => new Uint8Array(8)))));
  }
  await Promise.all(crew.map((one) => one.close()));
  const reading = await openNamespace(uri, { store: stores.rank });
  const consumer = await reading.consumer({ mesh: { dp: 2 }, rank: 0, environment: {} });
  for (let i = 0; i < 20; i++) {
    const { value: share } = await consumer.next();
    if (i === 19) await consumer.checkpoint("c", share?.next as never);
  }
  await consumer.return();
  const cleaning = await openNamespace(uri, { store: stores.reclaimer });
  await cleaning.reclaim({ graceMs: 0, keepVersions: 1 });
  // The run was one that needed what the policies give.
  const places = (of: Set<string>, action: string): string[] =>
    [...of].filter((one) => one.startsWith(`${action} `)).map((one) => one.slice(action.length + 1));
  expect(places(used.producer, "s3:DeleteObject").sort()).toEqual(["intent", "probe"]);
  expect(places(used.producer, "s3:PutObject")).toEqual(
    expect.arrayContaining(["batch", "index", "intent", "manifest"]),
  );
  expect(places(used.rank, "s3:DeleteObject")).toEqual([]);
  expect(places(used.rank, "s3:PutObject")).toEqual(["manifest"]);
  expect(places(used.reclaimer, "s3:DeleteObject")).toEqual(expect.arrayContaining(["batch", "manifest"]));
});
