/**
 * Pulses: small hints of life that processes leave beside a log, for people who look at all of them at once. The name says who and when, so one
 * listing tells who is there; the body says how it goes. Nothing is concluded from them.
 */

import { openJson, sealJson } from "./json-object.js";
import { isName } from "./keys.js";
import { asInteger, asRecord, asText, corrupt } from "./shape.js";

export const pulsePrefix = "pulse/";
/** Bytes of a pulse at most, its ending included. */
export const pulseBytesMax = 4_096;
/** A process that has been silent for so long is gone, however large the fleet: its pulses may be deleted. */
const goneMs = 3_600_000;

/** What the name of a pulse says. */
export interface PulseName {
  /** Lower-case letters: producer, loader, constructor, rank, reclaimer. */
  readonly role: string;
  readonly name: string;
  /** When it was written, by its writer's clock. */
  readonly atMs: number;
  /** When the next one is due, from then on. */
  readonly everyMs: number;
  /** Of the process that wrote it. */
  readonly incarnation: string;
}

/** What its body says besides. */
export interface PulseBody {
  readonly host: string;
  readonly pid: number;
  /** Where that number means something: the same for all processes that see each other's. Undefined: not told. */
  readonly machine?: string | undefined;
  readonly startedMs: number;
  /** Anything small. */
  readonly facts: Readonly<Record<string, unknown>>;
}

/** Whether a word can be a role. */
export function isRole(role: string): boolean {
  return /^[a-z]{1,16}$/.test(role);
}

/** Key of one pulse. No key is used twice. */
export function pulseKey({ role, name, atMs, everyMs, incarnation }: PulseName): string {
  return `${pulsePrefix}${role}/${name}-${atMs}-${everyMs}-${incarnation}`;
}

/** What a key says, or undefined for a foreign name. */
export function parsePulseKey(key: string): PulseName | undefined {
  const match = /^pulse\/([a-z]{1,16})\/(.+)-(\d{1,16})-(\d{1,16})-([0-9a-v]{12})$/.exec(key);
  if (!match || !isName(match[2])) return undefined;
  const found: PulseName = {
    role: match[1] as string,
    name: match[2],
    atMs: Number(match[3]),
    everyMs: Number(match[4]),
    incarnation: match[5] as string,
  };
  // Also refuses leading zeros and numbers too large to be exact.
  return pulseKey(found) === key ? found : undefined;
}

/** Two beats are missing: its process is gone, or cannot reach the store. */
export function isLatePulse({ atMs, everyMs }: PulseName, nowMs: number): boolean {
  return nowMs - atMs > 2 * everyMs + 10_000;
}

/** Silent for so long that it is not missed. */
export function isGonePulse({ atMs, everyMs }: PulseName, nowMs: number): boolean {
  return nowMs - atMs > 3 * everyMs + goneMs;
}

/** The object of a pulse. Facts that do not fit are left out, the last ones first. */
export function encodePulse(namespace: string, name: PulseName, body: PulseBody): Uint8Array {
  const { role, atMs, everyMs } = name;
  const facts = Object.entries(body.facts);
  for (let kept = facts.length; ; kept--) {
    const bytes = sealJson("pulse", namespace, {
      role,
      name: name.name,
      at: atMs,
      every: everyMs,
      host: body.host.slice(0, 255),
      pid: body.pid,
      ...(body.machine === undefined ? {} : { machine: body.machine }),
      started: body.startedMs,
      facts: Object.fromEntries(facts.slice(0, kept)),
      ...(kept < facts.length ? { cut: true } : {}),
    });
    if (bytes.length <= pulseBytesMax || kept === 0) return bytes;
  }
}

/** The body of a pulse. */
export function decodePulse(bytes: Uint8Array, where: string, namespace: string): PulseBody {
  if (bytes.length > pulseBytesMax) corrupt(where, `it has ${bytes.length} bytes, and a pulse has ${pulseBytesMax}`);
  const fields = openJson(bytes, where, "pulse", namespace);
  return {
    host: asText(fields["host"], where, "host"),
    pid: asInteger(fields["pid"], where, "pid"),
    machine: fields["machine"] === undefined ? undefined : asText(fields["machine"], where, "machine"),
    startedMs: asInteger(fields["started"], where, "started"),
    facts: asRecord(fields["facts"], where, "facts"),
  };
}
