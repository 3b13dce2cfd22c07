/**
 * Property: whatever is wrong with place, rights or network is told in one sentence with the remedy, within the timeout, and no secret is in it.
 * Method: a server that gives the answers AWS gives (or nothing), and every mistake one can make in settings and environment.
 */
import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import { type AddressInfo, createServer as createTcpServer, type Server, type Socket } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createServer as createTlsSocketServer } from "node:tls";
import { inspect } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { BatchWeaveError } from "../../src/errors.js";
import { createNamespace, openNamespace, openStore, type S3StoreSettings } from "../../src/index.js";
import { openS3Store } from "../../src/store/s3/s3-store.js";
import { bytes } from "../store/conformance.js";

const secrets = {
  accessKeyId: "AKIASECRETKEYID",
  secretAccessKey: "very-secret-key",
  sessionToken: "very-secret-token",
};
const servers: Server[] = [];
const sockets: Socket[] = [];
afterEach(async () => {
  for (const server of servers.splice(0)) {
    for (const socket of sockets.splice(0)) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  }
});

async function listen(server: Server): Promise<number> {
  servers.push(server);
  server.on("connection", (socket: Socket) => sockets.push(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return (server.address() as AddressInfo).port;
}

/** The error of one call against a server; checked for its shape. */
async function failure(
  endpoint: string,
  call: "get" | "put" | "list" | "delete" | "create" = "get",
  settings: S3StoreSettings = {},
): Promise<BatchWeaveError> {
  const short = { connectTimeoutMs: 1_000, responseTimeoutMs: 1_000, stallTimeoutMs: 1_000 };
  const store = await openStore("s3://train/runs/7b", {
    s3: { endpoint, region: "us-east-1", credentials: secrets, ...short, ...settings },
  });
  const calls = {
    get: () => store.get("k"),
    put: () => store.put("k", bytes("x")),
    create: () => store.create("k", bytes("x")),
    list: () => store.list(""),
    delete: () => store.delete(["k"]),
  };
  const begun = performance.now();
  const e = await calls[call]().catch((error: unknown) => error);
  // Three time-outs of a second; the defaults are ten times as long. A loaded machine takes the rest.
  expect(performance.now() - begun).toBeLessThan(20_000);
  return sentence(e);
}

/** One sentence, one line, a remedy behind a semicolon, and nothing secret even when everything is printed. */
function sentence(e: unknown): BatchWeaveError {
  expect(e).toBeInstanceOf(BatchWeaveError);
  const error = e as BatchWeaveError;
  expect(error.message).toMatch(/^[^\n]+;[^\n]+$/);
  const everything = `${inspect(error, { depth: 10, showHidden: true })}${JSON.stringify(error)}`;
  for (const secret of [...Object.values(secrets), "Signature="]) expect(everything).not.toContain(secret);
  return error;
}

/** A server with one answer. */
async function answering(status: number, body: string, headers: Record<string, string> = {}): Promise<string> {
  const listener: RequestListener = (request, response) => {
    request.resume();
    request.on("end", () => {
      response.writeHead(status, headers);
      response.end(body);
    });
  };
  return `http://127.0.0.1:${await listen(createServer(listener))}`;
}

function xml(code: string, more = ""): string {
  return `<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>${code}</Code><Message>m</Message>${more}<AWSAccessKeyId>AKIASECRETKEYID</AWSAccessKeyId></Error>`;
}

describe("place", () => {
  test("a wrong region is told with the right one", async () => {
    const malformed = await answering(400, xml("AuthorizationHeaderMalformed", "<Region>eu-central-1</Region>"));
    expect(await failure(malformed)).toMatchObject({
      code: "INVALID_ARGUMENT",
      message: expect.stringMatching(/eu-central-1, not us-east-1; set AWS_REGION=eu-central-1/),
    });
    const moved = await answering(301, xml("PermanentRedirect"), { "x-amz-bucket-region": "ap-south-1" });
    for (const call of ["get", "list", "create"] as const) {
      expect((await failure(moved, call)).message).toMatch(/AWS_REGION=ap-south-1/);
    }
  });

  test("a bucket that is not there", async () => {
    const missing = await answering(404, xml("NoSuchBucket"));
    for (const call of ["get", "put", "list", "create", "delete"] as const) {
      expect(await failure(missing, call)).toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringMatching(/no bucket "train".*create it/),
      });
    }
  });

  test.each([
    ["s3://", /does not name a bucket/],
    ["s3:///x", /does not name a bucket/],
    ["s3://user:hunter2@bucket/x", /does not name a bucket/],
    ["s3://bucket/x?region=hunter2", /does not name a bucket/],
    ["s3://My_Bucket/x", /not a bucket's name/],
    ["s3://ab/x", /not a bucket's name/],
    ["s3://bucket/a//b", /The prefix/],
    ["s3://bucket/a/../b", /The prefix/],
    ["s3://bucket/ü", /The prefix/],
    [`s3://bucket/${"x".repeat(121)}`, /at most 120/],
  ])("%s is refused with a hint", async (uri, hint) => {
    const e = sentence(await openStore(uri).catch((error: unknown) => error));
    expect(e).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringMatching(hint) });
    expect(e.message).not.toContain("hunter2");
  });

  test("an endpoint that is no address, or holds a password, is refused and not repeated", async () => {
    for (const endpoint of [
      "localhost:9000",
      "ftp://x",
      "http://user:very-secret-key@host",
      "https://host?token=very-secret-key",
    ]) {
      const e = sentence(await openStore("s3://bucket/x", { s3: { endpoint } }).catch((error: unknown) => error));
      expect(e.code).toBe("INVALID_ARGUMENT");
    }
  });

  test("environment: endpoint, region and addressing are AWS's own variables, the profile's file included", async () => {
    const folder = mkdtempSync(join(tmpdir(), "batchweave-aws-"));
    try {
      const file = join(folder, "config");
      execFileSync("sh", [
        "-c",
        `printf '[default]\\nregion = eu-north-1\\n[profile big]\\nregion=cn-north-1\\n' > ${file}`,
      ]);
      const hostOf = async (environment: NodeJS.ProcessEnv): Promise<string> => {
        const store = await openS3Store(
          "s3://train/x",
          systemEnv,
          { credentials: secrets, connectTimeoutMs: 1 },
          { AWS_CONFIG_FILE: file, ...environment },
        );
        const e = (await store.get("k").catch((error: unknown) => error)) as BatchWeaveError;
        return /https?:\/\/[^\s;]+/.exec(e.message)?.[0] ?? e.message;
      };
      expect(await hostOf({ AWS_ENDPOINT_URL: "http://127.0.0.1:9" })).toBe("http://127.0.0.1:9");
      expect(await hostOf({ AWS_ENDPOINT_URL: "http://127.0.0.2:9", AWS_ENDPOINT_URL_S3: "http://127.0.0.1:9" })).toBe(
        "http://127.0.0.1:9",
      );
      expect(await hostOf({ S3_ENDPOINT_URL: "http://127.0.0.1:8" })).toBe("http://127.0.0.1:8");
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});

describe("rights", () => {
  test("expired credentials, and credentials that are not known", async () => {
    expect((await failure(await answering(400, xml("ExpiredToken")))).message).toMatch(/expired; renew/);
    for (const code of ["InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken"]) {
      const e = await failure(await answering(403, xml(code)), "put");
      expect(e).toMatchObject({
        code: "STORE_DENIED",
        message: expect.stringMatching(/not accepted.*AWS_ACCESS_KEY_ID/),
      });
    }
  });

  test("no credentials anywhere", async () => {
    const endpoint = await answering(200, "");
    const before = { ...process.env };
    for (const name of Object.keys(process.env)) if (name.startsWith("AWS_")) delete process.env[name];
    Object.assign(process.env, {
      AWS_EC2_METADATA_DISABLED: "true",
      AWS_CONFIG_FILE: "/nonexistent",
      AWS_SHARED_CREDENTIALS_FILE: "/nonexistent",
    });
    try {
      const store = await openStore("s3://train/x", { s3: { endpoint, region: "us-east-1" } });
      for (const call of [() => store.get("k"), () => store.create("k", bytes("x"))]) {
        const e = sentence(await call().catch((error: unknown) => error));
        expect(e).toMatchObject({
          code: "STORE_DENIED",
          message: expect.stringMatching(/no credentials.*set AWS_ACCESS_KEY_ID/),
        });
      }
    } finally {
      for (const name of Object.keys(process.env)) if (name.startsWith("AWS_")) delete process.env[name];
      Object.assign(process.env, before);
    }
  });

  test.each([
    ["get", "s3:GetObject on train/runs/7b/\\*, and s3:ListBucket on train"],
    ["put", "s3:PutObject on train/runs/7b/\\*"],
    ["create", "s3:PutObject on train/runs/7b/\\*"],
    ["list", "s3:ListBucket on train"],
    ["delete", "s3:DeleteObject on train/runs/7b/\\*"],
  ] as const)("a denied %s names the permission", async (call, wanted) => {
    const e = await failure(await answering(403, xml("AccessDenied")), call);
    expect(e).toMatchObject({ code: "STORE_DENIED", message: expect.stringMatching(wanted) });
  });

  test("a delete that is denied for one key, under status 200", async () => {
    const body =
      "<DeleteResult><Error><Key>runs/7b/k</Key><Code>AccessDenied</Code><Message>m</Message></Error></DeleteResult>";
    expect(await failure(await answering(200, body), "delete")).toMatchObject({
      code: "STORE_DENIED",
      message: expect.stringMatching(/runs\/7b\/k.*s3:DeleteObject/),
    });
  });

  test("a clock that is off, by how much", async () => {
    const date = new Date(Date.now() + 3_600_000).toUTCString();
    const e = await failure(await answering(403, xml("RequestTimeTooSkewed"), { date }));
    expect(e.message).toMatch(/behind by 3(599|60[0-5]) s.*NTP/);
  });
});

describe("characters that no header can carry", () => {
  test.each([
    ["accessKeyId", /The access key for s3:\/\/train/],
    ["secretAccessKey", /The secret key/],
    ["sessionToken", /The session token/],
  ] as const)("in %s, as a file's last line break: told before anything is sent", async (name, told) => {
    for (const call of ["get", "create"] as const) {
      const credentials = { ...secrets, [name]: `${secrets[name]}\n` };
      const e = await failure("http://127.0.0.1:9", call, { credentials });
      expect(e).toMatchObject({ code: "STORE_DENIED", message: expect.stringMatching(told) });
    }
  });

  test("in the name of a KMS key", async () => {
    const encryption = { kind: "kms", keyId: "arn\nx: y" } as const;
    const e = sentence(await openStore("s3://train/x", { s3: { encryption } }).catch((error: unknown) => error));
    expect(e).toMatchObject({ code: "INVALID_ARGUMENT", message: expect.stringMatching(/The KMS key/) });
  });
});

describe("network", () => {
  test("a page where S3 sends XML", async () => {
    const page = "<!DOCTYPE html><html><body>Welcome to our proxy</body></html>";
    for (const status of [200, 404, 302, 502]) {
      const endpoint = await answering(status, page, { "content-type": "text/html" });
      for (const call of ["get", "list", "put"] as const) {
        expect(await failure(endpoint, call)).toMatchObject({ code: "STORE_UNAVAILABLE" });
      }
    }
    const e = await failure(await answering(200, page), "list");
    expect(e.message).toMatch(/an HTML page where S3 sends XML; check AWS_ENDPOINT_URL/);
    const bad = await failure(await answering(502, page), "get");
    expect(bad.message).toMatch(/answered 502 with an HTML page where S3 sends XML/);
    // Somebody who limits the rate of a real store, before it has answered anything: as patient as with the store itself.
    const busy = await failure(await answering(429, page), "get");
    expect([busy.code, busy.details["isForeign"]]).toEqual(["STORE_UNAVAILABLE", undefined]);
    expect(busy.message).toMatch(/answered 429; try again, with fewer requests at once/);
  });

  test("a gateway's page for every request: opening, creating and probing are told soon", async () => {
    const page = "<!DOCTYPE html><html><body>502 Bad Gateway</body></html>";
    const endpoint = await answering(502, page, { "content-type": "text/html", "retry-after": "120" });
    const storeSettings = { s3: { endpoint, region: "us-east-1", credentials: secrets } };
    const uri = "s3://train/runs/7b";
    const calls = [
      () => openNamespace(uri, { storeSettings }),
      () => createNamespace(uri, { grid: { rows: 1, chunks: 1 } }, { storeSettings }),
    ];
    for (const call of calls) {
      const begun = performance.now();
      const e = sentence(await call().catch((error: unknown) => error));
      expect(e.message).toMatch(/answered 502 with an HTML page/);
      // Retries end after two seconds or so; the page asks for two minutes.
      expect(performance.now() - begun).toBeLessThan(60_000);
    }
  });

  test("half an answer", async () => {
    const cut = await listen(
      createTcpServer((socket) =>
        socket.on("data", () => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\n<?xml")),
      ),
    );
    for (const call of ["get", "list", "put"] as const) {
      expect((await failure(`http://127.0.0.1:${cut}`, call)).message).toMatch(/broke the connection/);
    }
    const e = await failure(
      await answering(200, "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>a"),
      "list",
    );
    expect(e.code).toBe("STORE_UNAVAILABLE");
  });

  test("an object whose length nobody said: where the connection ends, it need not end", async () => {
    const endless = createTcpServer((socket) => {
      socket.on("error", () => {});
      socket.once("data", () => socket.end('HTTP/1.1 200 OK\r\netag: "e"\r\nconnection: close\r\n\r\nhalf of it'));
    });
    const e = await failure(`http://127.0.0.1:${await listen(endless)}`);
    expect(e).toMatchObject({ code: "STORE_UNAVAILABLE", message: expect.stringMatching(/does not say how long/) });
  });

  test("nobody there, nobody answers, not HTTP, a name that does not exist", async () => {
    expect((await failure("http://127.0.0.1:9")).message).toMatch(/nothing listens/);
    const silent = await listen(createTcpServer(() => {}));
    for (const call of ["get", "list", "put", "delete"] as const) {
      expect((await failure(`http://127.0.0.1:${silent}`, call)).message).toMatch(/did not answer within 1 s/);
    }
    const rude = await listen(createTcpServer((socket) => socket.end("220 smtp ready\r\n")));
    const noHttp = await failure(`http://127.0.0.1:${rude}`);
    expect(noHttp).toMatchObject({ code: "STORE_UNAVAILABLE", message: expect.stringMatching(/does not speak HTTP/) });
    expect((await failure("http://no-such-host.invalid")).message).toMatch(/not known|looked up/);
  });

  test("TLS: a server without it, one nobody vouches for, and one vouched for by AWS_CA_BUNDLE's file", async () => {
    const plain = await answering(200, "");
    expect((await failure(plain.replace("http:", "https:"))).message).toMatch(/does not speak TLS/);
    const folder = mkdtempSync(join(tmpdir(), "batchweave-tls-"));
    try {
      const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
      execFileSync(
        "openssl",
        [
          "req",
          "-x509",
          "-newkey",
          "rsa:2048",
          "-nodes",
          "-days",
          "2",
          "-subj",
          "/CN=localhost",
          "-addext",
          "subjectAltName=IP:127.0.0.1,DNS:localhost",
          "-keyout",
          key,
          "-out",
          cert,
        ],
        { stdio: "ignore" },
      );
      const tls = createTlsServer({ key: readFileSync(key), cert: readFileSync(cert) }, (request, response) => {
        request.resume();
        response.writeHead(404).end(xml("NoSuchKey"));
      });
      const endpoint = `https://127.0.0.1:${await listen(tls)}`;
      expect(await failure(endpoint)).toMatchObject({
        code: "INVALID_ARGUMENT",
        message: expect.stringMatching(/not trusted.*AWS_CA_BUNDLE/),
      });
      const store = await openStore("s3://train/x", {
        s3: { endpoint, region: "us-east-1", credentials: secrets, caFile: cert },
      });
      expect(await store.get("k")).toBeUndefined();

      // Keys negotiated anew in the middle of a request: it is sent once all the same.
      let requests = 0;
      const pem = { key: readFileSync(key), cert: readFileSync(cert) };
      const anew = createTlsSocketServer({ ...pem, maxVersion: "TLSv1.2" }, (socket) => {
        socket.on("error", () => {});
        socket.on("data", (bytes) => {
          requests += bytes.toString("latin1").split("PUT /").length - 1;
          socket.renegotiate({}, () => {});
          setTimeout(() => socket.write('HTTP/1.1 200 OK\r\netag: "e"\r\ncontent-length: 0\r\n\r\n'), 100);
        });
      });
      const again = await openStore("s3://train/x", {
        s3: {
          endpoint: `https://127.0.0.1:${await listen(anew)}`,
          region: "us-east-1",
          credentials: secrets,
          caFile: cert,
        },
      });
      expect(await again.create("k", new Uint8Array(10))).toBe("created");
      expect(requests).toBe(1);

      await expect(openStore("s3://train/x", { s3: { endpoint, caFile: join(folder, "none") } })).rejects.toMatchObject(
        { code: "INVALID_ARGUMENT" },
      );
      const noCertificate = join(folder, "notes.txt");
      writeFileSync(noCertificate, "none here");
      const e = await openStore("s3://train/x", { s3: { endpoint, caFile: noCertificate } }).catch((error) => error);
      expect(sentence(e).message).toMatch(/no certificate \(PEM\) in .*notes\.txt; correct AWS_CA_BUNDLE/);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
