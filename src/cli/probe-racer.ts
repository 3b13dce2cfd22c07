/** One process of the probe's race: opens the store, waits for the start of each round, creates, and tells what it was told. Arguments: URI, folder. */
import { openStore, systemEnv } from "../index.js";
import { type RaceAnswer, type RaceOrder, racerBytes } from "./probe-race.js";

/** Connections are made before the first round, or it would be decided by who connects first. */
const warmReads = 8;

function tell(answer: RaceAnswer): void {
  process.send?.(answer);
}

function tellFailure(e: unknown): void {
  tell({ failure: e instanceof Error ? e.message : String(e) });
}

async function race(uri: string, folder: string): Promise<void> {
  const store = await openStore(uri);
  const run = async ({ key, startAtMs, firstWriter, writers }: RaceOrder): Promise<RaceAnswer> => {
    await systemEnv.sleep(Math.max(0, startAtMs - systemEnv.now()));
    const calls = Array.from({ length: writers }, (_, i) => store.create(key, racerBytes(firstWriter + i)));
    return { outcomes: await Promise.all(calls) };
  };
  process.on("disconnect", () => process.exit(0));
  process.on("message", (order: RaceOrder) => run(order).then(tell, tellFailure));
  await Promise.all(Array.from({ length: warmReads }, () => store.get(`${folder}warm`)));
  tell({ outcomes: [] });
}

race(process.argv[2] as string, process.argv[3] as string).catch(tellFailure);
