/**
 * Intents: hints that a batch is uploaded, or that a producer wants to be opened, so that whoever commits next can carry it.
 * All of it is in the name, so one LIST finds a thousand and no GET is needed; the object itself is empty.
 *
 *   intent/<h>/<producer>-<epoch>-<seq>-<incarnation><attempt>-<base>-<cells>.<size>.<table>.<check>[-…]-<crc>
 *   intent/<h>/<producer>-<epoch before>-open-<incarnation>-<crc>
 *
 * `h` is one hex digit of the producer's hash: 16 shards. `crc` is of the namespace uuid and the name before it, so that a garbled or
 * foreign name is skipped. A batch of more extents than a name can hold has no intent: its owner commits it.
 */
import { asEpoch, asSeq, asVersion, type Epoch } from "./brand.js";
import { crc32 } from "./crc.js";
import type { Descriptor, Extent } from "./descriptor.js";
import { crcText } from "./json-object.js";
import { intentPrefix } from "./keys.js";

/** A producer that wants to be opened by whoever commits next. */
export interface OpeningIntent {
  readonly producer: string;
  /** The epoch it saw: carried only while that is still so, or a late intent would fence its successor. */
  readonly before: Epoch;
  readonly incarnation: string;
}

/** What a name says. */
export type Intent =
  | { readonly kind: "batch"; readonly batch: Descriptor }
  | { readonly kind: "opening"; readonly opening: OpeningIntent };

/** Bytes of an intent's last key segment at most; file systems allow 255. */
const nameBytesMax = 240;

/** Shards of the intent prefix. */
export const intentShards = 16;

/** Prefix of one shard. */
export function intentShard(number: number): string {
  return `${intentPrefix}${number.toString(16)}/`;
}

function shardOf(producer: string): string {
  return intentShard(crc32(Buffer.from(producer)) % intentShards);
}

function seal(namespace: string, producer: string, name: string): string {
  return `${shardOf(producer)}${name}-${crcText(crc32(Buffer.from(`${namespace}/${name}`)))}`;
}

/** Key of a batch's intent; undefined when its extents do not fit into a name. */
export function batchIntentKey(namespace: string, d: Descriptor): string | undefined {
  const extents = d.extents.map((e) => `${e.cells}.${e.size}.${e.table}.${e.check}`).join("-");
  const name = `${d.producer}-${d.epoch}-${d.seq}-${d.incarnation}${d.attempt}-${d.base}-${extents}`;
  return name.length + 9 > nameBytesMax ? undefined : seal(namespace, d.producer, name);
}

/** Key of an opening's intent. */
export function openingIntentKey(namespace: string, o: OpeningIntent): string {
  return seal(namespace, o.producer, `${o.producer}-${o.before}-open-${o.incarnation}`);
}

const batchName = /^(.+)-(\d+)-(\d+)-([0-9a-v]{12})(\d+)-(\d+)((?:-\d+\.\d+\.\d+\.\d+)+)$/;
const openingName = /^(.+)-(\d+)-open-([0-9a-v]{12})$/;

/** Reads an intent's key; undefined for anything that is not exactly one of this namespace: hints are skipped, never fatal. */
export function parseIntentKey(namespace: string, key: string): Intent | undefined {
  const match = /^intent\/[0-9a-f]\/(.+)-([0-9a-f]{8})$/.exec(key);
  const name = match?.[1];
  if (name === undefined || crcText(crc32(Buffer.from(`${namespace}/${name}`))) !== match?.[2]) return undefined;
  const opening = openingName.exec(name);
  if (opening) {
    return {
      kind: "opening",
      opening: {
        producer: opening[1] as string,
        before: asEpoch(Number(opening[2])),
        incarnation: opening[3] as string,
      },
    };
  }
  const batch = batchName.exec(name);
  if (!batch) return undefined;
  return {
    kind: "batch",
    batch: {
      producer: batch[1] as string,
      epoch: asEpoch(Number(batch[2])),
      seq: asSeq(Number(batch[3])),
      incarnation: batch[4] as string,
      attempt: Number(batch[5]),
      base: asVersion(Number(batch[6])),
      extents: (batch[7] as string).slice(1).split("-").map(parseExtent),
    },
  };
}

function parseExtent(text: string): Extent {
  const [cells, size, table, check] = text.split(".").map(Number) as [number, number, number, number];
  return { cells, size, table, check };
}
