/** Runs a case of the family `heads`: one process on a scripted store, told to do one thing after another. */
import { systemEnv } from "../../src/env/index.js";
import { BatchWeaveError, isBatchWeaveError } from "../../src/errors.js";
import { decodeNamespace, type Manifest } from "../../src/format/index.js";
import { Log, stageSettings } from "../../src/log/index.js";
import type { ConformanceCase } from "./case-runner.js";
import { HeadStore } from "./head-store.js";

/** What it concluded from each, and every call it made, in order. */
export async function runHeadCase(c: ConformanceCase): Promise<unknown> {
  const store = new HeadStore(c["bodies"], c["script"]);
  await store.place(c["present"]);
  const spec = decodeNamespace(Buffer.from(c["spec"], "base64"), "case");
  const openOrigin = (): never => {
    throw new Error("a case of the head has no forks");
  };
  const log = new Log({ store, env: systemEnv, spec, openOrigin });
  const results: unknown[] = [];
  for (const action of c["actions"] as string[]) {
    store.calls.push(`# ${action}`);
    try {
      results.push(await perform(log, action));
    } catch (error) {
      if (!isBatchWeaveError(error)) throw error;
      results.push({ code: error.code });
    }
  }
  return { results, calls: store.calls };
}

const shown = ({ version, commit }: Manifest): unknown => ({ version, by: version === 0 ? "" : commit.by });

async function perform(log: Log, action: string): Promise<unknown> {
  const { head } = log;
  if (action === "load" || action === "jump" || action === "advance" || action === "newest")
    return shown(await head[action]());
  if (action === "walk") return shown(await head.walk(() => false, 3));
  if (action === "look") return await head.boundary.look();
  if (action === "keep") {
    await head.keep(await head.newest());
    return null;
  }
  const change = {
    by: "me",
    kind: "settings",
    // Something that staging needs and that is kept as long as its version.
    prepare: async (base: Manifest) => {
      if (action !== "commit looked up" || (await head.read(base.version))) return;
      throw new BatchWeaveError("MISSING_OBJECT", "What staging needs is gone.", {});
    },
    stage: (draft: Parameters<typeof stageSettings>[0]) => ({
      done: stageSettings(draft, { maxLag: 7 }),
      result: null,
    }),
  } as const;
  const { outcome, manifest } = await log.attempt(change, { fresh: action === "commit" });
  return { outcome, ...(shown(manifest) as object) };
}
