/** Where a benchmark keeps its objects: a folder, or a real S3 server (MinIO on loopback) that other processes find through the environment. */
import { execFileSync } from "node:child_process";
import { readdirSync, rmSync, unlinkSync } from "node:fs";
import { truncate } from "node:fs/promises";
import { join } from "node:path";
import { pathToFileURL } from "node:url";
import { startMinio } from "../../harness/s3-servers.js";
import { inScratchFolder } from "../../harness/scratch-folder.js";
import { openStore } from "../../src/index.js";

/** A place that is gone afterwards. */
export interface BenchPlace {
  readonly kind: "file" | "s3";
  uri(name: string): string;
  /** Deletes objects below `name` whose key ends so. */
  sweep(name: string, ending: string): Promise<void>;
  /**
   * Gives back the space of the batches below `name`, where that can be done without deleting anything: ext4 passes over every inode deleted in
   * the last minutes before it takes a free one, which would cost whoever writes where more was deleted.
   */
  empty(name: string): Promise<void>;
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
  const emptied = new Set<string>();
  return {
    kind: "file",
    uri: (name) => pathToFileURL(join(scratch, name)).href,
    // Folders stay unless everything goes: whoever writes next knows them already.
    async sweep(name, ending) {
      if (ending === "") return rmSync(join(scratch, name), { recursive: true, force: true });
      for (const entry of readdirSync(join(scratch, name), { withFileTypes: true, recursive: true }))
        if (entry.name.endsWith(ending)) unlinkSync(join(entry.parentPath, entry.name));
    },
    async empty(name) {
      const paths = readdirSync(join(scratch, name), { withFileTypes: true, recursive: true })
        .filter((entry) => entry.name.endsWith(".tgb"))
        .map((entry) => join(entry.parentPath, entry.name))
        .filter((path) => !emptied.has(path));
      for (const path of paths) emptied.add(path);
      const lane = async (): Promise<void> => {
        for (let path = paths.pop(); path !== undefined; path = paths.pop()) await truncate(path);
      };
      await Promise.all(Array.from({ length: 8 }, lane));
      // What the next round waits for is to be its own.
      execFileSync("sync");
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
    async empty() {},
  };
}
