/**
 * Property: our reading of HTTP/1.1 is Node's own: whatever pieces an answer comes in, status, headers and body are those that `node:http` finds, and what
 * Node refuses is refused. A connection is used again only when nothing is left on it, and never for more than one request at a time.
 * Method: answers made up byte by byte, cut at random; a server of plain sockets that sends them, read by our client and by Node's.
 */
import { request as nodeRequest } from "node:http";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import fc from "fast-check";
import { afterEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { HttpClient } from "../../src/store/http/http-client.js";
import type { HttpAnswer } from "../../src/store/http/message.js";
import { HttpFailure, HttpTimeout } from "../../src/store/http/message.js";

const servers: Server[] = [];
const clients: HttpClient[] = [];
afterEach(() => {
  for (const client of clients.splice(0)) client.close();
  for (const server of servers.splice(0)) server.close();
});

/** A server that gives every request (they have no body) to `answer`; how many connections it has seen. */
async function serve(answer: (socket: Socket, nth: number) => void): Promise<{ port: number; connections(): number }> {
  let [requests, connections] = [0, 0];
  const server = createServer((socket) => {
    connections++;
    let text = "";
    socket.on("error", () => {});
    socket.on("data", (bytes) => {
      text += bytes.toString("latin1");
      for (let end = text.indexOf("\r\n\r\n"); end >= 0; end = text.indexOf("\r\n\r\n")) {
        text = text.slice(end + 4);
        answer(socket, requests++);
      }
    });
  });
  servers.push(server);
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return { port: (server.address() as AddressInfo).port, connections: () => connections };
}

function open(port: number, connectionsMax = 8, timeoutMs = 1_000): HttpClient {
  const timeouts = { connectTimeoutMs: timeoutMs, responseTimeoutMs: timeoutMs, stallTimeoutMs: timeoutMs };
  const { monotonic } = systemEnv;
  const settings = { origin: `http://127.0.0.1:${port}`, connectionsMax, bodyBytesPerSMin: 1_000, monotonic };
  const client = new HttpClient({ ...settings, ...timeouts, nextTurn: () => systemEnv.sleep(0) });
  clients.push(client);
  return client;
}

const answerBytesMax = 1_000_000;
const get = (client: HttpClient, signal?: AbortSignal): Promise<HttpAnswer> =>
  client.send({ method: "GET", path: "/k", headers: { host: "h" }, answerBytesMax, signal });

/** As Node reads it: undefined when it refuses. */
async function nodeReads(port: number): Promise<{ status: number; etag: unknown; body: string } | undefined> {
  return new Promise((resolve) => {
    const sending = nodeRequest({ host: "127.0.0.1", port, agent: false }, (response) => {
      let body = "";
      response.setEncoding("latin1");
      response.on("data", (piece: string) => {
        body += piece;
      });
      const { statusCode, headers } = response;
      response.on("end", () => resolve({ status: statusCode ?? 0, etag: headers.etag, body }));
      response.on("error", () => resolve(undefined));
    });
    sending.on("error", () => resolve(undefined));
    sending.end();
  });
}

const text = (answer: HttpAnswer): string => Buffer.from(answer.body).toString("latin1");
const chunked = (...chunks: string[]): string =>
  [...chunks, ""].map((chunk) => `${chunk.length.toString(16)}\r\n${chunk}\r\n`).join("");

const good: [string, string, string][] = [
  ["a counted body", 'HTTP/1.1 200 OK\r\netag: "e"\r\ncontent-length: 5\r\n\r\nhello', "hello"],
  ["no body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", ""],
  ["204 without a length", "HTTP/1.1 204 No Content\r\nETag: x\r\n\r\n", ""],
  ["no reason, spaces about values", "HTTP/1.1 206\r\nETag:  x \t\r\ncontent-length:3\r\n\r\nabc", "abc"],
  [
    "chunks",
    `HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n${chunked("hel", "lo", "x".repeat(300))}`,
    `hello${"x".repeat(300)}`,
  ],
  [
    "chunks with extensions and trailers",
    "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;a=b\r\nabc\r\n0\r\nchecksum: 1\r\nb: 2\r\n\r\n",
    "abc",
  ],
  [
    "interim answers",
    "HTTP/1.1 103 Early Hints\r\nlink: x\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
    "ok",
  ],
  ["a body that ends with the connection", "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\nall of it", "all of it"],
  ["HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nold", "old"],
  ["an error", "HTTP/1.1 503 Slow Down\r\ncontent-length: 4\r\nretry-after: 1\r\n\r\nbusy", "busy"],
];

const bad: [string, string][] = [
  ["not HTTP", "SSH-2.0-OpenSSH_9.2\r\n\r\n"],
  ["TLS", "\x15\x03\x01\x00\x02\x02\x46\r\n\r\n"],
  ["HTTP/2", "HTTP/2 200\r\n\r\n"],
  ["a status of two digits", "HTTP/1.1 20 OK\r\n\r\n"],
  ["two lengths", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 4\r\n\r\nabcd"],
  ["a length that is none", "HTTP/1.1 200 OK\r\ncontent-length: -3\r\n\r\nabc"],
  ["the same length twice", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ncontent-length: 3\r\n\r\nabc"],
  ["a length after a line feed", "HTTP/1.1 200 OK\r\ncontent-length:\n3\r\n\r\nabc"],
  ["a length before a line feed", "HTTP/1.1 200 OK\r\ncontent-length: 3\n\r\n\r\nabc"],
  ["a length after a hard space", "HTTP/1.1 200 OK\r\ncontent-length: \xa03\r\n\r\nabc"],
  ["a length before a vertical tab", "HTTP/1.1 200 OK\r\ncontent-length: 3\x0b\r\n\r\nabc"],
  ["no body, of two lengths", "HTTP/1.1 204 OK\r\ncontent-length: 0\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"],
  ["a zero between chunks", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n3;\0\r\nabc\r\n0\r\n\r\n"],
  ["a length and chunks", "HTTP/1.1 200 OK\r\ncontent-length: 3\r\ntransfer-encoding: chunked\r\n\r\nabc"],
  ["a header without a name", "HTTP/1.1 200 OK\r\n: x\r\ncontent-length: 0\r\n\r\n"],
  ["a space before the colon", "HTTP/1.1 200 OK\r\ncontent-length : 0\r\n\r\n"],
  ["a chunk that is longer than it said", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n"],
  ["a chunk without a size", "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nxyz\r\nabc\r\n0\r\n\r\n"],
];

describe("answers", () => {
  test.each(good)("%s: read whole, as Node reads it", async (_name, bytes, body) => {
    const { port } = await serve((socket) => socket.end(bytes, "latin1"));
    const [ours, nodes] = [await get(open(port)), await nodeReads(port)];
    expect({ status: ours.status, etag: ours.headers["etag"], body: text(ours), broken: ours.broken }).toEqual(nodes);
    expect(text(ours)).toBe(body);
  });

  test.each(bad)("%s: refused, as by Node", async (_name, bytes) => {
    const { port } = await serve((socket) => socket.write(bytes, "latin1"));
    const ours = await get(open(port)).then(
      (answer) => answer.broken,
      (e) => e,
    );
    expect(ours).toBeInstanceOf(Error);
    expect(ours instanceof HttpFailure && ours.cause instanceof HttpTimeout).toBe(false);
    expect(await nodeReads(port)).toBeUndefined();
  });

  test("come to the same in whatever pieces", async () => {
    const cases = fc.tuple(fc.constantFrom(...good), fc.array(fc.integer({ min: 1, max: 60 }), { minLength: 1 }));
    await fc.assert(
      fc.asyncProperty(cases, async ([[, bytes, body], sizes]) => {
        const { port } = await serve(async (socket) => {
          socket.setNoDelay(true);
          for (let at = 0, i = 0; at < bytes.length; i++) {
            const size = sizes[i % sizes.length] as number;
            socket.write(bytes.slice(at, at + size), "latin1");
            at += size;
            await systemEnv.sleep(0);
          }
          socket.end();
        });
        const answer = await get(open(port));
        return text(answer) === body && answer.broken === undefined;
      }),
      { numRuns: 40 },
    );
  });

  test("that say too much: heads and lines without an end, and pages of megabytes as errors", async () => {
    const endless: Record<string, string> = {
      head: `HTTP/1.1 200 OK\r\n${`x: ${"y".repeat(1_000)}\r\n`.repeat(100)}`,
      trailer: `HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n0\r\n${`x: ${"y".repeat(1_000)}\r\n`.repeat(100)}`,
      interim: "HTTP/1.1 103 Early Hints\r\n\r\n".repeat(50),
    };
    for (const bytes of Object.values(endless)) {
      const { port } = await serve((socket) => socket.write(bytes));
      const ours = await get(open(port)).catch((e: HttpFailure) => ({ broken: e.cause }));
      expect((ours as { broken: Error }).broken.message).toMatch(/has no end|answered 103/);
    }
    const { port } = await serve((socket) => socket.write(`HTTP/1.1 502 Bad\r\n\r\n${"<p>".repeat(100_000)}`));
    const page = await get(open(port));
    expect([page.status, page.body.byteLength]).toEqual([502, 64 * 1024]);
  });

  test("that fill the space between chunks end after the time of a stall, whatever comes", async () => {
    const { port } = await serve((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5;");
      const timer = setInterval(() => socket.write("x".repeat(10_000)), 5);
      socket.on("close", () => clearInterval(timer));
    });
    expect((await get(open(port, 1, 300))).broken).toMatchObject({ phase: "slow", timeoutMs: 300 });
  });

  test("100 Continue, which nobody asked for, is no answer, and what follows it is none either", async () => {
    const { port } = await serve((socket) => socket.write(`HTTP/1.1 100 Continue\r\n\r\n${good[0]?.[1]}`, "latin1"));
    await expect(get(open(port))).rejects.toMatchObject({ isSent: true, isStale: false, cause: { code: "EBADHTTP" } });
  });

  test("longer than asked for are cut off, whether they say so or not", async () => {
    for (const framing of ["content-length: 99999999999", "transfer-encoding: chunked", "connection: close"]) {
      let sentBytes = 0;
      const { port } = await serve((socket) => {
        const piece = framing.startsWith("transfer") ? `10000\r\n${"x".repeat(65_536)}\r\n` : "x".repeat(65_536);
        const pour = (): void => {
          while (!socket.destroyed && socket.write(piece)) sentBytes += piece.length;
        };
        socket.on("drain", pour);
        socket.write(`HTTP/1.1 200 OK\r\n${framing}\r\n\r\n`);
        pour();
      });
      const answer = await get(open(port));
      expect(answer.broken?.message).toMatch(/more than the 1000000 bytes that were asked for/);
      expect(answer.body.byteLength).toBeLessThanOrEqual(answerBytesMax);
      expect(sentBytes).toBeLessThan(50_000_000);
    }
  });

  test("whose head drips in end with the timeout", async () => {
    const { port } = await serve((socket) => {
      socket.write("HTTP/1.1 200 OK\r\n");
      const timer = setInterval(() => socket.write("x"), 20);
      socket.on("close", () => clearInterval(timer));
    });
    await expect(get(open(port, 1, 300))).rejects.toMatchObject({ cause: { phase: "response", timeoutMs: 300 } });
  });

  test("whose body drips in end after the time of a stall, and keep what came", async () => {
    const { port } = await serve((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n");
      const timer = setInterval(() => socket.write("x"), 20);
      socket.on("close", () => clearInterval(timer));
    });
    const ours = await get(open(port, 1, 300));
    expect(ours.broken).toMatchObject({ phase: "slow", timeoutMs: 300 });
    expect(text(ours)).toMatch(/^x{2,}$/);
  });

  test("whose body comes slowly, but not too slowly, are read to their end", async () => {
    const { port } = await serve((socket) => {
      socket.write("HTTP/1.1 200 OK\r\ncontent-length: 4000\r\n\r\n");
      const timer = setInterval(() => socket.write("x".repeat(100)), 20);
      socket.on("close", () => clearInterval(timer));
    });
    const ours = await get(open(port, 1, 300));
    expect([ours.broken, ours.body.byteLength]).toEqual([undefined, 4_000]);
  });

  test("cut short keep what came and say so", async () => {
    const { port } = await serve((socket) => socket.end("HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf"));
    const ours = await get(open(port));
    expect([text(ours), ours.broken?.message]).toEqual(["half", "the connection ended early"]);
  });
});

describe("connections", () => {
  const ok = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok";

  test("are used again, one request at a time, and no more of them than allowed", async () => {
    const { port, connections } = await serve((socket) => setTimeout(() => socket.write(ok), 2));
    const client = open(port, 3);
    const answers = await Promise.all(Array.from({ length: 30 }, () => get(client)));
    expect(answers.every((answer) => text(answer) === "ok")).toBe(true);
    expect(connections()).toBe(3);
  });

  test.each([
    ["the server says so", "HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nok"],
    ["it is HTTP/1.0", "HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nok"],
    ["the server will close it soon", "HTTP/1.1 200 OK\r\nkeep-alive: timeout=1\r\ncontent-length: 2\r\n\r\nok"],
    ["something follows the answer", `${ok}HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nevil`],
  ])("are not used again when %s", async (_name, bytes) => {
    const { port, connections } = await serve((socket) => socket.write(bytes));
    const client = open(port, 1);
    for (let i = 0; i < 3; i++) expect(text(await get(client))).toBe("ok");
    expect(connections()).toBe(3);
  });

  test("that speak while nobody asks are given up", async () => {
    const { port, connections } = await serve((socket, nth) => {
      socket.write(ok);
      if (nth === 0) setTimeout(() => socket.write(ok.replace("ok", "no")), 20);
    });
    const client = open(port, 1);
    await get(client);
    await systemEnv.sleep(60);
    expect(text(await get(client))).toBe("ok");
    expect(connections()).toBe(2);
  });

  test("an answer that came before it was asked for is none", async () => {
    // As much as one read gives: what follows is read before anything else happens.
    const head = "HTTP/1.1 200 OK\r\ncontent-length: 65000\r\nx: ";
    const full = `${head}${"x".repeat(65_536 - 65_000 - head.length - 4)}\r\n\r\n${"y".repeat(65_000)}`;
    for (let i = 0; i < 20; i++) {
      const { port } = await serve((socket, nth) => socket.write(nth === 0 ? full + ok.replace("ok", "no") : ok));
      const client = open(port, 1);
      const [first, second] = await Promise.allSettled([get(client), get(client)]);
      expect(first.status === "fulfilled" && first.value.body.byteLength).toBe(65_000);
      if (second.status === "fulfilled") expect(text(second.value)).toBe("ok");
      else expect(second.reason).toMatchObject({ isSent: true, isStale: true });
    }
  });

  test("a success that comes before the request was sent is none; a refusal is one", async () => {
    for (const [status, isBroken] of [
      [200, true],
      [412, false],
    ] as const) {
      const server = createServer((socket) => {
        socket.on("error", () => {});
        socket.pause();
        socket.write(`HTTP/1.1 ${status} X\r\netag: "e"\r\ncontent-length: 0\r\n\r\n`);
      });
      servers.push(server);
      await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
      const client = open((server.address() as AddressInfo).port, 1);
      const body = new Uint8Array(64 * 1024 * 1024);
      const headers = { "content-length": String(body.byteLength) };
      const answer = await client.send({ method: "PUT", path: "/k", headers, body, answerBytesMax });
      expect([answer.status, answer.broken !== undefined]).toEqual([status, isBroken]);
    }
  });

  test("that the server closed while they were idle fail as stale, and those that break in use as sent", async () => {
    const { port } = await serve((socket, nth) => (nth === 1 ? socket.resetAndDestroy() : socket.write(ok)));
    const client = open(port, 1);
    await get(client);
    await expect(get(client)).rejects.toMatchObject({ isSent: true, isStale: true });
    expect(text(await get(client))).toBe("ok");
  });

  test("an abort ends a request that waits for one as unsent, and one under way as sent", async () => {
    const { port } = await serve(() => {});
    const client = open(port, 1, 10_000);
    const [first, second] = [new AbortController(), new AbortController()];
    const calls = [get(client, first.signal), get(client, second.signal)];
    await systemEnv.sleep(50);
    second.abort();
    await expect(calls[1]).rejects.toMatchObject({ isSent: false });
    first.abort();
    await expect(calls[0]).rejects.toMatchObject({ isSent: true });
  });

  test("no header can smuggle another", async () => {
    const client = open(9);
    for (const headers of [{ a: "b\r\nc: d" }, { a: "b\nc" }, { a: "b\0" }, { a: "\u0100" }]) {
      await expect(client.send({ method: "GET", path: "/", headers, answerBytesMax })).rejects.toThrow(
        /invalid a header/,
      );
    }
    for (const path of ["/a b", "/a\r\nb", "/\u0100"]) {
      await expect(client.send({ method: "GET", path, headers: {}, answerBytesMax })).rejects.toThrow(
        /invalid request path/,
      );
    }
  });
});
