/**
 * Property: credentials are found wherever AWS's own tools find them, and are used. Method: the built command in processes that have one source
 * each: profile, a program, SSO, web identity, container, instance; the services behind them answered on loopback; the key that each request to S3
 * was signed with.
 */
import { createHash } from "node:crypto";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, expect, test } from "vitest";
import { startTinyS3, type TinyS3 } from "../../harness/tiny-s3.js";
import { buildIfStale, start } from "../cli/command-line.js";

const folder = mkdtempSync(join(tmpdir(), "batchweave-credentials-"));
let s3: TinyS3;
let services: Server;
let address: string;

/** What the services of AWS hand out; each source has a key of its own. */
function answerOf(method: string, path: string): string {
  const expiration = new Date(Date.now() + 3_600_000).toISOString();
  const lent = (id: string): string =>
    JSON.stringify({
      Code: "Success",
      AccessKeyId: id,
      SecretAccessKey: "s",
      Token: `token-${id}`,
      Expiration: expiration,
    });
  if (path.startsWith("/federation/credentials")) {
    const keys = { accessKeyId: "AKIDSSO", secretAccessKey: "s", sessionToken: "token-AKIDSSO" };
    return JSON.stringify({ roleCredentials: { ...keys, expiration: Date.parse(expiration) } });
  }
  if (path.startsWith("/container")) return lent("AKIDCONTAINER");
  if (method === "PUT" && path.endsWith("/api/token")) return "imds-token";
  if (path.endsWith("/security-credentials/")) return "role";
  if (path.endsWith("/security-credentials/role")) return lent("AKIDINSTANCE");
  const keys = `<AccessKeyId>AKIDWEB</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>token-AKIDWEB</SessionToken>`;
  const credentials = `<Credentials>${keys}<Expiration>${expiration}</Expiration></Credentials>`;
  return `<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleWithWebIdentityResult>${credentials}</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>`;
}

beforeAll(async () => {
  buildIfStale();
  s3 = await startTinyS3();
  services = createServer((request, response) => {
    request.resume().on("end", () => response.end(answerOf(request.method ?? "", request.url ?? "")));
  });
  await new Promise<void>((resolve) => services.listen(0, "127.0.0.1", resolve));
  address = `http://127.0.0.1:${(services.address() as AddressInfo).port}`;
  writeFileSync(join(folder, "token"), "a web identity token");
  writeFileSync(
    join(folder, "credentials"),
    "[kept]\naws_access_key_id = AKIDPROFILE\naws_secret_access_key = s\naws_session_token = token-AKIDPROFILE\n",
  );
  const lent = { Version: 1, AccessKeyId: "AKIDPROGRAM", SecretAccessKey: "s", SessionToken: "token-AKIDPROGRAM" };
  writeFileSync(join(folder, "program"), JSON.stringify(lent));
  writeFileSync(
    join(folder, "config"),
    `[profile made]\ncredential_process = cat ${join(folder, "program")}\n${ssoProfile("in", "here")}${ssoProfile("out", "nowhere")}`,
  );
  // What `aws sso login` leaves behind.
  const cache = join(folder, ".aws/sso/cache");
  mkdirSync(cache, { recursive: true });
  const token = { accessToken: "an SSO token", expiresAt: new Date(Date.now() + 3_600_000).toISOString() };
  writeFileSync(join(cache, `${createHash("sha1").update("here").digest("hex")}.json`), JSON.stringify(token));
});

/** A profile that logs in through SSO, and its session. */
function ssoProfile(name: string, session: string): string {
  const role = "sso_account_id = 123456789012\nsso_role_name = train\n";
  const start = "sso_start_url = https://example.com/start\nsso_region = us-east-1\n";
  return `[profile ${name}]\nsso_session = ${session}\n${role}[sso-session ${session}]\n${start}`;
}

afterAll(async () => {
  await s3.stop();
  services.closeAllConnections();
  services.close();
  rmSync(folder, { recursive: true, force: true });
});

const sources: [string, string, () => Record<string, string>][] = [
  ["a profile", "AKIDPROFILE", () => ({ AWS_PROFILE: "kept" })],
  ["a program that a profile names", "AKIDPROGRAM", () => ({ AWS_PROFILE: "made" })],
  ["SSO", "AKIDSSO", () => ({ AWS_PROFILE: "in", HOME: folder, AWS_ENDPOINT_URL_SSO: address })],
  [
    "web identity",
    "AKIDWEB",
    () => ({
      AWS_WEB_IDENTITY_TOKEN_FILE: join(folder, "token"),
      AWS_ROLE_ARN: "arn:aws:iam::123456789012:role/train",
      AWS_ENDPOINT_URL_STS: address,
    }),
  ],
  ["a container", "AKIDCONTAINER", () => ({ AWS_CONTAINER_CREDENTIALS_FULL_URI: `${address}/container` })],
  [
    "an instance",
    "AKIDINSTANCE",
    () => ({ AWS_EC2_METADATA_SERVICE_ENDPOINT: address, AWS_EC2_METADATA_DISABLED: "false" }),
  ],
];

/** The command in a process that has this source and no other. */
function ask(environment: Record<string, string>): ReturnType<typeof start>["ended"] {
  return start(["info", "s3://bucket/run", "--json"], {
    AWS_ACCESS_KEY_ID: "",
    AWS_SECRET_ACCESS_KEY: "",
    AWS_CONFIG_FILE: join(folder, "config"),
    AWS_SHARED_CREDENTIALS_FILE: join(folder, "credentials"),
    AWS_EC2_METADATA_DISABLED: "true",
    AWS_REGION: "us-east-1",
    AWS_ENDPOINT_URL_S3: s3.endpoint,
    ...environment,
  }).ended;
}

test.each(sources)("from %s", async (_name, key, environment) => {
  const before = s3.requests.length;
  const { error } = await ask(environment());
  expect(error).toMatchObject({ code: "NO_NAMESPACE" });
  const [request] = s3.requests.slice(before);
  expect(request?.headers.authorization).toContain(`Credential=${key}/`);
  expect(request?.headers["x-amz-security-token"]).toBe(`token-${key}`);
});

test("a profile with SSO that nobody logged in to: one sentence with the command", async () => {
  const before = s3.requests.length;
  const { error } = await ask({ AWS_PROFILE: "out", HOME: folder });
  expect(error).toMatchObject({
    code: "STORE_DENIED",
    message:
      'No session for s3://bucket/run: the AWS profile "out" uses SSO, and its session is missing or has expired; run `aws sso login --profile out`.',
  });
  expect(s3.requests).toHaveLength(before);
});
