/**
 * Property: the gcs store keeps every rule of a store against a real server.
 * Method: the conformance suite against fake-gcs-server. Run by `make test-stores`.
 */
import { afterAll, test } from "vitest";
import { describeStoreConformance } from "../store/conformance.js";
import { startFakeGcs } from "./harness/cloud-servers.js";

const server = await startFakeGcs();

if ("skipped" in server) test("gcs on fake-gcs-server: conformance", (context) => context.skip(server.skipped));
else {
  afterAll(() => server.stop());
  describeStoreConformance("gcs on fake-gcs-server", async () => ({ store: await server.open() }));
}
