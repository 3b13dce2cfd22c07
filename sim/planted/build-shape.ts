/**
 * Sizes of the code as settings of a run. A fan-out of 64 takes 262,144 steps to a second level of nodes, which no simulated minute reaches; with
 * 4 it takes 64. The product has one size of each and no parameter for it: another one is an edit of a copy of the build, as a planted bug is.
 */
import { spawn } from "node:child_process";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { indexFanout } from "../../src/format/index.js";
import { laneAheadMax } from "../../src/log/index.js";
import { pageKeysMax } from "../store/sim-store.js";
import { type Edit, plant } from "./planted.js";

/** The sizes. */
export interface BuildShape {
  /** Steps of a segment, and references of a node. */
  readonly fanout: number;
  /** Batches that a lane may be ahead. */
  readonly laneAhead: number;
  /** Keys of a LIST page. */
  readonly listPage: number;
}

/** The sizes of the build that runs. */
export const ownShape: BuildShape = { fanout: indexFanout, laneAhead: laneAheadMax, listPage: pageKeysMax };
/** The sizes that are shipped. */
export const shippedShape: BuildShape = { fanout: 64, laneAhead: 64, listPage: 1000 };

/** Whether the build that runs has these sizes. */
export function isOwnShape({ fanout, laneAhead, listPage }: BuildShape): boolean {
  return fanout === ownShape.fanout && laneAhead === ownShape.laneAhead && listPage === ownShape.listPage;
}

/** What gives the shipped build other sizes. */
export function shapeEdits(shape: BuildShape): Edit[] {
  const edits: Edit[] = [];
  const constant = (file: string, name: string, shipped: string, wanted: number): void => {
    const find = `const ${name} = ${shipped};`;
    const replace = `const ${name} = ${wanted};`;
    if (Number(shipped.replace("_", "")) !== wanted) edits.push({ file, find, replace });
  };
  constant("src/format/index-node.js", "indexFanout", "64", shape.fanout);
  constant("src/log/stage.js", "laneAheadMax", "64", shape.laneAhead);
  constant("sim/store/sim-store.js", "pageKeysMax", "1000", shape.listPage);
  // Whoever asks for pages asks for as large ones as there are.
  constant("src/log/head.js", "listPageMax", "1_000", shape.listPage);
  constant("src/log/intents.js", "pageKeys", "1_000", shape.listPage);
  return edits;
}

/** Runs the simulator of a copy that has these sizes, with the same arguments; resolves to its exit status. */
export async function runReshaped(dist: string, shape: BuildShape, argv: readonly string[]): Promise<number> {
  if (!isOwnShape(shippedShape)) throw new Error("this build has other sizes already; start from the shipped one");
  const folder = plant(dist, { name: "sizes of the run", hazard: "sizes", edits: shapeEdits(shape) });
  try {
    return await new Promise((resolve, reject) => {
      const main = join(folder, "dist/sim/main.js");
      const child = spawn(process.execPath, [main, ...argv], { stdio: "inherit" });
      const stop = (): void => void child.kill("SIGTERM");
      process.once("SIGTERM", stop).once("SIGINT", stop);
      child.on("error", reject);
      child.on("close", (code) => {
        process.off("SIGTERM", stop).off("SIGINT", stop);
        resolve(code ?? 1);
      });
    });
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
