/**
 * Property: over the ranks of any mesh every cell of the log is delivered exactly once and in order, iterations agree on all ranks,
 * and a cursor carries over to any other mesh, policy, layout or batch size. Method: project whole logs onto random meshes,
 * changing the mesh on the way, and compare with the plain order of rows; range plans against the bytes they should bring.
 */
import fc from "fast-check";
import { describe, expect, test } from "vitest";
import {
  assertProjection,
  type ChunkLayout,
  type IterationPlan,
  type Mesh,
  type Policy,
  type Projection,
  placeRank,
  planIteration,
  planRanges,
  type RowsPerRank,
  rangeBytesMax,
  rowsOfRank,
  worldSize,
} from "../../src/consumer/index.js";
import { isBatchWeaveError } from "../../src/errors.js";

interface Leg {
  mesh: Mesh;
  policy: Policy;
  layout: ChunkLayout;
  rowsPerRank: RowsPerRank;
  iterations: number;
}

const small = fc.integer({ min: 1, max: 4 });
const schedule: fc.Arbitrary<RowsPerRank> = fc.oneof(
  fc.integer({ min: 1, max: 5 }),
  fc.array(fc.tuple(fc.integer({ min: 1, max: 6 }), fc.integer({ min: 1, max: 4 })), { maxLength: 4 }).map((steps) => {
    let from = 0;
    const ramp = steps.map(([gap, rows]): [number, number] => {
      from += gap;
      return [from, rows];
    });
    return [[0, 1] as [number, number], ...ramp];
  }),
  fc.constant((iteration: number) => 1 + (iteration % 3)),
);

/** Grids of cp 4 in zigzag and dp 4 as whole batches, so that every leg fits. */
const grids = fc.record({ rows: small.map((n) => 12 * n), chunks: small.map((n) => 24 * n) });
const legs = fc.array(
  fc.record({
    mesh: fc.record({ dp: small, cp: small, tp: fc.integer({ min: 1, max: 2 }), pp: fc.integer({ min: 1, max: 2 }) }),
    policy: fc.constantFrom<Policy>("per-rank", "per-rank", "global-batch"),
    layout: fc.constantFrom<ChunkLayout>("contiguous", "zigzag"),
    rowsPerRank: schedule,
    iterations: fc.integer({ min: 1, max: 6 }),
  }),
  { minLength: 1, maxLength: 4 },
);

function project(grid: Projection["grid"], leg: Leg, rank: number): Projection {
  const rowsPerRank = leg.policy === "global-batch" ? 1 : leg.rowsPerRank;
  const { policy, layout, mesh } = leg;
  const projection = { grid, policy, layout, rowsPerRank, place: placeRank(mesh, rank) };
  assertProjection(projection);
  return projection;
}

/** Cells of an iteration as global numbers, from every rank, in rank order. */
function cellNumbers(plan: IterationPlan, grid: Projection["grid"]): number[] {
  return plan.cells.map(({ step, row, chunk }) => (step * grid.rows + row) * grid.chunks + chunk);
}

test("every cell once and in order, across any change of mesh, policy, layout and batch size", () => {
  fc.assert(
    fc.property(grids, legs, (grid, list) => {
      let [row, iteration] = [0, 0];
      for (const leg of list) {
        // A whole batch can only begin where a batch begins.
        const policy = row % grid.rows === 0 ? leg.policy : "per-rank";
        for (let i = 0; i < leg.iterations; i++) {
          const at = row;
          const plans = Array.from({ length: worldSize(leg.mesh) }, (_, rank) =>
            planIteration(project(grid, { ...leg, policy }, rank), at, iteration),
          );
          const { nextRow } = plans[0] as IterationPlan;
          const expected = (nextRow - row) * grid.chunks;
          const peers = (leg.mesh.tp ?? 1) * (leg.mesh.pp ?? 1);
          const times = new Map<number, number>();
          for (const plan of plans) {
            expect([plan.nextRow, plan.iteration, plan.firstStep, plan.lastStep]).toEqual([
              nextRow,
              iteration,
              Math.floor(row / grid.rows),
              Math.floor((nextRow - 1) / grid.rows),
            ]);
            const numbers = cellNumbers(plan, grid);
            expect(numbers).toEqual([...numbers].sort((a, b) => a - b));
            for (const n of numbers) times.set(n, (times.get(n) ?? 0) + 1);
          }
          expect([...times.keys()].sort((a, b) => a - b)).toEqual(
            Array.from({ length: expected }, (_, n) => row * grid.chunks + n),
          );
          expect(new Set(times.values())).toEqual(new Set([peers]));
          row = nextRow;
          iteration++;
        }
      }
    }),
    { numRuns: 60 },
  );
});

test("rank d's rows come before rank d+1's, and tp and pp peers get the same cells", () => {
  fc.assert(
    fc.property(grids, legs, fc.nat(50), (grid, [leg], start) => {
      const { mesh } = leg as Leg;
      const rankLeg: Leg = { ...(leg as Leg), policy: "per-rank" };
      const byPlace = new Map<string, number[]>();
      for (let rank = 0; rank < worldSize(mesh); rank++) {
        const projection = project(grid, rankLeg, rank);
        const numbers = cellNumbers(planIteration(projection, start, 3), grid);
        const key = `${projection.place.d},${projection.place.c}`;
        expect(byPlace.get(key) ?? numbers).toEqual(numbers);
        byPlace.set(key, numbers);
        const rows = numbers.map((n) => Math.floor(n / grid.chunks));
        const n = rowsOfRank(projection, 3);
        expect(Math.min(...rows)).toBe(start + projection.place.d * n);
        expect(Math.max(...rows)).toBe(start + (projection.place.d + 1) * n - 1);
      }
    }),
    { numRuns: 60 },
  );
});

describe("by hand", () => {
  const base = { grid: { rows: 8, chunks: 8 }, layout: "contiguous", policy: "per-rank", rowsPerRank: 1 } as const;
  const place = (dataRanks: number, d: number, chunkRanks = 1, c = 0) => ({ dataRanks, d, chunkRanks, c });
  const rowsAndChunks = (plan: IterationPlan): [number[], number[]] => [
    [...new Set(plan.cells.map(({ step, row }) => step * 8 + row))],
    [...new Set(plan.cells.map(({ chunk }) => chunk))],
  ];

  test("8 ranks, then 6: the formula goes on where the cursor stands", () => {
    const plan = planIteration({ ...base, place: place(6, 5) }, 8, 1);
    expect(rowsAndChunks(plan)[0]).toEqual([13]);
    expect(plan.nextRow).toBe(14);
    const next = planIteration({ ...base, place: place(6, 5) }, 14, 2);
    expect(rowsAndChunks(next)[0]).toEqual([19]);
    expect([next.firstStep, next.lastStep]).toEqual([1, 2]);
  });

  test("zigzag: rank c takes groups c and 2cp-1-c; alone it takes all", () => {
    const zigzag = (cp: number, c: number): number[] =>
      rowsAndChunks(planIteration({ ...base, layout: "zigzag", place: place(1, 0, cp, c) }, 0, 0))[1];
    expect(zigzag(2, 0)).toEqual([0, 1, 6, 7]);
    expect(zigzag(2, 1)).toEqual([2, 3, 4, 5]);
    expect(zigzag(4, 1)).toEqual([1, 6]);
    expect(zigzag(1, 0)).toEqual([0, 1, 2, 3, 4, 5, 6, 7]);
  });

  test("a schedule changes the rows of a rank at its iteration", () => {
    const projection: Projection = {
      ...base,
      rowsPerRank: [
        [0, 1],
        [10, 2],
        [20, 4],
      ],
      place: place(2, 1),
    };
    expect([0, 9, 10, 19, 20, 999].map((i) => rowsOfRank(projection, i))).toEqual([1, 1, 2, 2, 4, 4]);
    expect(rowsAndChunks(planIteration(projection, 30, 10))[0]).toEqual([32, 33]);
  });

  const refused: [string, Partial<Projection>, string, RegExp][] = [
    ["cp", { place: place(1, 0, 3) }, "MESH_MISMATCH", /cp 3 .* 8 chunks .* cp can be 1, 2, 4 or 8/],
    ["cp in zigzag", { layout: "zigzag", place: place(1, 0, 8) }, "MESH_MISMATCH", /cp can be 1, 2 or 4/],
    ["dp of a batch", { policy: "global-batch", place: place(3, 0) }, "MESH_MISMATCH", /dp can be 1, 2, 4 or 8/],
    ["rows of a batch", { policy: "global-batch", rowsPerRank: 2 }, "INVALID_ARGUMENT", /does not go with/],
    ["no rows", { rowsPerRank: 0 }, "INVALID_ARGUMENT", /rowsPerRank is 0/],
    ["a late schedule", { rowsPerRank: [[5, 1]] }, "INVALID_ARGUMENT", /starts at iteration 5/],
    [
      "a falling schedule",
      {
        rowsPerRank: [
          [0, 1],
          [0, 2],
        ],
      },
      "INVALID_ARGUMENT",
      /rowsPerRank\[1\]/,
    ],
    ["an empty schedule", { rowsPerRank: [] }, "INVALID_ARGUMENT", /empty schedule/],
    ["a policy", { policy: "each" as Policy }, "INVALID_ARGUMENT", /policy must be "per-rank" or "global-batch"/],
    ["a layout", { layout: "spiral" as ChunkLayout }, "INVALID_ARGUMENT", /layout must be/],
  ];
  test.each(refused)("%s that does not fit is refused", (_, part, code, message) => {
    const call = (): void => assertProjection({ ...base, place: place(1, 0), ...part });
    expect(call).toThrow(message);
    expect(call).toThrow(expect.objectContaining({ code }));
  });

  test("a whole batch begins where a batch begins, and the error names rows that would do", () => {
    const projection: Projection = { ...base, policy: "global-batch", place: place(2, 0) };
    expect(() => planIteration(projection, 13, 0)).toThrow(/Row 13 .*row 8 \(repeats 5\) or row 16 \(skips 3\)/);
    expect(planIteration(projection, 16, 0).cells).toHaveLength(4 * 8);
  });

  test("a function that gives nonsense is refused when it does", () => {
    const projection: Projection = { ...base, rowsPerRank: (i) => (i < 2 ? 1 : 0.5), place: place(1, 0) };
    planIteration(projection, 0, 1);
    let error: unknown;
    try {
      planIteration(projection, 0, 2);
    } catch (caught) {
      error = caught;
    }
    expect(isBatchWeaveError(error, "INVALID_ARGUMENT") && error.message).toMatch(/rowsPerRank\(2\) is 0.5/);
  });
});

describe("range plans", () => {
  test("bring every wanted byte once, nothing else, and never two reads that could be one", () => {
    const lengths = fc.array(fc.integer({ min: 0, max: 40 }), { minLength: 1, maxLength: 30 });
    fc.assert(
      fc.property(lengths, fc.func(fc.boolean()), fc.integer({ min: 1, max: 200 }), (list, isWanted, bytesMax) => {
        let offset = 0;
        const all = list.map((length) => {
          const place = { offset, length };
          offset += length;
          return place;
        });
        const wanted = all.filter((_, i) => isWanted(i));
        const ranges = planRanges(wanted, bytesMax);
        expect(ranges.flatMap((range) => range.wanted)).toEqual(wanted.map((_, i) => i));
        expect(ranges.reduce((sum, r) => sum + r.length, 0)).toBe(wanted.reduce((sum, w) => sum + w.length, 0));
        for (const [i, range] of ranges.entries()) {
          for (const at of range.wanted) {
            const slice = wanted[at] as (typeof wanted)[number];
            expect(slice.offset).toBeGreaterThanOrEqual(range.offset);
            expect(slice.offset + slice.length).toBeLessThanOrEqual(range.offset + range.length);
          }
          if (range.wanted.filter((at) => wanted[at]?.length !== 0).length > 1)
            expect(range.length).toBeLessThanOrEqual(bytesMax);
          const before = ranges[i - 1];
          if (before && before.offset + before.length === range.offset)
            expect(before.length + (wanted[range.wanted[0] as number]?.length ?? 0)).toBeGreaterThan(bytesMax);
        }
      }),
    );
  });

  test("adjacent slices are one read", () => {
    const slices = Array.from({ length: 6 }, (_, i) => ({ offset: 100 + i * 10, length: 10 }));
    expect(planRanges(slices, rangeBytesMax)).toEqual([{ offset: 100, length: 60, wanted: [0, 1, 2, 3, 4, 5] }]);
  });
});
