/** Signatures and credentials, both from AWS's own packages, which are loaded by the first request. */
import { createHash, createHmac } from "node:crypto";
import { BatchWeaveError } from "../errors.js";
import { loadPeer } from "./peer.js";
import type { S3Credentials, S3Place } from "./s3-place.js";

/** Headers to sign, of one request. */
export interface Unsigned {
  readonly method: string;
  readonly path: string;
  readonly query: Readonly<Record<string, string>>;
  readonly headers: Record<string, string>;
}

/** Adds what makes a request ours: date, session token, authorization. */
export type Sign = (request: Unsigned) => Promise<Record<string, string>>;

/** What we use of `@smithy/signature-v4`; typed here, so that the package need not be there to compile. */
interface SignerModule {
  SignatureV4: new (settings: object) => { sign(request: object): Promise<{ headers: Record<string, string> }> };
}

interface CredentialsModule {
  defaultProvider(settings?: object): () => Promise<S3Credentials>;
}

/** The shape in which the signer wants its hash. */
class Sha256 {
  readonly #hash: ReturnType<typeof createHash> | ReturnType<typeof createHmac>;

  constructor(secret?: Uint8Array | string) {
    this.#hash = secret === undefined ? createHash("sha256") : createHmac("sha256", secret);
  }

  update(data: Uint8Array | string): void {
    this.#hash.update(data);
  }

  async digest(): Promise<Uint8Array> {
    return this.#hash.digest();
  }
}

/** Loads what is needed and gives the function that signs. Credentials are looked up by the first request and renewed before they expire. */
export async function loadSigner(place: S3Place, given: S3Credentials | undefined): Promise<Sign> {
  const { SignatureV4 } = await load<SignerModule>("@smithy/signature-v4");
  const credentials = given ?? (await standardChain());
  const signer = new SignatureV4({
    service: "s3",
    region: place.region,
    credentials,
    sha256: Sha256,
    uriEscapePath: false,
    applyChecksum: false,
  });
  const base = { protocol: place.isTls ? "https:" : "http:", hostname: place.hostname };
  return async (request) => {
    try {
      return (await signer.sign({ ...base, ...request })).headers;
    } catch (e) {
      throw credentialsError(place, e);
    }
  };
}

async function standardChain(): Promise<() => Promise<S3Credentials>> {
  const { defaultProvider } = await load<CredentialsModule>("@aws-sdk/credential-provider-node");
  return defaultProvider();
}

async function load<T>(name: string): Promise<T> {
  const both = "@smithy/signature-v4 @aws-sdk/credential-provider-node";
  return (await loadPeer(name, both, () => import(name))) as T;
}

/** The packages' own messages name the profile or the source that failed, never a secret. The error itself may hold more, so it is left out. */
function credentialsError(place: S3Place, e: unknown): BatchWeaveError {
  const said = e instanceof Error ? e.message.split("\n")[0]?.slice(0, 200) : "";
  const isExpired = /expired/i.test(said ?? "");
  return new BatchWeaveError(
    "STORE_DENIED",
    isExpired
      ? `the credentials for ${place.uri} have expired (${said}); renew them, for instance with \`aws sso login\``
      : `no credentials for ${place.uri} (${said}); set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or AWS_PROFILE, or run with a role`,
    { uri: place.uri },
  );
}
