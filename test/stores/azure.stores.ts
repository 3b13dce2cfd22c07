/**
 * Property: the azure store keeps every rule of a store against a real server.
 * Method: the conformance suite against Azurite. Run by `make test-stores`.
 */
import { afterAll, test } from "vitest";
import { describeStoreConformance } from "../store/conformance.js";
import { startAzurite } from "./harness/cloud-servers.js";

const server = await startAzurite();

if ("skipped" in server) test("azure on Azurite: conformance", (context) => context.skip(server.skipped));
else {
  afterAll(() => server.stop());
  describeStoreConformance("azure on Azurite", async () => ({ store: await server.open() }));
}
