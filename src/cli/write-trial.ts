/** Can this user write here? Only a write can tell: permissions, quotas, mounts and full disks show in nothing that is read. */
import { type CallOptions, type Env, isBatchWeaveError, type ObjectStore, probePrefix } from "../index.js";

/** What a trial found, and what to do about it. */
interface Trial {
  readonly level: "ok" | "warning" | "problem";
  readonly what: string;
  readonly todo?: string;
}

/** More than the rest of a block that a full disk may still have for a file. */
const trialBytes = 65_536;

/** Creates an object as a commit does, below the prefix of probes, and removes it. */
export async function tryWrite(store: ObjectStore, env: Env, options: CallOptions): Promise<Trial> {
  const key = `${probePrefix}${env.id()}`;
  let doing = "written";
  try {
    await store.create(key, new Uint8Array(trialBytes), options);
    doing = "removed again";
    await store.delete([key], options);
    return { level: "ok", what: `an object of ${trialBytes / 1_024} KiB was written and removed again` };
  } catch (error) {
    if (!isBatchWeaveError(error)) throw error;
    const { code, message } = error;
    const what = `a trial object cannot be ${doing}: ${message.replace(/\.$/, "")}`;
    // Who only looks needs no right to write; who does, finds out here and not in the middle of a run.
    if (code === "STORE_DENIED")
      return {
        level: "warning",
        what,
        todo: "if producers, ranks that checkpoint or a reclaimer run as this user on this machine, give them that right; who only looks needs none",
      };
    // A hiccup: those at work try again.
    if (code === "STORE_UNAVAILABLE")
      return { level: "warning", what, todo: "look again; if it stays so, look at the store" };
    return { level: "problem", what, todo: "nothing can be committed here until that is mended" };
  }
}
