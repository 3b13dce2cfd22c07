/**
 * Property: the S3 store keeps every rule of a store against a server that people run in production.
 * Method: the conformance suite against MinIO. Run by `make test-stores`.
 */
import { afterAll, test } from "vitest";
import { leaveUpload, openS3At, startMinio } from "../../harness/s3-servers.js";
import { describeStoreConformance } from "../store/conformance.js";

const server = await startMinio();

if ("skipped" in server) test("s3 on MinIO: conformance", (context) => context.skip(server.skipped));
else {
  afterAll(() => server.stop());
  describeStoreConformance("s3 on MinIO", async () => {
    const store = await openS3At(server);
    return { store, leaveUpload: (key) => leaveUpload(server, store, key) };
  });
}
