/**
 * Property: a mistyped start of a consumer or source of a mix does not compile, and what the compiler did not see is refused when it runs.
 * Method: wrong code under `@ts-expect-error`, which `tsc -p tsconfig.test.json` refuses where the code would compile; it runs here too.
 */
import { expect, test } from "vitest";
import { createNamespace, type StartFrom } from "../src/index.js";
import {
  callbackMix,
  definePipeline,
  iterable,
  type Pipeline,
  type Strategy,
  stagedMix,
  staticMix,
  warmUpMix,
} from "../src/plan/index.js";

const refused = { code: "INVALID_ARGUMENT" };

test("a place to start from is one of those that there are", async () => {
  const ns = await createNamespace("memory:typed-start", { grid: { rows: 1, chunks: 1 } });
  const open = async (from: StartFrom): Promise<number> =>
    (await ns.consumer({ mesh: { dp: 1 }, rank: 0, from })).cursor.row;
  expect(await open("latest")).toBe(0);
  // @ts-expect-error a word that is mistyped
  await expect(open("earlest")).rejects.toMatchObject(refused);
  // @ts-expect-error a field that is mistyped
  await expect(open({ steps: 3 })).rejects.toMatchObject(refused);
  // @ts-expect-error the number of a checkpoint is not its id
  await expect(open({ checkpoint: 20 })).rejects.toMatchObject({ code: "NO_CHECKPOINT" });
  // @ts-expect-error a cursor that was saved as text goes through parseCursor
  await expect(open(String(7))).rejects.toMatchObject(refused);
});

test("a mix names sources of its own pipeline", () => {
  const base = {
    namespace: { uri: "memory:typed-mix", grid: { rows: 1, chunks: 1 } },
    construct: { seqLength: 8 },
  };
  const shard = (): never => {
    throw new Error("never opened");
  };
  const sources = { web: iterable({ open: shard }), code: iterable({ open: shard }) };
  const define = (strategy: Strategy<"web" | "code">): Pipeline => definePipeline({ ...base, sources, strategy });
  define((graph) => graph.mix(staticMix({ web: 1 })).balance());
  define((graph) => graph.mix(warmUpMix({ from: { web: 1 }, to: { web: 1, code: 1 }, over: 4 })));
  define((graph) => graph.mix(callbackMix(() => ({ web: 1, code: 2 }))));
  const staged = stagedMix([
    { from: 0, weights: { web: 1 } },
    { from: 3, weights: { code: 1 } },
  ]);
  expect(staged.sources).toEqual(["web", "code"]);
  define((graph) => graph.mix(staged));
  definePipeline({ ...base, sources, strategy: (graph) => graph.mix(staticMix({ code: 1, web: 1 })) });
  // @ts-expect-error wbe is no source
  define((graph) => graph.mix(staticMix({ web: 1, wbe: 1 })));
  // @ts-expect-error wbe is no source
  definePipeline({ ...base, sources, strategy: (graph) => graph.mix(staticMix({ web: 1, wbe: 1 })) });
  // @ts-expect-error cod is no source
  define((graph) => graph.balance().mix(stagedMix([{ from: 0, weights: { web: 1, cod: 1 } }])));
  // @ts-expect-error wbe is no source
  define((graph) => graph.mix(warmUpMix({ from: { web: 1 }, to: { wbe: 1 }, over: 4 })));
  // @ts-expect-error wbe is no source
  define((graph) => graph.mix(callbackMix(() => ({ web: 1, wbe: 1 }))));
});
