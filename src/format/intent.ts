/**
 * Intents: hints that batches are uploaded, or that a producer wants to be opened, or has closed, so that the next committer can carry them.
 * All of it is in the name, so one LIST finds a thousand and no GET is needed; the object itself is empty.
 *
 *   intent/<h>/<producer>-<epoch>-<seq>-<incarnation><attempt>-<base>-<extents>[_<extents>…]-<crc>
 *   intent/<h>/<producer>-<epoch before>-open-<incarnation>-<crc>
 *   intent/<h>/<producer>-<epoch>-left-<incarnation>-<crc>
 *
 * `h` is one hex digit of the producer's hash: 16 shards. `<extents>` is `<cells>.<size>.<table>.<check>[-…][s<stride>]`; each further one is of the
 * batch with the next seq, and leaves out what is as in the batch before it. `crc` is of the namespace uuid and the name before it, so that
 * a garbled or foreign name is skipped. A batch of more extents than a name can hold has no intent: its owner commits it.
 */
import { asEpoch, asSeq, asVersion, type Epoch } from "./brand.js";
import { crc32OfText } from "./crc.js";
import { type Descriptor, type Extent, isStride } from "./descriptor.js";
import { crcText } from "./json-object.js";
import { intentPrefix, isName } from "./keys.js";

/** A producer that wants to be opened by the next committer. */
export interface OpeningIntent {
  readonly producer: string;
  /** The epoch it saw: carried only while that is still so, or a late intent would fence its successor. */
  readonly before: Epoch;
  readonly incarnation: string;
}

/** A producer that closed. */
export interface LeavingIntent {
  readonly producer: string;
  readonly epoch: Epoch;
  readonly incarnation: string;
}

/** What a name says. */
export type Intent =
  /** At least one; consecutive, and alike in all but seq and extents. */
  | { readonly kind: "batches"; readonly batches: readonly [Descriptor, ...Descriptor[]] }
  | { readonly kind: "opening"; readonly opening: OpeningIntent }
  | { readonly kind: "leaving"; readonly leaving: LeavingIntent };

/** Bytes of an intent's last key segment at most; file systems allow 255. */
const nameBytesMax = 240;

/** Shards of the intent prefix. */
export const intentShards = 16;

/** Prefix of one shard. */
export function intentShard(number: number): string {
  return `${intentPrefix}${number.toString(16)}/`;
}

function shardOf(producer: string): string {
  return intentShard(crc32OfText(producer) % intentShards);
}

function seal(namespace: string, producer: string, name: string): string {
  return `${shardOf(producer)}${name}-${crcText(crc32OfText(`${namespace}/${name}`))}`;
}

/** What becomes of batches that are to be announced. */
interface BatchIntents {
  /** Keys of the intents, each of as many batches as its name holds. */
  readonly keys: readonly string[];
  /** Batches whose extents do not fit into a name. */
  readonly unnamed: readonly Descriptor[];
}

/** Intents of a producer's batches, which are given in the order of seq. */
export function batchIntents(namespace: string, batches: readonly Descriptor[]): BatchIntents {
  const keys: string[] = [];
  const unnamed: Descriptor[] = [];
  let name = "";
  let last: Descriptor | undefined;
  const end = (): void => {
    if (last) keys.push(seal(namespace, last.producer, name));
    last = undefined;
  };
  for (const batch of batches) {
    const longer: string = last && follows(last, batch) ? `${name}_${extentsText(batch, last)}` : "";
    if (longer !== "" && fits(longer)) {
      name = longer;
      last = batch;
      continue;
    }
    end();
    name = `${batch.producer}-${batch.epoch}-${batch.seq}-${batch.incarnation}${batch.attempt}-${batch.base}-${extentsText(batch)}`;
    if (fits(name)) last = batch;
    else unnamed.push(batch);
  }
  end();
  return { keys, unnamed };
}

function fits(name: string): boolean {
  return name.length + 9 <= nameBytesMax;
}

function follows(before: Descriptor, batch: Descriptor): boolean {
  return (
    batch.seq === before.seq + 1 &&
    batch.producer === before.producer &&
    batch.epoch === before.epoch &&
    batch.incarnation === before.incarnation &&
    batch.attempt === before.attempt &&
    batch.base === before.base
  );
}

const extentFields = ["cells", "size", "table", "check"] as const;

function extentsText(batch: Descriptor, before?: Descriptor): string {
  const text = (extent: Extent, i: number): string =>
    extentFields.map((field) => (before?.extents[i]?.[field] === extent[field] ? "" : extent[field])).join(".");
  const { stride } = batch;
  const ending = stride === undefined ? "" : `s${before?.stride === stride ? "" : stride}`;
  return batch.extents.map(text).join("-") + ending;
}

/** Key of an opening's intent. */
export function openingIntentKey(namespace: string, o: OpeningIntent): string {
  return seal(namespace, o.producer, `${o.producer}-${o.before}-open-${o.incarnation}`);
}

/** Key of the intent of a producer that closed. */
export function leavingIntentKey(namespace: string, l: LeavingIntent): string {
  return seal(namespace, l.producer, `${l.producer}-${l.epoch}-left-${l.incarnation}`);
}

const batchesName =
  /^(.+)-(\d+)-(\d+)-([0-9a-v]{12})(\d+)-(\d+)-(\d+\.\d+\.\d+\.\d+(?:s\d+)?(?:[-_]\d*\.\d*\.\d*\.\d*(?:s\d*)?)*)$/;
const openingName = /^(.+)-(\d+)-open-([0-9a-v]{12})$/;
const leavingName = /^(.+)-(\d+)-left-([0-9a-v]{12})$/;

/** A number as it is written here: decimal, without leading zeros, and exact. */
function exact(text: string): number | undefined {
  const value = Number(text);
  return Number.isSafeInteger(value) && String(value) === text ? value : undefined;
}

/** Reads an intent's key; undefined for anything that is not exactly one of this namespace: hints are skipped, never fatal. */
export function parseIntentKey(namespace: string, key: string): Intent | undefined {
  const match = /^intent\/[0-9a-f]\/(.+)-([0-9a-f]{8})$/.exec(key);
  const name = match?.[1];
  if (name === undefined || crcText(crc32OfText(`${namespace}/${name}`)) !== match?.[2]) return undefined;
  const opening = openingName.exec(name);
  if (opening) {
    const [, producer, epoch = "", incarnation = ""] = opening;
    const before = exact(epoch);
    if (before === undefined || !isName(producer)) return undefined;
    return { kind: "opening", opening: { producer, before: asEpoch(before), incarnation } };
  }
  const leaving = leavingName.exec(name);
  if (leaving) {
    const [, producer, text = "", incarnation = ""] = leaving;
    const epoch = exact(text);
    if (epoch === undefined || !isName(producer)) return undefined;
    return { kind: "leaving", leaving: { producer, epoch: asEpoch(epoch), incarnation } };
  }
  const batches = parseBatches(name);
  return batches && { kind: "batches", batches };
}

function parseBatches(name: string): [Descriptor, ...Descriptor[]] | undefined {
  const match = batchesName.exec(name);
  if (!match) return undefined;
  const [, producer, , , incarnation = "", , , listed = ""] = match;
  const numbers = [2, 3, 5, 6].map((i) => exact(match[i] as string));
  if (!isName(producer) || !numbers.every((n) => n !== undefined)) return undefined;
  const [epoch, first, attempt, base] = numbers as [number, number, number, number];
  const batches: Descriptor[] = [];
  for (const text of listed.split("_")) {
    const before = batches.at(-1);
    const [, listedExtents = "", strideText] = /^([^s]*)(?:s(.*))?$/.exec(text) ?? [];
    const extents = listedExtents.split("-").map((extent, i) => parseExtent(extent, before?.extents[i]));
    const seq = first + batches.length;
    if (!extents.every((extent) => extent !== undefined) || !Number.isSafeInteger(seq)) return undefined;
    const stride = strideText === "" ? before?.stride : exact(strideText ?? "");
    if (strideText !== undefined && !isStride(stride)) return undefined;
    batches.push({
      producer,
      epoch: asEpoch(epoch),
      seq: asSeq(seq),
      incarnation,
      attempt,
      base: asVersion(base),
      extents,
      ...(strideText === undefined ? {} : { stride }),
    });
  }
  return batches as [Descriptor, ...Descriptor[]];
}

/** A field left out is as in the extent of the batch before; without one the name says nothing. */
function parseExtent(text: string, before?: Extent): Extent | undefined {
  const values = text
    .split(".")
    .map((field, i) => (field === "" ? before?.[extentFields[i] as "cells"] : exact(field)));
  if (values.includes(undefined)) return undefined;
  const [cells, size, table, check] = values as [number, number, number, number];
  return { cells, size, table, check };
}
