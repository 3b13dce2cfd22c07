// An S3 of one bucket in memory, on loopback, for comparing clients: PUT (If-None-Match: *), GET with Range, LIST, DELETE. A key that begins with `status-NNN` is
// answered with NNN, `drop` is applied and then cut off without an answer; `GET /_count` gives how many PUTs came. Prints its port.
import { createServer } from "node:http";

/** @type {Map<string, Buffer>} */
const objects = new Map();
let puts = 0;
/** Every answer is so late, as a store on the network is. */
const delayMs = Number(process.env["STUB_DELAY_MS"] ?? 0);

/** @param {string} text */
const xml = (text) => text.replace(/[<>&]/g, (c) => `&#${c.charCodeAt(0)};`);

/**
 * @param {string} prefix
 * @param {string} after
 * @param {number} max
 */
function listing(prefix, after, max) {
  const keys = [...objects.keys()].filter((key) => key.startsWith(prefix) && key > after).sort();
  const page = keys.slice(0, max);
  const items = page.map(
    (key) =>
      `<Contents><Key>${xml(key)}</Key><LastModified>2025-01-01T00:00:00.000Z</LastModified><ETag>"1"</ETag><Size>${objects.get(key)?.length}</Size><StorageClass>STANDARD</StorageClass></Contents>`,
  );
  return `<?xml version="1.0"?><ListBucketResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Name>bucket</Name><Prefix>${xml(prefix)}</Prefix><KeyCount>${page.length}</KeyCount><MaxKeys>${max}</MaxKeys><IsTruncated>${keys.length > max}</IsTruncated>${keys.length > max ? `<NextContinuationToken>${xml(page.at(-1) ?? "")}</NextContinuationToken>` : ""}${items.join("")}</ListBucketResult>`;
}

const server = createServer((request, response) => {
  const url = new URL(request.url ?? "/", "http://x");
  const key = decodeURIComponent(url.pathname).replace(/^\/bucket\/?/, "");
  /** @type {Buffer[]} */
  const parts = [];
  request.on("data", (part) => parts.push(part));
  request.on("end", async () => {
    if (delayMs > 0) await new Promise((resolve) => setTimeout(resolve, delayMs));
    const answer = (/** @type {number} */ status, /** @type {Buffer | string} */ body = "", headers = {}) => {
      response.writeHead(status, {
        "content-length": Buffer.byteLength(body),
        etag: '"1"',
        "last-modified": "Wed, 01 Jan 2025 00:00:00 GMT",
        ...headers,
      });
      response.end(request.method === "HEAD" ? undefined : body);
    };
    if (url.pathname === "/_count") return answer(200, String(puts));
    const scripted = /(?:^|\/)status-(\d+)/.exec(key);
    if (request.method === "PUT") {
      puts++;
      if (scripted) return answer(Number(scripted[1]), `<Error><Code>Scripted</Code><Message>x</Message></Error>`);
      if (request.headers["if-none-match"] === "*" && objects.has(key))
        return answer(412, "<Error><Code>PreconditionFailed</Code><Message>x</Message></Error>");
      objects.set(key, Buffer.concat(parts));
      if (/(?:^|\/)drop/.test(key)) return void request.socket.destroy();
      return answer(200);
    }
    if (request.method === "DELETE") {
      objects.delete(key);
      return answer(204);
    }
    if (key === "" && request.method === "GET") {
      const after = url.searchParams.get("continuation-token") ?? url.searchParams.get("start-after") ?? "";
      return answer(
        200,
        listing(url.searchParams.get("prefix") ?? "", after, Number(url.searchParams.get("max-keys") ?? 1000)),
        { "content-type": "application/xml" },
      );
    }
    if (request.method === "POST") {
      const names = [
        ...Buffer.concat(parts)
          .toString()
          .matchAll(/<Key>(.*?)<\/Key>/g),
      ].map((match) => match[1] ?? "");
      for (const name of names) objects.delete(name);
      const deleted = names.map((name) => `<Deleted><Key>${name}</Key></Deleted>`).join("");
      return answer(200, `<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">${deleted}</DeleteResult>`);
    }
    const body = objects.get(key);
    if (!body) return answer(404, "<Error><Code>NoSuchKey</Code><Message>x</Message></Error>");
    const range = /^bytes=(\d+)-(\d*)$/.exec(request.headers.range ?? "");
    if (!range) return answer(200, body);
    const begin = Number(range[1]);
    if (begin >= body.length)
      return answer(416, "<Error><Code>InvalidRange</Code><Message>x</Message></Error>", {
        "content-range": `bytes */${body.length}`,
      });
    const end = Math.min(body.length, range[2] ? Number(range[2]) + 1 : body.length);
    answer(206, body.subarray(begin, end), { "content-range": `bytes ${begin}-${end - 1}/${body.length}` });
  });
});
server.keepAliveTimeout = 60_000;
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  console.log(typeof address === "object" ? address?.port : 0);
});
