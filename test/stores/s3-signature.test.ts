/**
 * Property: our signatures are AWS's, whatever the request. Method: random requests signed by us and by AWS's own signer, which must agree; and
 * dates against the platform's.
 */
import { SignatureV4 } from "@smithy/signature-v4";
import fc from "fast-check";
import { expect, test } from "vitest";
import { NodeSha256 } from "../../harness/node-sha256.js";
import { systemEnv } from "../../src/env/index.js";
import type { S3Place } from "../../src/store/s3/s3-place.js";
import { S3Signer } from "../../src/store/s3/signer.js";

const place: S3Place = {
  uri: "s3://bucket/x",
  bucket: "bucket",
  prefix: "x/",
  endpoint: "https://host",
  isTls: true,
  host: "host",
  basePath: "/bucket/",
  region: "eu-west-1",
};

const word = fc.stringMatching(/^[a-zA-Z0-9._-]{1,12}$/);
const escaped = (text: string): string =>
  encodeURIComponent(text).replace(/[!'()*]/g, (c) => `%${c.charCodeAt(0).toString(16).toUpperCase()}`);

test("every request is signed as AWS's signer signs it", async () => {
  const requests = fc.record({
    method: fc.constantFrom("GET", "PUT", "POST", "DELETE"),
    path: fc.array(word, { minLength: 1, maxLength: 4 }).map((parts) => `/bucket/${parts.join("/")}`),
    query: fc.dictionary(
      fc.constantFrom("list-type", "prefix", "start-after", "max-keys", "uploads"),
      fc.string({ maxLength: 20 }),
    ),
    range: fc.option(fc.nat().map((start) => `bytes=${start}-${start + 10}`)),
    isConditional: fc.boolean(),
    token: fc.option(word),
    secret: fc.stringMatching(/^[a-zA-Z0-9/+]{8,90}$/),
    nowMs: fc.integer({ min: 0, max: 4e12 }),
  });
  await fc.assert(
    fc.asyncProperty(requests, async ({ method, path, query, range, isConditional, token, secret, nowMs }) => {
      const credentials = { accessKeyId: "AKIDEXAMPLE", secretAccessKey: secret, sessionToken: token ?? undefined };
      const headers: Record<string, string> = {
        host: "host:9000",
        "user-agent": "batchweave",
        "x-amz-content-sha256": "UNSIGNED-PAYLOAD",
        ...(range !== null && { range }),
        ...(isConditional && { "if-none-match": "*" }),
      };
      const theirs = new SignatureV4({
        service: "s3",
        region: place.region,
        credentials: credentials as { accessKeyId: string; secretAccessKey: string },
        sha256: NodeSha256 as never,
        uriEscapePath: false,
        applyChecksum: false,
      });
      const unsigned = { protocol: "https:", hostname: "host", method, path, query, headers };
      const { headers: expected } = (await theirs.sign(unsigned as never, {
        signingDate: new Date(nowMs),
      })) as unknown as {
        headers: Record<string, string>;
      };
      const ours = new S3Signer(place, { ...systemEnv, now: () => nowMs }, credentials, {});
      const own = { ...headers };
      const text = Object.entries(query).map(([name, value]) => `${escaped(name)}=${escaped(value)}`);
      ours.sign({ method, path, query: text.sort().join("&"), headers: own }, await ours.credentials());
      expect(own["authorization"]).toBe(expected["authorization"]);
      expect(own["x-amz-date"]).toBe(expected["x-amz-date"]);
    }),
  );
});

test("credentials that expire are asked for again in time, and by one request for all", async () => {
  const nowMs = 0;
  const environment = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b", AWS_SESSION_TOKEN: "t" };
  const signer = new S3Signer(place, { ...systemEnv, now: () => nowMs }, undefined, environment);
  expect(await signer.credentials()).toEqual({ accessKeyId: "a", secretAccessKey: "b", sessionToken: "t" });
  expect(signer.credentials()).not.toBeInstanceOf(Promise);
});
