/**
 * Property: the command works on every store as it does on a folder. Method: the built `batchweave demo` (producers and ranks that are killed, a proof
 * at the end) and `probe` against each server, which they find through the environment. Run by `make test-stores`.
 */
import { beforeAll, expect, test } from "vitest";
import { startAzurite, startFakeGcs } from "../../harness/cloud-servers.js";
import { startMinio } from "../../harness/s3-servers.js";
import { buildIfStale, start } from "../cli/command-line.js";

beforeAll(() => buildIfStale());

const servers = [
  ["s3 on MinIO", startMinio, "s3://batchweave-test"],
  ["azure on Azurite", startAzurite, "az://batchweave-test"],
  ["gcs on fake-gcs-server", startFakeGcs, "gs://batchweave-test"],
] as const;

for (const [name, startServer, root] of servers) {
  test(`${name}: probe and demo`, async (context) => {
    const server = await startServer();
    if ("skipped" in server) return context.skip(server.skipped);
    try {
      const probe = await start(["probe", `${root}/probed`, "--json"], server.environment).ended;
      expect(probe.lines, probe.stderr).toMatchObject([{ safe: true }]);
      const demo = await start(["demo", "--uri", `${root}/demo`, "--json"], server.environment).ended;
      expect(demo.status, `${demo.stderr}\n${demo.stdout.slice(-2_000)}`).toBe(0);
    } finally {
      await server.stop();
    }
  });
}
