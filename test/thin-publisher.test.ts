/**
 * Property: a batch object and an intent, two PUTs by a program in another language that never commits, are enough to be published
 * by others; exactly once, in order, with the resume point read back at the next open.
 */

import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterAll, expect, test } from "vitest";
import { openProducer } from "../src/cadence/index.js";
import { systemEnv } from "../src/env/index.js";
import { decodeNamespace, namespaceKey } from "../src/format/index.js";
import { createNamespace } from "../src/index.js";
import { Log } from "../src/log/index.js";
import { openFileStore } from "../src/store/index.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-thin-"));
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("a thin publisher in plain Python is carried by a TypeScript producer", async () => {
  const uri = `file://${folder}`;
  const ns = await createNamespace(uri, { grid: { rows: 2, chunks: 1 } });
  const store = await openFileStore(folder, systemEnv, {});
  const spec = decodeNamespace((await store.get(namespaceKey)) as Uint8Array, namespaceKey);
  const log = new Log({ store, env: systemEnv, spec, openOrigin: () => Promise.reject(new Error("no forks here")) });
  const { holder, state } = await openProducer(log, "thin");

  const script = fileURLToPath(new URL("./thin-publisher/publish.py", import.meta.url));
  const args = [
    folder,
    spec.uuid,
    2,
    1,
    "thin",
    holder.epoch,
    holder.incarnation,
    state.seq,
    log.head.known?.version ?? 0,
    3,
  ];
  execFileSync("python3", [script, ...args.map(String)]);

  const carrier = await ns.producer({ id: "carrier" });
  await carrier.append([Buffer.from("own/0"), Buffer.from("own/1")]);
  await carrier.close();

  const again = await ns.producer({ id: "thin" });
  expect(again.resumePoint).toEqual({ next: 3 });
  expect(again.nextSeq).toBe(3);
  await again.close();
  await ns.endLog();

  const seen: string[] = [];
  const consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0, policy: "global-batch", from: "earliest" });
  for await (const share of consumer)
    seen.push(share.slices.map((slice) => Buffer.from(slice.bytes).toString()).join(" "));
  const thin = seen.filter((text) => text.startsWith("thin"));
  expect(thin).toEqual([0, 1, 2].map((seq) => `thin/${seq}/0 thin/${seq}/1`));
  expect(seen.filter((text) => text.startsWith("own"))).toEqual(["own/0 own/1"]);
});
