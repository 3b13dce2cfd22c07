/** Servers that stand in for Azure and Google Cloud: started on loopback, with a container or bucket, their telemetry off. */
import { type ObjectStore, openStore, type StoreSettings, systemEnv } from "../src/index.js";
import { startProcess } from "./server-process.js";
import { azurite, fakeGcs, obtain } from "./tools.js";

/** A server and how to open a fresh, empty store on it. */
export interface CloudServer {
  readonly name: string;
  readonly settings: StoreSettings;
  /** The same as environment variables, for other processes. */
  readonly environment: Readonly<Record<string, string>>;
  /** A new place each time. */
  place(): string;
  open(): Promise<ObjectStore>;
  stop(): Promise<void>;
}

const container = "batchweave-test";
const account = "batchweave";
const accountKey = Buffer.from("only for a server on loopback").toString("base64");

/** Azurite: Microsoft's own emulator of Blob storage. */
export async function startAzurite(): Promise<CloudServer | { readonly skipped: string }> {
  const tool = await obtain(azurite);
  if ("skipped" in tool) return tool;
  const server = await startProcess(
    process.execPath,
    (port, folder) => [
      tool.path,
      "--blobHost",
      "127.0.0.1",
      "--blobPort",
      String(port),
      "--location",
      folder,
      "--silent",
      "--skipApiVersionCheck",
      "--disableTelemetry",
    ],
    { AZURITE_ACCOUNTS: `${account}:${accountKey}` },
  );
  const endpoint = `http://127.0.0.1:${server.port}/${account}`;
  const sdk = await import("@azure/storage-blob");
  const credential = new sdk.StorageSharedKeyCredential(account, accountKey);
  await new sdk.BlobServiceClient(endpoint, credential).getContainerClient(container).create();
  const environment = {
    AZURE_STORAGE_ACCOUNT: account,
    AZURE_STORAGE_KEY: accountKey,
    AZURE_STORAGE_BLOB_ENDPOINT: endpoint,
  };
  const settings = { azure: { endpoint, account, accountKey } };
  return cloudServer("Azurite", `az://${container}`, settings, environment, server.stop);
}

/** fake-gcs-server: an emulator of Google Cloud Storage. */
export async function startFakeGcs(): Promise<CloudServer | { readonly skipped: string }> {
  const tool = await obtain(fakeGcs);
  if ("skipped" in tool) return tool;
  const server = await startProcess(tool.path, (port) => [
    "-scheme",
    "http",
    "-host",
    "127.0.0.1",
    "-port",
    String(port),
    "-public-host",
    `127.0.0.1:${port}`,
    "-backend",
    "memory",
    "-log-level",
    "error",
  ]);
  const endpoint = `http://127.0.0.1:${server.port}`;
  const { Storage } = await import("@google-cloud/storage");
  await new Storage({ apiEndpoint: endpoint, projectId: "test" }).createBucket(container);
  const settings = { gcs: { endpoint, projectId: "test" } };
  const environment = { STORAGE_EMULATOR_HOST: endpoint, GOOGLE_CLOUD_PROJECT: "test" };
  return cloudServer("fake-gcs-server", `gs://${container}`, settings, environment, server.stop);
}

function cloudServer(
  name: string,
  root: string,
  settings: StoreSettings,
  environment: Readonly<Record<string, string>>,
  stop: () => Promise<void>,
): CloudServer {
  let stores = 0;
  const place = (): string => `${root}/t${stores++}-${systemEnv.id()}/deep`;
  return { name, settings, environment, place, open: () => openStore(place(), settings), stop };
}
