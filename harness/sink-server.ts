/**
 * A server that speaks just enough S3 to be timed against: a PUT is read and forgotten, a GET gives the bytes of the range asked for. A process
 * of its own, so that what it costs is not counted. Arguments: a JSON object with `key` and `cert` (PEM) for TLS.
 */
import { createServer, type RequestListener } from "node:http";
import { createServer as createTlsServer } from "node:https";
import type { AddressInfo } from "node:net";
import { workerArgument } from "./worker-process.js";

/** What the server is told at its start. */
export interface SinkSettings {
  readonly key?: string;
  readonly cert?: string;
}

const { key, cert } = workerArgument<SinkSettings>();
const content = Buffer.alloc(16 * 1024 * 1024, 7);
const etag = '"0123456789abcdef0123456789abcdef"';

const listener: RequestListener = (request, response) => {
  if (request.method === "PUT") {
    request.on("data", () => {});
    request.on("end", () => {
      response.writeHead(200, { etag, "content-length": "0" });
      response.end();
    });
    return;
  }
  request.resume();
  const range = /^bytes=(\d+)-(\d+)$/.exec(request.headers.range ?? "");
  const [start, end] = [Number(range?.[1] ?? 0), Number(range?.[2] ?? 0) + 1];
  response.writeHead(206, {
    etag,
    "content-length": String(end - start),
    "content-range": `bytes ${start}-${end - 1}/${content.byteLength}`,
  });
  response.end(content.subarray(start, end));
};

const server = key === undefined ? createServer(listener) : createTlsServer({ key, cert }, listener);
server.keepAliveTimeout = 120_000;
server.listen(0, "127.0.0.1");
await new Promise<void>((resolve) => server.once("listening", resolve));
// Asked once, for its port.
process.on("message", () => process.send?.((server.address() as AddressInfo).port));
process.on("disconnect", () => process.exit(0));
