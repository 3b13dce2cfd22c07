/**
 * Property: the library that carries our HTTP adds nothing to what was asked of it. A request that was sent is never sent again by it, a redirect is not
 * followed, what a server sends back of our headers is never shown, an answer without an end is cut off in little memory, and the user's own `fetch` works as without us.
 * Method: servers of plain sockets that do the wrong thing on purpose and count what they see; a process of its own for `fetch`.
 */
import { execFile } from "node:child_process";
import { createServer as createHttpServer, type Server as HttpServer } from "node:http";
import { type AddressInfo, createServer, type Server, type Socket } from "node:net";
import { fileURLToPath } from "node:url";
import { inspect, promisify } from "node:util";
import { afterEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { BatchWeaveError } from "../../src/errors.js";
import { type ObjectStore, openStore, type S3StoreSettings } from "../../src/index.js";
import { bytes } from "../store/conformance.js";

const secrets = {
  accessKeyId: "AKIAECHOEDKEYID",
  secretAccessKey: "echoed-secret-key",
  sessionToken: "an/echoed+session/token==",
};
const servers: (Server | HttpServer)[] = [];
const sockets = new Set<Socket>();
afterEach(async () => {
  for (const socket of sockets) socket.destroy();
  sockets.clear();
  await Promise.all(servers.splice(0).map((server) => new Promise((resolve) => server.close(resolve))));
});

async function listen(server: Server | HttpServer): Promise<string> {
  servers.push(server);
  server.on("connection", (socket: Socket) => sockets.add(socket.on("error", () => {})));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

async function open(endpoint: string, settings: S3StoreSettings = {}): Promise<ObjectStore> {
  return openStore("s3://bucket/run", { s3: { endpoint, region: "us-east-1", credentials: secrets, ...settings } });
}

/** Calls `onRequest` with every whole request; bodies are counted by content-length. */
function reading(onRequest: (socket: Socket, head: string) => void): Server {
  return createServer((socket) => {
    let text = "";
    socket.on("data", (piece) => {
      text += piece.toString("latin1");
      for (;;) {
        const end = text.indexOf("\r\n\r\n");
        const head = text.slice(0, end);
        const length = Number(/content-length: (\d+)/i.exec(head)?.[1] ?? 0);
        if (end < 0 || text.length < end + 4 + length) return;
        text = text.slice(end + 4 + length);
        onRequest(socket, head);
      }
    });
  });
}

const stored = 'HTTP/1.1 200 OK\r\netag: "e"\r\ncontent-length: 0\r\n\r\n';

describe("a conditional create whose server applies it and drops the connection", () => {
  const ends: [string, (socket: Socket) => void][] = [
    ["with a reset", (socket) => socket.resetAndDestroy()],
    ["with an end", (socket) => socket.end()],
    ["in the middle of the head", (socket) => socket.end("HTTP/1.1 200 O")],
    ["after a 100 Continue", (socket) => socket.end("HTTP/1.1 100 Continue\r\n\r\n")],
  ];
  test.each(ends)("%s: unknown, and seen once, on fresh and on kept connections", async (_name, drop) => {
    const seen: string[] = [];
    let isDropping = false;
    const endpoint = await listen(
      reading((socket, head) => {
        seen.push(head.split(" ")[1] as string);
        if (isDropping) drop(socket);
        else socket.write(stored);
      }),
    );
    const one = new Uint8Array(200_000);
    const parts = Array.from({ length: 5 }, () => new Uint8Array(50_000));
    for (const connectionsMax of [1, 4]) {
      const store = await open(endpoint, { connectionsMax });
      isDropping = connectionsMax === 1;
      if (!isDropping) await Promise.all(["w", "x", "y", "z"].map((key) => store.create(`kept/${key}`, one)));
      isDropping = true;
      seen.length = 0;
      const keys = ["a", "b", "c", "d", "e", "f"];
      const outcomes = await Promise.all(keys.map((key, i) => store.create(key, i % 2 ? one : parts)));
      expect(outcomes).toEqual(keys.map(() => "unknown"));
      await systemEnv.sleep(300);
      expect(seen.sort()).toEqual(keys.map((key) => `/bucket/run/${key}`));
    }
  });
});

test("a redirect is not followed, neither to another host nor to the same", async () => {
  let others = 0;
  const other = await listen(
    reading((socket) => {
      others++;
      socket.write(stored);
    }),
  );
  for (const status of [301, 302, 303, 307, 308]) {
    let seen = 0;
    const here = await listen(
      reading((socket) => {
        seen++;
        const location = seen % 2 ? `${other}/bucket/run/k` : "/bucket/run/k2";
        socket.write(`HTTP/1.1 ${status} Moved\r\nlocation: ${location}\r\ncontent-length: 0\r\n\r\n`);
      }),
    );
    const store = await open(here);
    for (let i = 0; i < 2; i++) {
      expect(await store.create("k", bytes("x"))).toBe("unknown");
      await expect(store.get("k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    }
    expect(seen).toBe(4);
  }
  expect(others).toBe(0);
});

describe("a server that sends back what it was sent", () => {
  const echoes: [string, (head: string) => string][] = [
    ["as an error's message", (head) => errorAnswer(`<Code>InvalidRequest</Code><Message>${head}</Message>`)],
    ["as an error's code", (head) => errorAnswer(`<Code>${head}</Code><Message>m</Message>`)],
    ["as the region", (head) => errorAnswer(`<Code>AuthorizationHeaderMalformed</Code><Region>${head}</Region>`)],
    ["as a key that is not deleted", (head) => deleteAnswer(`<Key>${head}</Key><Code>X1</Code>`)],
    ["as a header", (head) => `HTTP/1.1 301 Moved\r\nx-amz-bucket-region: ${flat(head)}\r\ncontent-length: 0\r\n\r\n`],
    ["as a status line", (head) => `HTTP/1.1 400 ${flat(head)}\r\ncontent-length: 0\r\n\r\n`],
    ["as a page", (head) => xmlAnswer(400, `<html>${head}</html>`)],
    ["as it came", (head) => `${head}\r\n\r\n`],
    [
      "instead of a chunk",
      (head) => `HTTP/1.1 200 OK\r\netag: "e"\r\ntransfer-encoding: chunked\r\n\r\n${head}\r\n\r\n`,
    ],
  ];
  const flat = (head: string): string => head.replaceAll("\r\n", " ");
  const errorAnswer = (inside: string): string => xmlAnswer(400, `<Error>${inside}</Error>`);
  const deleteAnswer = (inside: string): string =>
    xmlAnswer(200, `<DeleteResult><Error>${inside}</Error></DeleteResult>`);
  const xmlAnswer = (status: number, body: string): string =>
    `HTTP/1.1 ${status} X\r\ncontent-length: ${body.length}\r\n\r\n${body}`;

  test.each(echoes)("%s: no key, token or signature is shown", async (_name, answer) => {
    const sent: string[] = [];
    const endpoint = await listen(
      reading((socket, head) => {
        sent.push(...(/Signature=(\w+)/.exec(head)?.slice(1) ?? []));
        socket.write(answer(head), "latin1");
      }),
    );
    const store = await open(endpoint);
    const calls = [
      () => store.get("k"),
      () => store.put("k", bytes("x")),
      () => store.list(""),
      () => store.delete(["k"]),
      () => store.create("k", bytes("x")),
    ];
    let failures = 0;
    for (const call of calls) {
      const e: unknown = await call().catch((error: unknown) => error);
      if (e === undefined || e === "unknown") continue;
      failures++;
      expect(e).toBeInstanceOf(BatchWeaveError);
      const shown = `${inspect(e, { depth: 10, showHidden: true })}${JSON.stringify(e)}`;
      for (const secret of [...Object.values(secrets), ...sent]) expect(shown).not.toContain(secret);
    }
    expect(failures).toBeGreaterThan(0);
    expect(sent.length).toBeGreaterThanOrEqual(5);
  });
});

describe("an answer without an end", () => {
  const framings = ["content-length: 9999999999", "transfer-encoding: chunked", "connection: close"];
  const calls: [string, (store: ObjectStore) => Promise<unknown>, string][] = [
    ["a range", (store) => store.getRange("k", 0, 1_000), "200 OK"],
    ["a range, partial", (store) => store.getRange("k", 0, 1_000), "206 Partial\r\ncontent-range: bytes 0-999/1000"],
    ["a list", (store) => store.list(""), "200 OK"],
    ["a delete", (store) => store.delete(["k"]), "200 OK"],
    ["a put", (store) => store.put("k", bytes("x")), "200 OK"],
  ];
  test.each(calls)("%s: cut off, told, in bounded memory", async (_name, call, status) => {
    for (const framing of framings) {
      let sentBytes = 0;
      const piece = framing.startsWith("transfer") ? `40000\r\n${"x".repeat(0x40000)}\r\n` : "x".repeat(0x40000);
      const endpoint = await listen(
        reading((socket) => {
          const pour = (): void => {
            do sentBytes += piece.length;
            while (!socket.destroyed && socket.write(piece));
          };
          socket.on("drain", pour);
          socket.write(`HTTP/1.1 ${status}\r\netag: "e"\r\n${framing}\r\n\r\n`);
          pour();
        }),
      );
      const e: unknown = await call(await open(endpoint)).catch((error: unknown) => error);
      expect(e).toMatchObject({ code: "STORE_UNAVAILABLE", message: expect.stringMatching(/;/) });
      expect(sentBytes).toBeLessThan(100e6); // 64 MB are read, and what lies in the network's buffers
    }
  });
});

test("the user's own fetch works, before and after, with a content-length of its own", async () => {
  const server = createHttpServer((request, response) => {
    let body = "";
    request.on("data", (piece) => {
      body += piece;
    });
    request.on("end", () => response.end(`${request.headers["content-length"]} ${body}`));
  });
  const endpoint = await listen(server);
  const script = `
    const { openStore } = await import(${JSON.stringify(fileURLToPath(new URL("../../src/index.ts", import.meta.url)))});
    const store = await openStore("s3://bucket/x", { s3: { endpoint: process.argv[1], credentials: { accessKeyId: "a", secretAccessKey: "b" } } });
    await store.get("k").catch(() => {});
    const options = { method: "POST", body: "hello", headers: { "content-length": "5" } };
    console.log(await (await fetch(process.argv[1], options)).text());`;
  const args = ["--import", "tsx", "--input-type=module", "-e", script, endpoint];
  const { stdout } = await promisify(execFile)(process.execPath, args, {
    cwd: fileURLToPath(new URL("../..", import.meta.url)),
  });
  expect(stdout.trim()).toBe("5 hello");
});
