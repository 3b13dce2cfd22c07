/**
 * Property: the gcs store keeps every rule of a store against a real server.
 * Method: the conformance suite against fake-gcs-server. Run by `make test-stores`.
 */
import { afterAll, test } from "vitest";
import { startFakeGcs } from "../../harness/cloud-servers.js";
import { type GcsStoreSettings, openStore } from "../../src/store/index.js";
import { describeStoreConformance } from "../store/conformance.js";
import { describeCloudFaults } from "./cloud-faults.js";

const server = await startFakeGcs();

if ("skipped" in server) test("gcs on fake-gcs-server: conformance", (context) => context.skip(server.skipped));
else {
  afterAll(() => server.stop());
  describeStoreConformance("gcs on fake-gcs-server", async () => ({ store: await server.open() }));
  const gcs = server.settings.gcs as GcsStoreSettings;
  describeCloudFaults("gcs on fake-gcs-server", {
    endpoint: gcs.endpoint as string,
    open: (endpoint, timeoutMs) => openStore(server.place(), { gcs: { ...gcs, endpoint, timeoutMs } }),
    openMissing: () => openStore("gs://not-there/x", server.settings),
    permission: /storage\.objects\.(?:get|list|create|delete)/,
    secret: "Bearer",
  });
}
