/**
 * Property: the Python package keeps the rules of a store on Azure and Google Cloud too, commits there, and TypeScript reads the same bytes.
 * Method: python/tests/store_rules.py with obstore against Azurite and fake-gcs-server; then a TypeScript rank on the namespace it left. Run by `make test-stores`.
 */
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { expect, test } from "vitest";
import { type CloudServer, startAzurite, startFakeGcs } from "../../harness/cloud-servers.js";
import { startXmlDoor } from "../../harness/gcs-xml.js";
import { obstore, obtain } from "../../harness/tools.js";
import { openNamespace, openStore } from "../../src/index.js";

const run = promisify(execFile);
const path = (name: string): string => fileURLToPath(new URL(`../../${name}`, import.meta.url));

/** The variables that the clouds' own tools read, and what to stop afterwards. */
async function variables({ settings }: CloudServer): Promise<{ env: NodeJS.ProcessEnv; stop: () => Promise<void> }> {
  const { azure, gcs } = settings as { azure?: Record<string, string>; gcs?: Record<string, string> };
  if (gcs) {
    const door = await startXmlDoor(gcs["endpoint"] as string);
    return { env: { STORAGE_EMULATOR_HOST: door.endpoint }, stop: door.stop };
  }
  const { account, accountKey, endpoint } = azure ?? {};
  const text = `DefaultEndpointsProtocol=http;AccountName=${account};AccountKey=${accountKey};BlobEndpoint=${endpoint};`;
  return { env: { AZURE_STORAGE_CONNECTION_STRING: text }, stop: async () => {} };
}

for (const [name, start] of [
  ["az", startAzurite],
  ["gs", startFakeGcs],
] as const) {
  test(`python on ${name}://: the six calls, one winner, a namespace that both languages read`, async (context) => {
    const python = await obtain(obstore);
    if ("skipped" in python) return context.skip(python.skipped);
    const server = await start();
    if ("skipped" in server) return context.skip(server.skipped);
    const clouds = await variables(server);
    try {
      const uri = server.place();
      const env = { ...process.env, ...clouds.env, PYTHONPATH: path("python"), PYTHONDONTWRITEBYTECODE: "1" };
      const { stdout } = await run(python.path, [path("python/tests/store_rules.py"), uri], { env });
      expect(JSON.parse(stdout)).toEqual({ steps: 70 });
      const place = `${uri}/ns`;
      const namespace = await openNamespace(place, { store: await openStore(place, server.settings) });
      const seen = new Set<string>();
      await using consumer = await namespace.consumer({ mesh: { dp: 1 }, rank: 0, policy: "global-batch" });
      for await (const share of consumer)
        for (const { bytes } of share.slices) seen.add(Buffer.from(bytes).toString().split(" ", 1)[0] as string);
      expect(seen.size).toBe(140);
    } finally {
      await clouds.stop();
      await server.stop();
    }
  }, 300_000);
}
