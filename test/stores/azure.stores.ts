/**
 * Property: the azure store keeps every rule of a store against a real server.
 * Method: the conformance suite against Azurite, and a fault proxy in front of it. Run by `make test-stores`.
 */
import { afterAll, expect, test } from "vitest";
import { startAzurite } from "../../harness/cloud-servers.js";
import { type AzureStoreSettings, openStore } from "../../src/store/index.js";
import { describeStoreConformance } from "../store/conformance.js";
import { describeCloudFaults } from "./cloud-faults.js";

const server = await startAzurite();

if ("skipped" in server) test("azure on Azurite: conformance", (context) => context.skip(server.skipped));
else {
  afterAll(() => server.stop());
  describeStoreConformance("azure on Azurite", async () => ({ store: await server.open() }));
  const azure = server.settings.azure as AzureStoreSettings;
  const { origin, pathname } = new URL(azure.endpoint as string);
  describeCloudFaults("azure on Azurite", {
    endpoint: origin,
    open: (endpoint, timeoutMs) =>
      openStore(server.place(), { azure: { ...azure, endpoint: `${endpoint}${pathname}`, timeoutMs } }),
    openMissing: () => openStore("az://not-there/x", server.settings),
    permission: /Storage Blob Data (?:Contributor|Reader)/,
    secret: azure.accountKey as string,
  });

  test("a key that is not accepted, and a connection string that is none: told, and not repeated", async () => {
    const accountKey = Buffer.from("another key").toString("base64");
    const denied = await openStore(server.place(), { azure: { ...azure, accountKey } });
    for (const call of [denied.get("k"), denied.list(""), denied.put("k", new Uint8Array(1))]) {
      const e = await call.catch((caught: unknown) => caught);
      expect(e).toMatchObject({ code: "STORE_DENIED" });
      expect(String(e)).not.toContain(accountKey);
    }
    const opening = openStore("az://container/x", { azure: { connectionString: "AccountKey=hunter2" } });
    const refused = await opening.catch((caught: unknown) => caught);
    expect(refused).toMatchObject({ code: "INVALID_ARGUMENT" });
    expect(String(refused)).not.toContain("hunter2");
  });
}
