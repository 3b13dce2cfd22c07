/**
 * Samples whose lengths are as skewed as those of MegaScale-Data's figure 2. The paper gives two numbers for coyo700m's text: 98.23 % of the
 * samples have at most 64 tokens, and the rest hold 9.3 % of the tokens. One log-normal distribution has both (median 12.4 tokens, deviation
 * 0.78). Image patches, and everything of navit, are only drawn in the paper: theirs are chosen to be about as skewed.
 */
import { type SampleMeta, SeededRandom } from "../../src/plan/index.js";

/** A data set by its log-normal lengths: median and deviation of the logarithm. */
export interface Skew {
  readonly text: readonly [median: number, deviation: number];
  readonly image: readonly [median: number, deviation: number];
}

export const skews: Readonly<Record<"coyo" | "navit", Skew>> = {
  coyo: { text: [12.4, 0.7815], image: [300, 0.9] },
  navit: { text: [120, 1.3], image: [256, 1.1] },
};

/** Larger images are scaled down, as vision-language models do: 1,024 x 1,024 pixels in patches of 16. */
const patchesMax = 4096;

function draw(random: SeededRandom, [median, deviation]: readonly [number, number], max: number): number {
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
  return Array.from({ length: count }, (_, i) => {
    const text = draw(random, kind.skew.text, kind.tokensMax / (kind.images ? 2 : 1));
    if (!kind.images) return { source: "text", id: String(i), tokens: text };
    const { patchesPerToken = 1 } = kind;
    const image = draw(random, kind.skew.image, Math.min(patchesMax, (patchesPerToken * kind.tokensMax) / 2));
    return { source: "pairs", id: String(i), tokens: text + Math.ceil(image / patchesPerToken), images: [image] };
  });
}
