/** What is known about a sample without its payload: all that planning ever sees. */

/** Metadata of one sample, small and JSON-safe. */
export interface SampleMeta {
  /** The source it came from. */
  readonly source: string;
  /** The source's own name for it. */
  readonly id: string;
  /** Length of its sequence in the backbone, image tokens included. */
  readonly tokens: number;
  /** Patches of each of its images, as the encoder sees them. */
  readonly images?: readonly number[] | undefined;
  /** Bytes of its payload as the loader holds it. */
  readonly bytes?: number | undefined;
  /** Anything else a cost function wants to know. */
  readonly features?: Readonly<Record<string, number>> | undefined;
}

/** Patches of all images of a sample. */
export function imageTokens(meta: SampleMeta): number {
  let sum = 0;
  for (const patches of meta.images ?? []) sum += patches;
  return sum;
}
