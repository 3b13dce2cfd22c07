/**
 * Properties: the seqs of a producer are contiguous, and within an incarnation a seq is bound to its content. Method: staging, which is pure,
 * on a base where the next seq is 1.
 */
import { expect, test } from "vitest";
import {
  asEpoch,
  asSeq,
  asVersion,
  type Descriptor,
  genesisManifest,
  type NamespaceSpec,
} from "../../src/format/index.js";
import { Draft } from "../../src/log/draft.js";
import { stageBatches, stageOpening } from "../../src/log/stage.js";

const spec: NamespaceSpec = {
  format: 1,
  uuid: "0d0c7a3e-5d1c-4f5e-9a53-2f4d2f6d8a11",
  grid: { rows: 1, chunks: 1 },
  order: { kind: "commit" },
  created: 0,
  rest: {},
};
const holder = { producer: "p", epoch: 1, incarnation: "aaaaaaaaaaaa" };

function batch(seq: number, check = 7): Descriptor {
  return {
    ...holder,
    epoch: asEpoch(1),
    seq: asSeq(seq),
    base: asVersion(0),
    attempt: 0,
    extents: [{ cells: 1, size: 200, table: 96, check }],
  };
}

/** A draft in which seq 0 is in. */
function draft(): Draft {
  const draft = new Draft(genesisManifest(spec), { id: "c00000000000", by: "p", time: 0, boundaryHint: 0 });
  stageOpening(draft, "p", holder.incarnation, undefined);
  expect(stageBatches(draft, spec, holder, [batch(0)])).toEqual(["staged"]);
  return draft;
}

test("hazard 12: a gap in the sequence is refused, and nothing after it is staged", () => {
  const d = draft();
  expect(() => stageBatches(d, spec, holder, [batch(2)])).toThrow(/leaves a gap/);
  expect(d.end).toBe(1);
  expect(stageBatches(d, spec, holder, [batch(0), batch(1), batch(2)])).toEqual(["in", "staged", "staged"]);
});

test("hazard 13: the same seq with other content fails hard", () => {
  expect(() => stageBatches(draft(), spec, holder, [batch(0, 8)])).toThrow(/other content/);
});
