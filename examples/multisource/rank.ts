/** One rank of the example's training job: reads the log to its end and says what it saw. `node rank.js URI RANK` */
import { createHash } from "node:crypto";
import { decodeSafetensors, openNamespace, tensorValues } from "batchweave";

const [uri = "", rank = "0"] = process.argv.slice(2);
const ns = await openNamespace(uri);
await using consumer = await ns.consumer({ mesh: { dp: 4, cp: 2 }, rank: Number(rank), waitTimeoutMs: 120_000 });
const digest = createHash("sha256");
let [iterations, tokens, images] = [0, 0, 0];
for await (const share of consumer) {
  iterations++;
  for (const slice of share.slices) {
    digest.update(slice.bytes);
    const { tensors } = decodeSafetensors(slice.bytes, "share");
    const segments = tensors.get("segment_ids");
    if (segments) tokens += (tensorValues(segments) as Int32Array).reduce((n, id) => n + (id > 0 ? 1 : 0), 0);
    images += tensors.get("image_rank")?.shape[0] ?? 0;
  }
}
console.log(
  JSON.stringify({ rank: Number(rank), iterations, tokens, images, digest: digest.digest("hex").slice(0, 16) }),
);
