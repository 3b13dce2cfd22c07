/** A producer, a rank, a reclaimer or a deleter of `chaos-recreate.ts`. Now and then it stops itself in the middle of what it does, until the script wakes it up. */
import { appendFileSync } from "node:fs";
import { join } from "node:path";
import {
  deleteNamespace,
  isBatchWeaveError,
  type Namespace,
  type ObjectStore,
  openNamespace,
  openStore,
  systemEnv,
  withRetry,
} from "../src/index.js";

const [kind, uri, folder, name] = process.argv.slice(2) as [string, string, string, string];
process.on("disconnect", () => process.exit(3));

/** Stops right before a request: what it does next, it does much later. */
function withStops(store: ObjectStore, rate: number): ObjectStore {
  const maybeStop = (): void => {
    if (systemEnv.random() >= rate) return;
    process.send?.("stopped");
    process.kill(process.pid, "SIGSTOP");
  };
  return {
    uri: store.uri,
    create: async (key, body, options) => {
      maybeStop();
      return await store.create(key, body, options);
    },
    put: (key, body, options) => store.put(key, body, options),
    get: (key, options) => store.get(key, options),
    getRange: (key, start, length, options) => store.getRange(key, start, length, options),
    list: (prefix, options) => store.list(prefix, options),
    delete: async (keys, options) => {
      // One by one, so that it can stop in the middle.
      for (const key of keys) {
        maybeStop();
        await store.delete([key], options);
      }
    },
  };
}

async function produce(ns: Namespace): Promise<void> {
  const producer = await ns.producer({ id: name });
  const { rows, chunks } = ns.grid;
  for (let counter = producer.nextSeq; ; counter++) {
    const slices = Array.from({ length: rows * chunks }, (_, cell) =>
      Buffer.from(`${ns.uuid} ${name} ${counter} ${cell}`),
    );
    const ticket = await producer.append(slices, { resumePoint: { next: counter + 1 } });
    void ticket.committed.then(
      () => appendFileSync(join(folder, `${name}.acknowledged`), `${ns.uuid} ${name} ${counter}\n`),
      () => {},
    );
    await systemEnv.sleep(30 * systemEnv.random());
  }
}

async function read(ns: Namespace): Promise<void> {
  const consumer = await ns.consumer({ mesh: { dp: 1 }, rank: 0, from: "earliest", pollDelayMs: 10 });
  for await (const share of consumer) {
    for (const { step, bytes } of share.slices) {
      const text = Buffer.from(bytes).toString();
      if (!text.startsWith(ns.uuid)) throw new Error(`step ${step} of ${ns.uuid} holds ${text.slice(0, 80)}`);
    }
    if (share.iteration % 5 === 4)
      await ns.checkpoint(`iter-${share.iteration}`, share.next, { group: name, keepLast: 1 });
  }
}

async function reclaim(ns: Namespace): Promise<void> {
  for (;;) {
    await ns.reclaim({ graceMs: 0, keepVersions: 2 });
    await systemEnv.sleep(40 * systemEnv.random());
  }
}

/** Works on whatever namespace it finds until that is deleted, then on the next. */
async function live(work: (ns: Namespace) => Promise<void>): Promise<void> {
  for (;;) {
    let ns: Namespace;
    try {
      ns = await openNamespace(uri, { store });
    } catch (error) {
      if (!isBatchWeaveError(error, "NO_NAMESPACE") && !isBatchWeaveError(error, "DELETED")) throw error;
      await systemEnv.sleep(50);
      continue;
    }
    try {
      await work(ns);
    } catch (error) {
      // A rank that has no checkpoint yet may be overtaken by the trim.
      if (!isBatchWeaveError(error, "DELETED") && !(kind === "rank" && isBatchWeaveError(error, "RECLAIMED")))
        throw error;
      if (isBatchWeaveError(error, "DELETED")) process.send?.("evicted");
    }
  }
}

const store = withRetry(withStops(await openStore(uri, { durability: "process-crash" }, systemEnv), 0.004), systemEnv);
try {
  if (kind === "deleter") await deleteNamespace(uri, { store });
  else await live({ producer: produce, rank: read, reclaimer: reclaim }[kind as "rank"]);
  process.exit(0);
} catch (error) {
  process.stderr.write(`${name}: ${error instanceof Error ? error.stack : String(error)}\n`);
  process.exit(1);
}
