/**
 * Property: a store whose package is not installed says in one sentence what to install, and users of other stores do not pay for it.
 * Method: the built command in a process that finds none of the optional packages.
 */
import { beforeAll, expect, test } from "vitest";
import { buildIfStale, start } from "../cli/command-line.js";

const hook = `export async function resolve(name, context, next) {
  if (!/^@(azure|google-cloud|aws-sdk|smithy)[/]/.test(name)) return next(name, context);
  throw Object.assign(new Error("Cannot find package"), { code: "ERR_MODULE_NOT_FOUND" });
}`;
const asUrl = (code: string): string => `data:text/javascript;base64,${Buffer.from(code).toString("base64")}`;
const register = asUrl(`import { register } from "node:module"; register(${JSON.stringify(asUrl(hook))});`);

/** None of the sources of credentials that the machine of the test may have. */
const bare = { NODE_OPTIONS: `--import ${register}`, AWS_EC2_METADATA_DISABLED: "true", AWS_PROFILE: "none" };

beforeAll(() => buildIfStale());

test.each([
  ["az://container/run", "@azure/storage-blob", { AZURE_STORAGE_ACCOUNT: "a", AZURE_STORAGE_KEY: "aGk=" }],
  ["gs://bucket/run", "@google-cloud/storage", {}],
  ["s3://bucket/run", "@aws-sdk/credential-provider-node", {}],
])("%s without %s", async (uri, name, environment) => {
  const { status, error } = await start(["info", uri, "--json"], { ...bare, ...environment }).ended;
  expect(error).toMatchObject({ code: "MISSING_PACKAGE", remedy: "fix" });
  expect(error?.message).toBe(`${name} is not installed. Install it with: npm install ${name}`);
  expect(status).toBe(2);
});

test("keys in the environment need no package", async () => {
  const keys = { AWS_ACCESS_KEY_ID: "a", AWS_SECRET_ACCESS_KEY: "b", AWS_ENDPOINT_URL: "http://127.0.0.1:9" };
  const { error } = await start(["info", "s3://bucket/run", "--json"], { ...bare, AWS_PROFILE: "", ...keys }).ended;
  expect(error).toMatchObject({ code: "STORE_UNAVAILABLE" });
});
