/** The thread in which slices are built: packing and encoding share no thread with reading, planning and committing. */
import { parentPort, workerData } from "node:worker_threads";
import { isBatchWeaveError } from "../../index.js";
import { ClientPlaceTree } from "../graph/place-tree.js";
import { DataConstructor } from "./data-constructor.js";
import { decodeSliceMessage } from "./slice-message.js";
import type { SliceAnswer, SliceRequest, SliceShape } from "./slice-thread.js";

const { grid, mesh, settings } = workerData as SliceShape;
const construct = new DataConstructor(grid, new ClientPlaceTree(mesh), settings);
/** Batches of which not all slices were asked for yet. */
const begun = new Map<number, Iterator<Uint8Array>>();

function answerTo({ id, batch, content, count }: SliceRequest): SliceAnswer {
  try {
    const left = content ? construct.slices(decodeSliceMessage(content)) : begun.get(batch);
    const slices: Uint8Array[] = [];
    for (let next = left?.next(); next && !next.done; next = slices.length < count ? left?.next() : undefined)
      slices.push(next.value);
    if (left && count > 0 && slices.length === count) begun.set(batch, left);
    else begun.delete(batch);
    return { id, slices };
  } catch (error) {
    begun.delete(batch);
    const message = error instanceof Error ? error.message : String(error);
    return { id, slices: [], error: { code: isBatchWeaveError(error) ? error.code : undefined, message } };
  }
}

parentPort?.on("message", (request: SliceRequest) => {
  const answer = answerTo(request);
  parentPort?.postMessage(
    answer,
    answer.slices.map(({ buffer }) => buffer as ArrayBuffer),
  );
});
