/**
 * Property: the S3 store keeps every rule of a store against a real server.
 * Method: the conformance suite against moto, which installs in a minute; skipped, and says so, where it cannot be had.
 * `make test-stores` runs the same against servers of production grade.
 */
import { afterAll, test } from "vitest";
import { leaveUpload, openS3At, startMoto } from "../../harness/s3-servers.js";
import { systemEnv } from "../../src/env/index.js";
import { withRetry } from "../../src/store/index.js";
import { describeStoreConformance } from "../store/conformance.js";

const server = await startMoto();

if ("skipped" in server) test("s3 on moto: conformance", (context) => context.skip(server.skipped));
else {
  afterAll(() => server.stop());
  // Moto answers 500 to a read of an object that is just being replaced; the product reads through the same retries.
  describeStoreConformance("s3 on moto", async () => {
    const store = withRetry(await openS3At(server), systemEnv);
    return { store, hasNoAges: true, leaveUpload: (key) => leaveUpload(server, store, key) };
  });
}
