/**
 * What a job asks of its store, and what a cloud charges for it: producers that publish at a steady pace and a rank that reads along, on a store in
 * memory that answers as late as S3 does (a store that answers at once is asked more often, and charges nothing). Per batch for all producers together, per batch for one rank; looks at names that are
 * not there yet count like any other. The price is S3's of 2025 in us-east-1: 0.005 dollars per 1,000 PUT or LIST, 0.0004 per 1,000 GET.
 */
import { createNamespace, MemoryStore, type Namespace, type ObjectStore, openNamespace } from "../src/index.js";
import { number, numbers, readOptions } from "./parts/options.js";
import { makePayloads } from "./parts/payload.js";
import { Report } from "./parts/report.js";

export const summary =
  "requests per batch at a steady pace, and their price [--producers 1,4,16] [--pace 1] [--seconds 20]";

const rows = 8;
/** From here on every wait of the cooperative cadence is at its ceiling. */
const roundTripMs = 75;
const dollarsPerWrite = 0.005 / 1_000;
const dollarsPerRead = 0.0004 / 1_000;

interface Tally {
  readonly writes: number;
  readonly reads: number;
}

function tally(namespaces: readonly Namespace[]): Tally {
  const of = (...ops: readonly string[]): number =>
    namespaces.reduce(
      (sum, { metrics }) =>
        sum + ops.reduce((all, op) => all + metrics.value("batchweave_store_requests_total", { op }), 0),
      0,
    );
  return { writes: of("put", "create", "list"), reads: of("get", "getRange") };
}

const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

function distant(store: ObjectStore): ObjectStore {
  const late =
    <A extends unknown[], R>(call: (...args: A) => Promise<R>) =>
    async (...args: A): Promise<R> => {
      await sleep(roundTripMs);
      return await call(...args);
    };
  return {
    uri: store.uri,
    create: late(store.create.bind(store)),
    put: late(store.put.bind(store)),
    get: late(store.get.bind(store)),
    getRange: late(store.getRange.bind(store)),
    list: late(store.list.bind(store)),
    delete: late(store.delete.bind(store)),
  };
}

export async function run(args: string[]): Promise<void> {
  const options = readOptions(args, ["producers", "pace", "seconds"]);
  const pace = number(options.pace, 1);
  const report = new Report("requests", options.json);
  for (const count of numbers(options.producers, [1, 4, 16])) {
    const uri = `memory:requests-${count}`;
    const store = distant(new MemoryStore());
    await createNamespace(uri, { grid: { rows, chunks: 1 } }, { store });
    const writing = await Promise.all(Array.from({ length: count }, () => openNamespace(uri, { store })));
    const producers = await Promise.all(writing.map((namespace, i) => namespace.producer({ id: `p${i}` })));
    const reading = await openNamespace(uri, { store });
    const consumer = await reading.consumer({ mesh: { dp: rows }, rank: 0, environment: {} });
    let shares = 0;
    const follow = (async () => {
      for await (const _ of consumer) shares++;
    })();
    const slices = makePayloads(rows, 1_000, 1);
    const publish = (batches: number): Promise<unknown> =>
      Promise.all(
        producers.map(async (producer, i) => {
          await sleep((i / count / pace) * 1_000);
          for (let batch = 0; batch < batches; batch++) {
            await producer.append(slices);
            await sleep(1_000 / pace);
          }
        }),
      );
    await publish(Math.ceil(5 * pace)); // until everybody knows who carries
    const before = { producers: tally(writing), rank: tally([reading]), shares };
    const batches = Math.ceil(number(options.seconds, 20) * pace);
    await publish(batches);
    const after = { producers: tally(writing), rank: tally([reading]), shares };
    const total = batches * count;
    const writes = (after.producers.writes - before.producers.writes) / total;
    const reads = (after.producers.reads - before.producers.reads) / total;
    const rankReads = (after.rank.reads - before.rank.reads) / (after.shares - before.shares);
    report.row({
      producers: count,
      pace,
      writesPerBatch: writes,
      readsPerBatch: reads,
      dollarsPerMillion: 1e6 * (writes * dollarsPerWrite + reads * dollarsPerRead),
      rankReadsPerBatch: rankReads,
      rankDollarsPerMillion: 1e6 * rankReads * dollarsPerRead,
    });
    await Promise.all(producers.map((producer) => producer.close()));
    await writing[0]?.endLog();
    await follow;
  }
  report.end();
}
