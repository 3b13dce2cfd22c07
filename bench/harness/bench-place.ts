/** Where a benchmark keeps its objects: a folder, or a real S3 server (MinIO on loopback) that other processes find through the environment. */
import { readdirSync, rmSync, unlinkSync } from "node:fs";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { openStore } from "../../src/index.js";
import { startMinio } from "../../test/stores/harness/s3-servers.js";
import { inScratchFolder } from "./scratch-folder.js";

/** A place that is gone afterwards. */
export interface BenchPlace {
  /** For messages. */
  readonly kind: string;
  uri(name: string): string;
  /** Deletes objects below `name` whose key ends so. */
  sweep(name: string, ending: string): Promise<void>;
}

/** Runs `work` on `kind` (file, the default, or s3). `folder`: where to put files. */
export async function inBenchPlace(
  kind: string | undefined,
  folder: string | undefined,
  work: (place: BenchPlace) => Promise<void>,
): Promise<void> {
  if (kind === undefined || kind === "file") {
    await inScratchFolder(folder, (scratch) => work(filePlace(scratch)));
    return;
  }
  if (kind !== "s3") throw new Error(`--store is ${JSON.stringify(kind)}; use file or s3.`);
  const server = await startMinio();
  if ("skipped" in server) throw new Error(server.skipped);
  Object.assign(process.env, server.environment);
  try {
    await work(s3Place(server.bucket));
  } finally {
    await server.stop();
  }
}

function filePlace(scratch: string): BenchPlace {
  return {
    kind: "file",
    uri: (name) => pathToFileURL(join(scratch, name)).href,
    // Folders stay unless everything goes: whoever writes next knows them already.
    async sweep(name, ending) {
      if (ending === "") return rmSync(join(scratch, name), { recursive: true, force: true });
      for (const entry of readdirSync(join(scratch, name), { withFileTypes: true, recursive: true }))
        if (entry.name.endsWith(ending)) unlinkSync(join(entry.parentPath, entry.name));
    },
  };
}

function s3Place(bucket: string): BenchPlace {
  const uri = (name: string): string => `s3://${bucket}/${name}`;
  return {
    kind: "s3",
    uri,
    async sweep(name, ending) {
      const store = await openStore(uri(name));
      let startAfter: string | undefined;
      for (;;) {
        const { objects, more } = await store.list("", { startAfter });
        const keys = objects.map(({ key }) => key);
        await store.delete(keys.filter((key) => key.endsWith(ending)));
        if (!more) return;
        startAfter = keys.at(-1);
      }
    },
  };
}
