/** A transform of the example's own: plain functions, run in worker threads. */
import type { TarSample } from "batchweave/plan";

/** A caption and its picture from the files of a WebDataset sample. */
export function caption({ files }: TarSample): { text: string; image: Uint8Array } {
  const { txt, jpg } = files;
  if (!txt || !jpg) throw new Error("a sample needs a .txt and a .jpg");
  return { text: new TextDecoder().decode(txt), image: jpg };
}
