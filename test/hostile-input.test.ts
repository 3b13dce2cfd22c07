/**
 * Property: what a hostile store, folder or argument holds is refused with a code and a sentence, in bounded time and memory, and no secret and
 * no control character reaches the output. Method: a table that names each case; the built command on a folder or a server prepared for it.
 * What stored objects may hold is in the conformance family "hostile", which both languages run.
 */
import { execFileSync } from "node:child_process";
import { readFileSync, renameSync, rmSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { createServer, type IncomingMessage, type Server, type ServerResponse } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { sealJson } from "../src/format/index.js";
import { buildIfStale, type Ended, must, start, Workspace } from "./cli/command-line.js";

const space = new Workspace();
const servers: Server[] = [];
beforeAll(buildIfStale);
afterAll(() => {
  for (const server of servers) {
    server.closeAllConnections();
    server.close();
  }
  space.remove();
});

/** A namespace of three batches, and the paths of its files. */
async function victim(name: string): Promise<{ uri: string; manifest: string; namespaceJson: string; folder: string }> {
  const uri = space.uri(name);
  await must("create", uri, "--rows", "1");
  await must("produce", uri, "--id", "p", "--batches", "3", "--bytes", "10", "--samples", "1");
  const files = Object.keys(space.snapshot(name));
  const find = (pattern: RegExp): string =>
    files
      .filter((file) => pattern.test(file))
      .sort()
      .at(-1) as string;
  const manifest = find(/\/manifest\/\d{20}\.json$/);
  return { uri, manifest, namespaceJson: space.path(name, "namespace.json"), folder: manifest.replace(/\/[^/]*$/, "") };
}

/** Changes a stored JSON object and seals it again. */
function rewrite(path: string, change: (fields: Record<string, unknown>) => object): void {
  const { kind, namespace, crc32: _, format: __, ...fields } = JSON.parse(readFileSync(path, "utf8"));
  writeFileSync(path, sealJson(kind, namespace, { ...fields, ...change(fields) }));
}

/** Ends a command that would not end, so that a failure is told as one. */
async function ended(args: readonly string[], env: Record<string, string> = {}): Promise<Ended> {
  const running = start(args, env);
  const timer = setTimeout(() => running.child.kill("SIGKILL"), 240_000);
  try {
    return await running.ended;
  } finally {
    clearTimeout(timer);
  }
}

const trick = "\u001b]0;owned\u0007\u009b2J\u202e";
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const raw = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u202a-\u202e]/;

type Prepared = Awaited<ReturnType<typeof victim>>;

const folders: readonly [name: string, prepare: (v: Prepared) => void, code: string, says: RegExp][] = [
  ["a pipe in place of a manifest", (v) => pipe(v.manifest), "UNSAFE_STORE", /is a pipe or a socket, not a file/],
  ["a pipe in place of namespace.json", (v) => pipe(v.namespaceJson), "UNSAFE_STORE", /is a pipe or a socket/],
  [
    "a link in place of namespace.json",
    (v) => {
      renameSync(v.namespaceJson, `${v.namespaceJson}.moved`);
      symlinkSync(`${v.namespaceJson}.moved`, v.namespaceJson);
    },
    "NO_NAMESPACE",
    /There is no namespace/,
  ],
  [
    "a link in place of a folder",
    (v) => {
      renameSync(v.folder, `${v.folder}.moved`);
      symlinkSync(`${v.folder}.moved`, v.folder);
    },
    "UNSAFE_STORE",
    /is a link or a pipe where a folder must be/,
  ],
  ["a manifest of gigabytes", (v) => truncateSync(v.manifest, 6 * 2 ** 30), "LIMIT", /has 6442450944 bytes/],
  [
    "a namespace.json of gigabytes",
    (v) => truncateSync(v.namespaceJson, 6 * 2 ** 30),
    "LIMIT",
    /not what its name says/,
  ],
  ["10^9 rows", (v) => rewrite(v.namespaceJson, () => ({ grid: { rows: 1e9, chunks: 1 } })), "CORRUPT", /too large/],
  [
    "steps.end near 2^53",
    (v) =>
      rewrite(v.manifest, () => ({
        tail: { start: 2 ** 53 - 64, batches: [] },
        steps: { trim: 0, end: 2 ** 53 - 64 },
      })),
    "CORRUPT",
    /is corrupt|in no index object/,
  ],
  [
    "a name twice",
    (v) => {
      const text = readFileSync(v.manifest, "utf8").replace('"closed":false', '"closed":false,"closed":false');
      writeFileSync(v.manifest, text);
    },
    "CORRUPT",
    /is corrupt/,
  ],
  [
    "a reference that leads out of the folder",
    (v) => rewrite(v.manifest, () => ({ tables: [[1, "../../../../etc/passwd", 0, 1]] })),
    "CORRUPT",
    /is not an id/,
  ],
  [
    "an HTML page in place of a manifest",
    (v) => writeFileSync(v.manifest, "<html>Sign in</html>".repeat(9)),
    "CORRUPT",
    /checksum/,
  ],
];

function pipe(path: string): void {
  rmSync(path);
  execFileSync("mkfifo", [path]);
}

describe("a folder that somebody prepared", () => {
  test.each(folders)("%s", async (name, prepare, code, says) => {
    const prepared = await victim(name.replace(/[^a-z0-9]/gi, "-"));
    prepare(prepared);
    const found = await ended(["preview", prepared.uri, "--step", "1"]);
    expect([found.status, found.stderr]).toEqual([2, expect.stringContaining(`error[${code}]`)]);
    expect(found.stderr).toMatch(says);
  });

  test("a namespace inside another's folders", async () => {
    const { uri } = await victim("outer");
    const found = await ended(["create", `${uri}/%6danifest/x`, "--rows", "1"]);
    expect([found.status, found.stderr]).toEqual([2, expect.stringContaining("error[NOT_EMPTY]")]);
  });
});

describe("a terminal's escapes are never printed raw", () => {
  test.each([
    [
      "in a manifest, by info",
      ["info"],
      (v: Prepared) => rewrite(v.manifest, () => ({ commit: { id: "v0u1t2s3r4q5", by: trick, time: 1 } })),
    ],
    [
      "in a field of a manifest, by info --json",
      ["info", "--json"],
      (v: Prepared) => rewrite(v.manifest, () => ({ commit: { id: "v0u1t2s3r4q5", by: trick, time: 1 } })),
    ],
    [
      "in what a failure repeats",
      ["info"],
      (v: Prepared) => rewrite(v.namespaceJson, () => ({ order: { kind: trick } })),
    ],
    [
      "in what a failure repeats, --json",
      ["info", "--json"],
      (v: Prepared) => rewrite(v.namespaceJson, () => ({ order: { kind: trick } })),
    ],
  ] as const)("%s", async (name, [command, ...more], prepare) => {
    const prepared = await victim(name.replace(/[^a-z0-9]/gi, "-"));
    prepare(prepared);
    const { stdout, stderr } = await ended([command, prepared.uri, ...more]);
    expect(stdout + stderr).toContain("owned");
    expect(raw.test(stdout + stderr)).toBe(false);
  });

  test("in the name of a sample, by inspect and find", async () => {
    const { uri } = await victim("samples");
    for (const args of [
      ["find", uri, "--sample", trick],
      ["info", `${uri}${trick}`],
      ["produce", uri, "--id", trick],
    ]) {
      const { stdout, stderr } = await ended(args);
      expect(raw.test(stdout + stderr)).toBe(false);
    }
  });
});

describe("a key in a URI is never repeated", () => {
  test.each([
    "s3://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/x",
    "s3://AKIAEXAMPLE:wJalr/XUtn/FEMI@bucket/x",
    "s3://AKIAEXAMPLE:wJalrXUtnFEMI/bucket",
    "s3://bucket/x?secret=wJalrXUtnFEMI",
    "gs://AKIAEXAMPLE:wJalrXUtnFEMI@bucket/x",
    "az://AKIAEXAMPLE:wJalrXUtnFEMI@container/x",
    "ftp://AKIAEXAMPLE:wJalrXUtnFEMI@host/x",
    "//AKIAEXAMPLE:wJalrXUtnFEMI@bucket/x",
    "file://AKIAEXAMPLE:wJalrXUtnFEMI@host/x",
  ])("%s", async (uri) => {
    for (const args of [
      ["info", uri],
      ["info", uri, "--json"],
    ]) {
      const { status, stdout, stderr } = await ended(args);
      expect(status).toBe(2);
      expect(stdout + stderr).not.toMatch(/wJalr|XUtn|FEMI/);
    }
  });
});

type Handler = (request: IncomingMessage, response: ServerResponse) => void;

describe("a server that means harm", () => {
  const secret = {
    AWS_ACCESS_KEY_ID: "AKIAHOSTILEHOSTILE00",
    AWS_SECRET_ACCESS_KEY: "sEcReT/KeY0123456789",
    AWS_SESSION_TOKEN: "tOkEn0123456789",
  };
  async function serve(handler: Handler): Promise<number> {
    const server = createServer(handler);
    servers.push(server);
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    return (server.address() as AddressInfo).port;
  }
  const info = async (port: number): Promise<Ended> =>
    await ended(["info", "s3://hostile-bucket/x"], {
      ...secret,
      AWS_ENDPOINT_URL: `http://127.0.0.1:${port}`,
      AWS_REGION: "us-east-1",
    });

  const answers: readonly [name: string, handler: Handler, says: RegExp][] = [
    [
      "a 403 that echoes the request's headers",
      (request, response) => {
        response.writeHead(403, { "content-type": "text/plain" }).end(`denied: ${JSON.stringify(request.headers)}`);
      },
      /error\[STORE_/,
    ],
    [
      "a 400 that echoes them as S3's own error",
      (request, response) => {
        const echo = Object.values(request.headers).join(" ").replace(/[<>&]/g, " ");
        response.writeHead(400).end(`<Error><Code>Bad</Code><Message>${echo}</Message></Error>`);
      },
      /error\[/,
    ],
    [
      "an endless 200",
      (_, response) => {
        response.writeHead(200, { etag: '"a"', "transfer-encoding": "chunked" });
        const more = (): void => {
          while (response.write(Buffer.alloc(1 << 20, 0x20)));
        };
        response.on("drain", more);
        more();
      },
      /error\[LIMIT\].*at most 67108864 can be right/,
    ],
    [
      "an HTML page of a proxy",
      (_, response) => {
        response.writeHead(200, { "content-type": "text/html" }).end("<!doctype html><html>Sign in</html>");
      },
      /error\[STORE_UNAVAILABLE\].*HTML page/,
    ],
  ];
  test.each(answers)("%s", async (_, handler, says) => {
    const found = await info(await serve(handler));
    expect(found.status).not.toBe(0);
    expect(found.stderr).toMatch(says);
    for (const value of Object.values(secret)) expect(found.stdout + found.stderr).not.toContain(value);
    expect(found.stderr).not.toMatch(/Signature=[0-9a-f]{8}/);
  });

  test("a 307 to another host gets nothing", async () => {
    const asked: string[] = [];
    const other = await serve((request, response) => {
      asked.push(JSON.stringify(request.headers));
      response.writeHead(404).end();
    });
    const port = await serve((_, response) => {
      response.writeHead(307, { location: `http://localhost:${other}/x` }).end();
    });
    const found = await info(port);
    expect(found.status).not.toBe(0);
    expect(asked).toEqual([]);
  });
});
