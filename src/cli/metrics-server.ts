/** Serves a registry as Prometheus text. */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { BatchWeaveError, type Metrics } from "../index.js";
import type { Address } from "./arguments.js";

/** A running server. */
export interface MetricsServer {
  readonly url: string;
  close(): Promise<void>;
}

/** Starts serving. There is nothing secret in it, and no way to change anything. */
export async function serveMetrics(metrics: Metrics, { host, port }: Address): Promise<MetricsServer> {
  const shownHost = host.includes(":") ? `[${host}]` : host;
  const server = createServer((request, response) => {
    const isFound = request.method === "GET" && /^\/(metrics)?(\?.*)?$/.test(request.url ?? "");
    response.writeHead(isFound ? 200 : 404, { "content-type": "text/plain; version=0.0.4; charset=utf-8" });
    response.end(isFound ? metrics.text() : "GET /metrics\n");
  });
  await new Promise<void>((resolve, reject) => {
    server.once("error", (cause: NodeJS.ErrnoException) => {
      const why = cause.code === "EADDRINUSE" ? "the port is taken" : cause.message;
      const message = `Metrics cannot be served on ${shownHost}:${port}: ${why}. Choose another port, or 0 for any.`;
      reject(new BatchWeaveError("INVALID_ARGUMENT", message, { port }, cause));
    });
    server.listen(port, host, resolve);
  });
  // Metrics must not keep a command alive that has finished.
  server.unref();
  const { port: found } = server.address() as AddressInfo;
  return {
    url: `http://${shownHost}:${found}/metrics`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
