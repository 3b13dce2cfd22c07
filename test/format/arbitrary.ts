/** Random values of every stored type, for fast-check. */
import fc from "fast-check";
import {
  asEpoch,
  asRow,
  asSeq,
  asStep,
  asVersion,
  type BatchName,
  type CheckpointGroup,
  type Descriptor,
  type IndexLevel,
  type IndexRoot,
  type Manifest,
  type NamespaceSpec,
  type NodeRef,
  type Pin,
  type ProducerState,
  type Run,
  type SilentProducer,
} from "../../src/format/index.js";

export const whole: fc.Arbitrary<number> = fc.oneof(fc.nat({ max: 1000 }), fc.nat({ max: Number.MAX_SAFE_INTEGER }));
const u32 = fc.nat({ max: 0xffff_ffff });
const id12 = fc.string({ unit: fc.constantFrom(..."0123456789abcdefghijklmnopqrstuv"), minLength: 12, maxLength: 12 });
const nameChar = fc.constantFrom(..."abzAZ019._-");
export const producerId: fc.Arbitrary<string> = fc
  .tuple(fc.constantFrom("a", "Z", "0", "_"), fc.string({ unit: nameChar, maxLength: 12 }))
  .map((parts) => parts.join(""));
export const uuid: fc.Arbitrary<string> = fc.uuid();

/** Any JSON, as it comes back from storage. */
export const json: fc.Arbitrary<unknown> = fc.jsonValue({ maxDepth: 3 }).map((v) => JSON.parse(JSON.stringify(v)));

/** Fields of a future version. */
export const unknown: fc.Arbitrary<Record<string, unknown>> = fc.dictionary(
  fc
    .oneof(fc.constantFrom("__proto__", "constructor", "toString", "7"), fc.string({ maxLength: 5 }))
    .map((s) => `${s}?`),
  json,
  { maxKeys: 3, noNullPrototype: true },
);

export const batchName: fc.Arbitrary<BatchName> = fc.record({
  producer: producerId,
  epoch: whole.map(asEpoch),
  // With room for a producer's next batches: seq counts to 2^53 - 1 and no further.
  seq: fc.nat({ max: Number.MAX_SAFE_INTEGER - 100 }).map(asSeq),
  incarnation: id12,
  attempt: fc.nat({ max: 99 }),
  base: whole.map(asVersion),
});

const trailing = fc.option(fc.array(json, { minLength: 1, maxLength: 2 }), { nil: undefined });

export const descriptor: fc.Arbitrary<Descriptor> = fc
  .tuple(
    batchName,
    fc.array(fc.record({ cells: u32, size: whole, table: whole, check: u32 }), { minLength: 1, maxLength: 3 }),
    fc.option(fc.nat({ max: 9 }), { nil: undefined }),
    trailing,
  )
  .map(([name, extents, origin, rest]) => ({
    ...name,
    extents,
    ...(origin === undefined ? {} : { origin }),
    ...(rest ? { rest } : {}),
  }));

export const nodeRef: fc.Arbitrary<NodeRef> = fc.record({
  base: whole.map(asVersion),
  commitId: id12,
  k: fc.nat({ max: 999 }),
  check: u32,
});

export const levels: fc.Arbitrary<IndexLevel[]> = fc.array(
  fc.record({ start: whole, refs: fc.array(nodeRef, { maxLength: 4 }) }),
  { maxLength: 3 },
);

export function run(size: { minLength: number; maxLength: number }): fc.Arbitrary<Run> {
  return fc.record({ start: fc.nat({ max: 1e6 }).map((n) => asStep(64 * n)), batches: fc.array(descriptor, size) });
}

export const producerState: fc.Arbitrary<ProducerState> = fc
  .tuple(batchName, id12, whole, u32, nodeRef, fc.constantFrom("none", "batch", "other", "table"), trailing)
  .map(([{ producer: _, ...name }, incarnation, at, check, table, kind, rest]): ProducerState => {
    const other = kind === "other" ? { epoch: asEpoch(0), incarnation } : {};
    const batch = { ...name, ...other, extent: 0, size: at, check };
    return {
      epoch: name.epoch,
      incarnation: name.incarnation,
      seq: asSeq(name.seq + 1),
      at: asVersion(at),
      resume: kind === "none" ? { kind } : kind === "table" ? { kind, table } : { kind: "batch", batch },
      ...(rest ? { rest } : {}),
    };
  });

function mapOf<T>(value: fc.Arbitrary<T>, maxLength = 3): fc.Arbitrary<Map<string, T>> {
  return fc.array(fc.tuple(producerId, value), { maxLength }).map((entries) => new Map(entries));
}

const group: fc.Arbitrary<CheckpointGroup> = fc.record({
  live: mapOf(fc.record({ row: whole.map(asRow), iteration: whole, at: whole.map(asVersion) })),
  released: fc.array(producerId, { maxLength: 3 }),
  rest: unknown,
});

const pin: fc.Arbitrary<Pin> = fc.record({
  fork: uuid,
  uri: fc.string(),
  created: whole,
  confirmed: fc.boolean(),
  from: whole.map(asStep),
  to: whole.map(asStep),
  root: nodeRef,
  rest: unknown,
});

export const manifest: fc.Arbitrary<Manifest> = fc
  .record({
    namespace: uuid,
    version: whole.map(asVersion),
    commit: fc.record({ id: id12, by: fc.string(), time: whole }),
    trim: fc.nat({ max: 1000 }),
    closed: fc.boolean(),
    deleted: fc.constantFrom(undefined, true as const),
    index: levels,
    tail: run({ minLength: 0, maxLength: 3 }),
    waiting: fc.array(fc.tuple(whole.map(asStep), descriptor), { maxLength: 2 }).map((entries) => new Map(entries)),
    producers: mapOf(producerState),
    tables: fc.array(nodeRef, { maxLength: 2 }),
    checkpoints: mapOf(group, 2),
    pins: mapOf(pin, 2),
    settings: fc.option(fc.record({ maxLag: whole, rest: unknown }), { nil: undefined }),
    starving: fc.option(whole.map(asStep), { nil: undefined }),
    orphanCutoff: whole.map(asVersion),
    boundaryHint: whole,
    rest: unknown,
  })
  .map(({ trim, ...fields }) => {
    const end = asStep(fields.tail.start + fields.tail.batches.length);
    return { ...fields, steps: { trim: asStep(Math.min(trim, end)), end } };
  });

export const namespaceSpec: fc.Arbitrary<NamespaceSpec> = fc
  .tuple(
    fc.record({
      format: fc.constantFrom(1, 2),
      uuid,
      grid: fc.record({ rows: fc.integer({ min: 1, max: 256 }), chunks: fc.integer({ min: 1, max: 256 }) }),
      order: fc.oneof(
        fc.constant({ kind: "commit" } as const),
        fc.integer({ min: 1, max: 4096 }).map((lanes) => ({ kind: "lanes", lanes }) as const),
      ),
      created: whole,
      rest: unknown,
    }),
    fc.option(
      fc.record({
        origins: fc.array(
          fc.record({
            uuid,
            uri: fc.webUrl(),
            format: fc.constantFrom(1, 2),
            root: nodeRef,
            ranges: fc.array(fc.record({ at: whole.map(asStep), count: whole, from: whole.map(asStep) }), {
              maxLength: 3,
            }),
            via: fc.option(fc.array(fc.nat({ max: 9 }), { maxLength: 3 }), { nil: undefined }),
          }),
          { maxLength: 2 },
        ),
        tail: run({ minLength: 0, maxLength: 3 }),
        trim: fc.constantFrom(undefined, asStep(0)),
        ancestors: fc.constant([
          {
            uuid: "00000000-1111-4222-8333-444444444444",
            uri: "x:",
            ranges: [{ at: asStep(1), count: 2, from: asStep(3) }],
          },
        ]),
        tables: fc.array(nodeRef, { maxLength: 2 }),
      }),
      { nil: undefined },
    ),
  )
  .map(([spec, fork]) => (fork ? { ...spec, fork } : spec));

export const table: fc.Arbitrary<Map<string, SilentProducer>> = mapOf(
  fc.record({ state: producerState, resumePoint: json.map((v) => v ?? undefined) }),
);

export const root: fc.Arbitrary<IndexRoot> = fc.record({ index: levels, tail: run({ minLength: 0, maxLength: 3 }) });
