/**
 * Google Cloud Storage has two APIs. obstore writes with the XML one, of which fake-gcs-server has everything but PUT. This stands in front of it and
 * says a PUT in the words of the JSON API, condition included; who wins is still the server's to say. All else passes unchanged.
 */
import { createServer, type IncomingMessage, request, type Server } from "node:http";
import type { AddressInfo } from "node:net";

/** Starts it; gives the address to use instead of the server's. */
export async function startXmlDoor(endpoint: string): Promise<{ readonly endpoint: string; stop(): Promise<void> }> {
  const target = new URL(endpoint);
  const server: Server = createServer((incoming, outgoing) => {
    const isPut = incoming.method === "PUT";
    const headers = { ...incoming.headers, host: target.host };
    const options = { host: target.hostname, port: target.port, headers };
    const method = isPut ? "POST" : incoming.method;
    const onward = request({ ...options, method, path: isPut ? jsonPath(incoming) : incoming.url }, (answer) => {
      const more = isPut ? { etag: '"put"', "x-goog-generation": "1" } : {};
      outgoing.writeHead(answer.statusCode ?? 502, { ...answer.headers, ...more });
      answer.pipe(outgoing);
    });
    onward.on("error", () => outgoing.destroy());
    incoming.pipe(onward);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  return {
    endpoint: `http://127.0.0.1:${port}`,
    stop: () =>
      new Promise((resolve) => {
        server.closeAllConnections();
        server.close(() => resolve());
      }),
  };
}

/** `PUT /bucket/key` as an upload of the JSON API, with `x-goog-if-generation-match` as the parameter it is there. */
function jsonPath(incoming: IncomingMessage): string {
  const [, bucket, ...key] = new URL(incoming.url ?? "/", "http://x").pathname.split("/");
  const condition = incoming.headers["x-goog-if-generation-match"];
  const name = decodeURIComponent(key.join("/"));
  const query = new URLSearchParams({ uploadType: "media", name });
  if (condition !== undefined) query.set("ifGenerationMatch", String(condition));
  return `/upload/storage/v1/b/${bucket}/o?${query}`;
}
