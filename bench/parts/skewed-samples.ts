/**
 * Samples whose lengths are as skewed as those of MegaScale-Data's figure 2: an image and its text, or text alone.
 *
 * coyo700m is public. Text: the paper has 98.23 % of the samples at 64 tokens or less and 9.3 % of the tokens in the rest; one log-normal
 * distribution has both (median 12.4, deviation 0.78; its mean is 16.8, and the data set's card says 17.2). Images: the data set's card draws
 * how many have which shorter side; read off below. Its means of width and height (622 and 541) leave an aspect ratio of about 1.4 on average.
 * Patches of 16 x 16 pixels. navit is not public: longer texts, chosen; the same images, in the paper's patches of 14 x 14.
 *
 * Images keep their resolution, as the paper says ("does not regulate the number of visual tokens"), unless the sample would not fit a sequence.
 */
import { type SampleMeta, SeededRandom } from "../../src/plan/index.js";

/** A data set: texts by median and deviation of the logarithm, and the side of a patch in pixels. */
export interface Skew {
  readonly text: readonly [median: number, deviation: number];
  readonly patchPixels: number;
}

export const skews: Readonly<Record<"coyo" | "navit", Skew>> = {
  coyo: { text: [12.4, 0.7815], patchPixels: 16 },
  navit: { text: [120, 1.3], patchPixels: 14 },
};

/** Millions of coyo700m's images by shorter side: 200 to 299 pixels, 300 to 399, …; the last holds everything from 2,000 on. */
const shorterSides = [207, 153, 107, 74, 68, 38, 27, 12, 23, 4, 8, 3, 2.5, 3, 1.5, 1, 1, 1, 13];
const imagesTotal = shorterSides.reduce((a, b) => a + b, 0);

function drawPatches(random: SeededRandom, pixels: number): number {
  let rest = random.unit() * imagesTotal;
  let bin = 0;
  while (bin < shorterSides.length - 1 && rest >= (shorterSides[bin] as number)) rest -= shorterSides[bin++] as number;
  const side = 200 + 100 * (bin + random.unit());
  const aspect = 1 + 0.75 * random.unit();
  return Math.ceil(side / pixels) * Math.ceil((side * aspect) / pixels);
}

function drawText(random: SeededRandom, [median, deviation]: readonly [number, number], max: number): number {
  return Math.max(1, Math.min(max, Math.round(median * Math.exp(deviation * random.normal()))));
}

/**
 * `count` samples: text, or an image and its text. None is longer than `tokensMax`. `patchesPerToken`: how many patches the encoder's output
 * merges into one token of the backbone (1: none; 4: two by two, as many vision-language models do).
 */
export function skewedSamples(
  count: number,
  kind: {
    readonly skew: Skew;
    readonly images: boolean;
    readonly tokensMax: number;
    readonly patchesPerToken?: number;
  },
  seed: string,
): SampleMeta[] {
  const random = new SeededRandom("skewed", seed);
  const { patchesPerToken = 1 } = kind;
  return Array.from({ length: count }, (_, i) => {
    const text = drawText(random, kind.skew.text, kind.tokensMax / (kind.images ? 2 : 1));
    if (!kind.images) return { source: "text", id: String(i), tokens: text };
    const image = Math.min(drawPatches(random, kind.skew.patchPixels), (kind.tokensMax - text) * patchesPerToken);
    return { source: "pairs", id: String(i), tokens: text + Math.ceil(image / patchesPerToken), images: [image] };
  });
}
