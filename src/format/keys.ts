/** Names of stored objects. Keys are derived from state, never stored in it. */
import { BatchWeaveError } from "../errors.js";
import type { Epoch, Seq, Version } from "./brand.js";
import { crc32OfText } from "./crc.js";

/** What identifies one upload of a batch: all that its key is made of, except the extent. */
export interface BatchName {
  readonly producer: string;
  readonly epoch: Epoch;
  readonly seq: Seq;
  readonly incarnation: string;
  /** Counts uploads of the same bytes; with the incarnation it makes the key's nonce. */
  readonly attempt: number;
  /** Manifest version known when the upload began. */
  readonly base: Version;
}

export const namespaceKey = "namespace.json";
/** Below it, one folder for each life of a place: a namespace that is deleted and made again shares no key with its former self. */
export const livesPrefix = "life/";
export const manifestPrefix = "manifest/";
export const boundaryPrefix = "boundary/";
export const indexPrefix = "index/";
export const batchPrefix = "batch/";
export const intentPrefix = "intent/";

/** Where everything of a namespace but `namespace.json` is, relative to its place: in version 1 of the format right beside it. */
export function lifeFolder({ format, uuid }: { readonly format: 1 | 2; readonly uuid: string }): string {
  return format === 1 ? "" : `${livesPrefix}${uuid}`;
}

/** 20 digits, so that byte order is number order. */
export function digits20(n: number): string {
  return n.toString().padStart(20, "0");
}

/** Key of a manifest version. */
export function manifestKey(version: Version): string {
  return `${manifestPrefix}${digits20(version)}.json`;
}

/** The version in a manifest's key, or undefined for a foreign name. */
export function parseManifestKey(key: string): Version | undefined {
  const match = /^manifest\/(\d{20})\.json$/.exec(key);
  return match && Number.isSafeInteger(Number(match[1])) ? (Number(match[1]) as Version) : undefined;
}

/** Key of the n-th boundary marker. */
export function boundaryKey(n: number): string {
  return `${boundaryPrefix}${digits20(n)}.json`;
}

/** Key of the k-th index object (segment, node, table, root) that a commit attempt wrote. */
export function indexKey(base: Version, commitId: string, k: number): string {
  return `${indexPrefix}${digits20(base)}-${commitId}-${k}.json`;
}

/** The base version in an index object's key, or undefined for a foreign name. */
export function parseIndexKey(key: string): { base: Version; commitId: string; k: number } | undefined {
  const match = /^index\/(\d{20})-([0-9a-v]{12})-(\d+)\.json$/.exec(key);
  if (!match) return undefined;
  const parts = { base: Number(match[1]) as Version, commitId: match[2] as string, k: Number(match[3]) };
  return indexKey(parts.base, parts.commitId, parts.k) === key ? parts : undefined;
}

/** `<producer>-<epoch>-<seq>-<nonce>`: one upload of one batch. */
export function batchStem(name: BatchName): string {
  return `${name.producer}-${name.epoch}-${name.seq}-${name.incarnation}${name.attempt}`;
}

/** Two hex digits that spread batches over 256 prefixes. */
export function batchHash(stem: string): string {
  return (crc32OfText(stem) & 0xff).toString(16).padStart(2, "0");
}

/** Key of one extent of a batch. */
export function batchKey(name: BatchName, extent: number): string {
  const stem = batchStem(name);
  return `${batchPrefix}${batchHash(stem)}/${digits20(name.base)}/${stem}.${extent}.tgb`;
}

/** The parts of a batch object's key, or undefined for a foreign name. */
export function parseBatchKey(key: string): { name: BatchName; extent: number } | undefined {
  const match = /^batch\/([0-9a-f]{2})\/(\d{20})\/(.+)-(\d+)-(\d+)-([0-9a-v]{12})(\d+)\.(\d+)\.tgb$/.exec(key);
  if (!match) return undefined;
  const name: BatchName = {
    producer: match[3] as string,
    epoch: Number(match[4]) as Epoch,
    seq: Number(match[5]) as Seq,
    incarnation: match[6] as string,
    attempt: Number(match[7]),
    base: Number(match[2]) as Version,
  };
  // Also refuses a wrong hash, leading zeros and numbers too large to be exact.
  return batchKey(name, Number(match[8])) === key ? { name, extent: Number(match[8]) } : undefined;
}

/** Whether a value can be a producer id, a checkpoint id or a group. */
export function isName(value: unknown): value is string {
  return typeof value === "string" && /^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$/.test(value) && value !== "__proto__";
}

/** Producer ids, checkpoint ids and groups become parts of keys and JSON: letters, digits, `.`, `_`, `-`, 1 to 64 of them. */
export function assertName(value: string, what: string): void {
  if (isName(value)) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `${what} ${JSON.stringify(value)} is not allowed: use 1 to 64 letters, digits, dots, underscores or hyphens, starting with a letter, a digit or an underscore.`,
    { what, value },
  );
}
