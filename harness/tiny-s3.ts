/**
 * The few requests of S3 that we send, answered from memory in this process: for tests that need no real server. It can be told to ignore
 * If-None-Match, as several real ones do: the probe must refuse it then.
 */
import { createHash } from "node:crypto";
import { createServer, type IncomingHttpHeaders } from "node:http";
import type { AddressInfo } from "node:net";

/** A running server. */
export interface TinyS3 {
  readonly endpoint: string;
  readonly objects: Map<string, Buffer>;
  /** Every request: method, path with query, headers. */
  readonly requests: { readonly method: string; readonly path: string; readonly headers: IncomingHttpHeaders }[];
  /** Connections that were open at once, at most. */
  connectionsMax(): number;
  stop(): Promise<void>;
}

/** Starts it. Any bucket exists; signatures are not checked. */
export async function startTinyS3({ isCareless = false }: { isCareless?: boolean } = {}): Promise<TinyS3> {
  const objects = new Map<string, Buffer>();
  const requests: { method: string; path: string; headers: IncomingHttpHeaders }[] = [];
  let [connections, connectionsMax] = [0, 0];
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const body = Buffer.concat(chunks);
    const url = new URL(request.url ?? "/", "http://localhost");
    const [, , ...rest] = decodeURIComponent(url.pathname).split("/");
    const key = rest.join("/");
    const answer = (status: number, content: string | Buffer = "", headers: Record<string, string> = {}): void => {
      response.writeHead(status, { ...headers, "content-length": String(Buffer.byteLength(content)) });
      response.end(content);
    };
    requests.push({ method: request.method ?? "", path: request.url ?? "", headers: request.headers });
    if (request.method === "PUT") {
      if (request.headers["if-none-match"] === "*" && objects.has(key) && !isCareless) {
        return answer(412, "<Error><Code>PreconditionFailed</Code></Error>");
      }
      objects.set(key, body); // careless: whoever comes last
      return answer(200, "", { etag: etag(body) });
    }
    if (request.method === "POST") {
      for (const [, name] of body.toString().matchAll(/<Key>(.*?)<\/Key>/g)) objects.delete(name as string);
      return answer(200, "<DeleteResult></DeleteResult>");
    }
    if (url.searchParams.has("list-type")) return answer(200, list(objects, url.searchParams));
    const found = objects.get(key);
    if (!found) return answer(404, "<Error><Code>NoSuchKey</Code></Error>");
    if (request.headers["if-match"] !== undefined && request.headers["if-match"] !== etag(found)) {
      return answer(412, "<Error><Code>PreconditionFailed</Code></Error>");
    }
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    if (!range) return answer(200, found, { etag: etag(found) });
    const start = Number(range[1]);
    const part = found.subarray(start, range[2] ? Number(range[2]) + 1 : undefined);
    if (part.byteLength === 0) return answer(416, "<Error><Code>InvalidRange</Code></Error>");
    const last = start + part.byteLength - 1;
    return answer(206, part, { etag: etag(found), "content-range": `bytes ${start}-${last}/${found.byteLength}` });
  });
  server.on("connection", (socket) => {
    connections++;
    connectionsMax = Math.max(connectionsMax, connections);
    socket.on("close", () => connections--);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  return {
    objects,
    requests,
    connectionsMax: () => connectionsMax,
    endpoint: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
    async stop() {
      server.closeAllConnections();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

function etag(body: Buffer): string {
  return `"${createHash("md5").update(body).digest("hex")}"`;
}

function list(objects: ReadonlyMap<string, Buffer>, query: URLSearchParams): string {
  const [prefix, after, limit] = [
    query.get("prefix") ?? "",
    query.get("start-after") ?? "",
    Number(query.get("max-keys")),
  ];
  const keys = [...objects.keys()].filter((key) => key.startsWith(prefix) && key > after).sort();
  const entries = keys
    .slice(0, limit)
    .map((key) => `<Contents><Key>${key}</Key><Size>${objects.get(key)?.byteLength}</Size></Contents>`);
  return `<ListBucketResult><IsTruncated>${keys.length > limit}</IsTruncated>${entries.join("")}</ListBucketResult>`;
}
