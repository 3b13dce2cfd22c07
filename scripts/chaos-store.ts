/** Where the chaos happens: a folder, or a real S3 server, with a fault proxy in between if asked for. */
import { pathToFileURL } from "node:url";
import { badDay, FaultProxy } from "../harness/fault-proxy.js";
import { startMinio, startMoto } from "../harness/s3-servers.js";
import { type ObjectStore, openStore, type StoreSettings } from "../src/index.js";

/** A store for one run. */
export interface ChaosStore {
  readonly uri: string;
  /** For this process, which looks at the truth: never through the proxy. */
  readonly settings: StoreSettings;
  readonly store: ObjectStore;
  /** What the proxy did to requests, by kind. */
  readonly faults: Readonly<Record<string, number>>;
  /** No more faults: the end of a run is about what is left, not about patience. */
  calm(): void;
  stop(): Promise<void>;
}

/** Faults per request, storms not counted. */
const faultRate = 0.06;

/** Opens `file`, `s3` (MinIO), or `moto`. Other processes find the server through the environment that this sets. */
export async function openChaosStore(
  kind: string,
  hasFaults: boolean,
  folder: string,
  random: () => number,
): Promise<ChaosStore> {
  if (kind === "file") {
    if (hasFaults)
      throw new Error("--faults needs --store s3 or --store moto: there is no network to break on a folder.");
    const uri = `${pathToFileURL(folder).href}/run`;
    return { uri, settings: {}, store: await openStore(uri), faults: {}, calm: () => {}, stop: async () => {} };
  }
  if (kind !== "s3" && kind !== "moto") throw new Error(`--store is ${kind}; use file, s3 or moto.`);
  const server = await (kind === "s3" ? startMinio() : startMoto());
  if ("skipped" in server) throw new Error(server.skipped);
  const proxy = hasFaults ? await FaultProxy.start(server.endpoint) : undefined;
  if (proxy) proxy.plan = badDay(random, faultRate);
  Object.assign(process.env, server.environment, proxy && { AWS_ENDPOINT_URL: proxy.endpoint });
  const uri = `s3://${server.bucket}/run`;
  const settings = { s3: server.settings };
  return {
    uri,
    settings,
    store: await openStore(uri, settings),
    faults: proxy?.counts ?? {},
    calm() {
      if (proxy) proxy.plan = () => undefined;
    },
    async stop() {
      await proxy?.stop();
      await server.stop();
    },
  };
}
