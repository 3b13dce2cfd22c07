/**
 * What our S3 client costs: against the same server in one run, our client, the bare `undici` call that it is built on (signed, for no S3 takes it
 * otherwise; no timeouts of our own, no checks) and AWS SDK v3 with its defaults. Each client is a process of its own; rounds of the clients alternate, and every figure is the median of the rounds.
 * The server is a process of ours that forgets what it is sent, so that the clients are what is measured.
 *
 * `--heap 32` lets every client hold 32 MB of small objects, as a process that does some work does: V8 counts the bytes of buffers against a limit that
 * grows with the heap, and in an empty process that limit, not the client, decides how often everything is collected.
 *
 * `--clients "bare;bare, signed by AWS's signer"` shows what AWS's own signer would cost (names are separated by semicolons), and
 * `--clients "bare;batchweave;batchweave of ../before"` compares with the build in another checkout.
 *
 * Over TLS only the SDK hashes the bytes (UNSIGNED-PAYLOAD). Over plain HTTP our default is to sign them, because nothing else
 * protects them there: that is the row "batchweave, bytes signed"; the row "batchweave" has `signPayload: false`, as the bare call does.
 */
import { execFileSync } from "node:child_process";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { inScratchFolder } from "../harness/scratch-folder.js";
import type { SinkSettings } from "../harness/sink-server.js";
import { WorkerProcess } from "../harness/worker-process.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { Report } from "./parts/report.js";
import { median, quantile } from "./parts/statistics.js";
import type { StoreAnswer, StoreQuestion, StoreWorkerSettings } from "./parts/store-worker.js";

export const summary =
  "our S3 client, the bare undici call and AWS SDK v3 [--sizes 100e3,1e6,10e6] [--concurrency 1,8,32] [--ops put,get] [--tls both|yes|no] [--rounds 5] [--seconds 0.4] [--clients NAMES] [--heap MB]";

const bytesSigned = "batchweave, bytes signed";
const clientNames = ["bare", "batchweave", bytesSigned, "aws sdk"];

interface Plan {
  readonly sizes: readonly number[];
  readonly concurrencies: readonly number[];
  readonly ops: readonly StoreQuestion["op"][];
  readonly clients: readonly string[];
  readonly rounds: number;
  readonly seconds: number;
  readonly heapMb: number;
}

function start(file: string, argument: unknown): WorkerProcess {
  const ending = import.meta.url.endsWith(".ts") ? "ts" : "js";
  return new WorkerProcess(new URL(`${file}.${ending}`, import.meta.url), argument);
}

/** A certificate for loopback that the workers trust. */
function makeCertificate(folder: string): SinkSettings {
  const [key, cert] = [join(folder, "key.pem"), join(folder, "cert.pem")];
  const name = ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"];
  const args = ["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", ...name, "-keyout", key, "-out", cert];
  execFileSync("openssl", args, { stdio: "ignore" });
  process.env["NODE_EXTRA_CA_CERTS"] = cert;
  return { key: readFileSync(key, "utf8"), cert: readFileSync(cert, "utf8") };
}

async function measure(tls: boolean, settings: SinkSettings, plan: Plan, report: Report): Promise<void> {
  const server = start("../harness/sink-server", settings);
  const names = tls ? plan.clients.filter((name) => name !== bytesSigned) : plan.clients;
  const workers = new Map<string, WorkerProcess>();
  try {
    const port = await server.ask<number>({});
    const endpoint = `${tls ? "https" : "http"}://127.0.0.1:${port}`;
    for (const client of names) {
      const settings: StoreWorkerSettings = { client, endpoint, heapMb: plan.heapMb };
      workers.set(client, start("./parts/store-worker", settings));
    }
    for (const op of plan.ops)
      for (const bytes of plan.sizes)
        for (const concurrency of plan.concurrencies) {
          const question: StoreQuestion = { op, bytes, concurrency, seconds: plan.seconds };
          const answers = await inTurns(workers, question, plan.rounds);
          const bareCpu = cpuSPerGb(answers.get("bare") ?? [], bytes);
          for (const client of names) {
            const rounds = answers.get(client) ?? [];
            const latencies = rounds.flatMap(({ latenciesMs }) => latenciesMs);
            const cpu = cpuSPerGb(rounds, bytes);
            report.row(
              {
                client,
                op,
                bytes,
                concurrency,
                tls,
                mbPerS: median(rounds.map(({ calls, seconds }) => (calls * bytes) / 1e6 / seconds)),
                p50Ms: quantile(latencies, 0.5),
                p99Ms: quantile(latencies, 0.99),
                cpuSPerGb: cpu,
              },
              { ofBare: cpu / bareCpu },
            );
          }
        }
  } finally {
    await Promise.all([server, ...workers.values()].map((worker) => worker.stop()));
  }
}

function cpuSPerGb(rounds: readonly StoreAnswer[], bytes: number): number {
  return median(rounds.map(({ cpuSeconds, calls }) => cpuSeconds / ((calls * bytes) / 1e9)));
}

/** One client after another, round after round: what disturbs the machine disturbs all of them. */
async function inTurns(
  workers: ReadonlyMap<string, WorkerProcess>,
  question: StoreQuestion,
  rounds: number,
): Promise<Map<string, StoreAnswer[]>> {
  const answers = new Map<string, StoreAnswer[]>([...workers.keys()].map((name) => [name, []]));
  for (let round = 0; round < rounds; round++) {
    for (const [name, worker] of workers) answers.get(name)?.push(await worker.ask<StoreAnswer>(question));
  }
  return answers;
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["sizes", "concurrency", "ops", "tls", "rounds", "seconds", "clients", "heap"]);
  const plan: Plan = {
    sizes: numbers(options.sizes, [100_000, 1_000_000, 10_000_000]),
    concurrencies: numbers(options.concurrency, [1, 8, 32]),
    ops: (options.ops ?? "put,get").split(",").map((op) => {
      if (op !== "put" && op !== "get") throw new Error(`${JSON.stringify(op)} is not an operation; use put or get.`);
      return op;
    }),
    clients: options.clients?.split(";") ?? clientNames,
    rounds: number(options.rounds, 5),
    seconds: number(options.seconds, 0.4),
    heapMb: number(options.heap, 0),
  };
  const tls = options.tls ?? "both";
  const report = new Report("store", options.json);
  // The bare call knows nothing of it, and the SDK neither: all trust the same certificates.
  delete process.env["AWS_CA_BUNDLE"];
  await inScratchFolder(undefined, async (folder) => {
    if (tls !== "yes") await measure(false, {}, plan, report);
    if (tls !== "no") await measure(true, makeCertificate(folder), plan, report);
  });
  report.end();
}
