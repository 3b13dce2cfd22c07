/** Namespaces worth looking at: a pipeline's log with checkpoints, a trim, forks and pulses, plain logs, and names that are scripts. */
import {
  createNamespace,
  encodeSafetensors,
  type Namespace,
  openNamespace,
  type Pulse,
  safetensorsType,
} from "../src/index.js";
import { definePipeline, iterable, type Pipeline, runPipeline, stagedMix } from "../src/plan/index.js";

const durability = "process-crash" as const;
const storeSettings = { durability };

/** A name that would do harm if anybody took it for HTML. */
export const hostileName = '<script>window.pwned=1</script><img src=x onerror="window.pwned=1">';

/** What {@link makeWorld} made. */
export interface World {
  readonly train: Namespace;
  /** Ends the processes that only leave pulses. */
  close(): Promise<void>;
}

const words = "the weave of a batch holds every thread once and no thread twice whoever drops the shuttle".split(" ");

function text(n: number, count: number): number[] {
  const said = Array.from({ length: count }, (_, i) => words[(n * 7 + i * i) % words.length]).join(" ");
  return [...Buffer.from(`${said}.`), 256];
}

/** A square of 32 pixels in four patches: a disc on a gradient. */
function picture(n: number): Uint8Array {
  const side = 16;
  const data = new Uint8Array(4 * side * side * 3);
  for (let patch = 0; patch < 4; patch++) {
    for (let i = 0; i < side * side; i++) {
      const [x, y] = [(patch % 2) * side + (i % side), Math.floor(patch / 2) * side + Math.floor(i / side)];
      const isDisc = (x - 16) ** 2 + (y - 16) ** 2 < 90 + 8 * (n % 7);
      data.set(isDisc ? [230, 60 + 20 * (n % 8), 60] : [6 * x, 90, 7 * y], (patch * side * side + i) * 3);
    }
  }
  return data;
}

function pipelineAt(uri: string, steps: number): Pipeline {
  const texts = (salt: number, longest: number, name?: string): ReturnType<typeof iterable> =>
    iterable({
      open: function* () {
        for (let n = 0; ; n++) {
          const id = name !== undefined && n % 5 === 0 ? `${name}-${n}` : String(n);
          yield { value: { tokens: text(n + salt, 4 + ((n * 37 + salt) % longest)) }, id, bytes: 256 };
        }
      },
      shuffle: false,
    });
  return definePipeline({
    namespace: { uri, grid: { rows: 4, chunks: 2 }, order: "lanes", lanes: 2 },
    sources: {
      web: texts(1, 60, hostileName),
      code: texts(2, 24),
      photos: iterable({
        open: function* () {
          for (let n = 0; ; n++) {
            const caption = text(n, 5);
            const image = { at: 0, tokens: 4, height: 2, width: 2, data: picture(n), patchValues: 768 };
            yield {
              value: { tokens: [257, 257, 257, 257, ...caption], images: [image] },
              id: `photo-${n}`,
              bytes: 4_096,
            };
          }
        },
        shuffle: false,
      }),
    },
    strategy: (graph) =>
      graph
        .mix(
          stagedMix([
            { from: 0, weights: { web: 5, code: 3, photos: 2 }, name: "broad" },
            { from: 16, weights: { web: 2, code: 5, photos: 3 }, name: "skills" },
          ]),
        )
        .balance("karmarkar-karp"),
    construct: { seqLength: 1024, sequences: 2 },
    batch: { samples: 40 },
    workers: { threads: 0 },
    steps,
    seed: 7,
  });
}

/** A log whose steps several producers wrote, without samples. */
async function writePlain(uri: string, producers: number, batches: number): Promise<Namespace> {
  const ns = await createNamespace(uri, { grid: { rows: 2, chunks: 1 } }, { storeSettings });
  for (let p = 0; p < producers; p++) {
    await using producer = await ns.producer({ id: `tokenizer-${p}` });
    for (let i = 0; i < batches; i++) {
      const value = Int32Array.from({ length: 32 + 8 * p }, (_, j) => i * j);
      const slice = encodeSafetensors({ tokens: { dtype: "I32", shape: [value.length], data: value } });
      await producer.append([slice, slice], { contentType: safetensorsType });
    }
  }
  return ns;
}

/** Makes everything below `root`, a `file:` URI. Some seconds. */
export async function makeWorld(root: string): Promise<World> {
  const at = (name: string): string => `${root}/${name}`;
  await runPipeline(pipelineAt(at("train"), 40), { close: false }, { storeSettings });
  const train = await openNamespace(at("train"), { storeSettings });
  await using rank = await train.consumer({ mesh: { dp: 4, cp: 2 }, rank: 0, environment: {} });
  for (let i = 0; i < 32; i++) {
    const { value } = await rank.next();
    if (value && i % 8 === 7) await rank.checkpoint(`iter-${i + 1}`, value.next, { keepLast: 3 });
  }
  await train.reclaim({ graceMs: 0, keepVersions: 4 });
  await train.setMaxLag(24);
  const fixed = await train.fork(at("train-fixed"), { at: 30, skip: [{ from: 24, to: 26 }] });
  await runPipeline(pipelineAt(at("train-fixed"), 44), { close: false }, { storeSettings });
  await fixed.fork(at("train-again"), {});
  await (await fixed.fork(at("annealed"), { at: 32 })).endLog();
  const raw = await writePlain(at("runs/raw"), 3, 20);
  await raw.endLog();
  await writePlain(at("runs/ablation"), 1, 5);
  const photos = { source: "photos", samples: 480, waitMs: 9_100, readMs: 1_200, transformMs: 31_000, faults: 0 };
  const pulses: Pulse[] = [
    train.pulse({ role: "producer", name: "lane-0", facts: () => ({ inFlight: 2, bytes: 81_920 }) }),
    train.pulse({
      role: "loader",
      name: "host-a",
      facts: () => ({ waitingFor: "source photos", waitingMs: 2_400, sources: [photos] }),
    }),
    train.pulse({ role: "rank", name: "default-0", facts: () => ({ step: 32, waitedMs: 420, lagSteps: 8 }) }),
  ];
  return {
    train,
    close: async () => {
      for (const pulse of pulses) await pulse.stop();
    },
  };
}

/** Adds steps to the pipeline's log. */
export async function goOn(root: string, steps: number): Promise<void> {
  await runPipeline(pipelineAt(`${root}/train`, steps), { close: false }, { storeSettings });
}
