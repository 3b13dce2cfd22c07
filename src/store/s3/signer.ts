/**
 * AWS Signature Version 4, by hand. AWS's own signer costs more than all the rest of a request: less by its 37 microseconds than by what it
 * leaves to the garbage collector between large buffers (docs/design/0005-s3-requests.md has the figures). The tests compare with AWS's signer, request by
 * request. Credentials do come from AWS's own package, loaded when the environment does not simply hold them.
 */
import { createHash, createHmac } from "node:crypto";
import { type Env, isoDate } from "../../env/index.js";
import { BatchWeaveError } from "../../errors.js";
import { loadPeer } from "../peer.js";
import type { S3Credentials, S3Place } from "./s3-place.js";

/** What is signed: everything but the user agent. Header names are in lower case. */
interface Unsigned {
  readonly method: string;
  /** Escaped as S3 wants it. */
  readonly path: string;
  /** Escaped too, its parts sorted, without the question mark. */
  readonly query: string;
  readonly headers: Record<string, string>;
}

/** Credentials that end one day. */
interface Lent extends S3Credentials {
  readonly expiration?: { getTime(): number } | undefined;
}

/** Renewed this long before they expire. */
const renewedBeforeMs = 5 * 60_000;

/** Finds credentials and keeps them until shortly before they expire. */
export class S3Signer {
  readonly #place: S3Place;
  readonly #env: Env;
  readonly #given: S3Credentials | undefined;
  readonly #environment: NodeJS.ProcessEnv;
  #credentials: Lent | undefined;
  #search: Promise<Lent> | undefined;
  #dated = { second: -1, text: "" };
  /** The key of one day, derived from the secret. */
  #key: { readonly day: string; readonly of: S3Credentials; readonly bytes: Uint8Array } | undefined;

  constructor(place: S3Place, env: Env, given: S3Credentials | undefined, environment: NodeJS.ProcessEnv) {
    this.#place = place;
    this.#env = env;
    this.#given = given;
    this.#environment = environment;
  }

  /** Credentials, at once if there are good ones. */
  credentials(): S3Credentials | Promise<S3Credentials> {
    const found = this.#credentials;
    if (found && (!found.expiration || found.expiration.getTime() - this.#env.now() > renewedBeforeMs)) return found;
    this.#search ??= this.#find().finally(() => {
      this.#search = undefined;
    });
    return this.#search;
  }

  async #find(): Promise<Lent> {
    try {
      const found = this.#given ?? environmentCredentials(this.#environment) ?? (await standardChain());
      assertSendable(this.#place, found);
      this.#credentials = found;
      return found;
    } catch (e) {
      if (e instanceof BatchWeaveError) throw e;
      throw credentialsError(this.#place, e, this.#environment["AWS_PROFILE"] || "default");
    }
  }

  /** Adds date, session token and authorization to the request's headers. */
  sign(request: Unsigned, credentials: S3Credentials): void {
    const { method, path, query, headers } = request;
    const date = this.#date(this.#env.now());
    headers["x-amz-date"] = date;
    if (credentials.sessionToken !== undefined) headers["x-amz-security-token"] = credentials.sessionToken;
    const names = Object.keys(headers).sort();
    let canonical = `${method}\n${path}\n${query}\n`;
    let signed = "";
    for (const name of names) {
      if (name === "user-agent") continue;
      canonical += `${name}:${headers[name]}\n`;
      signed += signed === "" ? name : `;${name}`;
    }
    canonical += `\n${signed}\n${headers["x-amz-content-sha256"]}`;
    const scope = `${date.slice(0, 8)}/${this.#place.region}/s3/aws4_request`;
    const digest = createHash("sha256").update(canonical).digest("hex");
    const key = this.#signingKey(date.slice(0, 8), credentials);
    const signature = createHmac("sha256", key).update(`AWS4-HMAC-SHA256\n${date}\n${scope}\n${digest}`).digest("hex");
    headers["authorization"] =
      `AWS4-HMAC-SHA256 Credential=${credentials.accessKeyId}/${scope}, SignedHeaders=${signed}, Signature=${signature}`;
  }

  /** `20110226T160730Z`. Requests come many in a second, so the last one is kept. */
  #date(nowMs: number): string {
    const second = Math.floor(nowMs / 1_000);
    if (this.#dated.second !== second) this.#dated = { second, text: isoDate(nowMs).replace(/[-:]|\.\d+/g, "") };
    return this.#dated.text;
  }

  #signingKey(day: string, credentials: S3Credentials): Uint8Array {
    if (this.#key?.day === day && this.#key.of === credentials) return this.#key.bytes;
    let bytes: Uint8Array = new TextEncoder().encode(`AWS4${credentials.secretAccessKey}`);
    for (const part of [day, this.#place.region, "s3", "aws4_request"]) {
      bytes = createHmac("sha256", bytes).update(part).digest();
    }
    this.#key = { day, of: credentials, bytes };
    return bytes;
  }
}

/** A line break at the end is what a key read from a file often has. No header can carry it, and a secret with one signs wrongly. */
function assertSendable(place: S3Place, credentials: S3Credentials): void {
  const names = { accessKeyId: "access key", secretAccessKey: "secret key", sessionToken: "session token" } as const;
  for (const name of ["accessKeyId", "secretAccessKey", "sessionToken"] as const) {
    if (!/[^\x21-\x7e]/.test(credentials[name] ?? "")) continue;
    throw new BatchWeaveError(
      "STORE_DENIED",
      `The ${names[name]} for ${place.uri} holds a space, a line break or another character that no key has; set it again without it.`,
      { uri: place.uri },
    );
  }
}

/** As AWS's chain would: a profile that is named wins over keys in the environment. */
function environmentCredentials(environment: NodeJS.ProcessEnv): S3Credentials | undefined {
  const [accessKeyId, secretAccessKey] = [environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]];
  if (!accessKeyId || !secretAccessKey || environment["AWS_PROFILE"]) return undefined;
  return { accessKeyId, secretAccessKey, sessionToken: environment["AWS_SESSION_TOKEN"] || undefined };
}

interface CredentialsModule {
  defaultProvider(settings?: object): () => Promise<Lent>;
}

/** Profile, SSO, web identity, container, instance. The package is not there to compile against: it is optional. */
async function standardChain(): Promise<Lent> {
  const { defaultProvider } = await loadPeer<CredentialsModule>("@aws-sdk/credential-provider-node");
  return defaultProvider()();
}

/** The packages' own messages name the profile or the source that failed, never a secret. The error itself may hold more, so it is left out. */
function credentialsError(place: S3Place, e: unknown, profile: string): BatchWeaveError {
  const said = (e instanceof Error ? e.message.split("\n")[0]?.slice(0, 200) : "") ?? "";
  // The package has a sentence for each way in which a login can be missing; all name the same remedy.
  if (/aws sso login/.test(said)) {
    return new BatchWeaveError(
      "STORE_DENIED",
      `No session for ${place.uri}: the AWS profile "${profile}" uses SSO, and its session is missing or has expired; run \`aws sso login --profile ${profile}\`.`,
      { uri: place.uri, profile },
    );
  }
  return new BatchWeaveError(
    "STORE_DENIED",
    /expired/i.test(said)
      ? `the credentials for ${place.uri} have expired (${said}); renew them`
      : `no credentials for ${place.uri} (${said}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role`,
    { uri: place.uri },
  );
}
