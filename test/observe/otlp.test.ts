/**
 * Property: a command sends its metrics and spans to an OTLP endpoint, the last ones before it ends; an endpoint that is away or no URL costs no result.
 * Method: the built command, and a server that keeps what it gets.
 */
import { createServer } from "node:http";
import type { AddressInfo } from "node:net";
import { afterAll, beforeAll, expect, test } from "vitest";
import { buildIfStale, must, run, start, Workspace } from "../cli/command-line.js";

const space = new Workspace();
beforeAll(buildIfStale, 180_000);
afterAll(() => space.remove());

test("metrics and spans of a producer arrive, with its labels", async () => {
  const got = new Map<string, string>();
  const server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    got.set(request.url ?? "", `${got.get(request.url ?? "") ?? ""}${Buffer.concat(chunks).toString()}`);
    response.writeHead(200, { "content-type": "application/json" }).end("{}");
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  try {
    const uri = space.uri("told");
    await must("create", uri, "--rows", "1");
    const endpoint = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    const args = ["produce", uri, "--id", "teller", "--batches", "3", "--bytes", "10"];
    expect((await start(args, { OTEL_EXPORTER_OTLP_ENDPOINT: endpoint }).ended).status).toBe(0);
    expect(got.get("/v1/metrics")).toMatch(/batchweave\.batches\.committed/);
    expect(got.get("/v1/metrics")).toMatch(/teller/);
    expect(got.get("/v1/traces")).toMatch(/batchweave\.batch/);
  } finally {
    server.closeAllConnections();
    server.close();
  }
});

test("an endpoint that is away is no failure, and one that is no URL is refused", async () => {
  const uri = space.uri("untold");
  await must("create", uri, "--rows", "1");
  const args = ["produce", uri, "--id", "p", "--batches", "1", "--bytes", "10"];
  expect((await run(...args, "--otlp", "http://127.0.0.1:9")).status).toBe(0);
  expect((await run(...args, "--otlp", "collector", "--json")).error?.code).toBe("INVALID_ARGUMENT");
});
