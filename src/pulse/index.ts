/**
 * pulse: hints of life. Every process that works on a log may leave one small object beside it now and then.
 *
 * Owns: when a pulse is written, what is deleted with it, and reading all of them.
 * May import: errors, env, format, store.
 * Promises: about twelve writes a minute for the whole fleet, however large it is; never in the way of work: a pulse that cannot be written is counted
 * and forgotten; nothing depends on one, and any of them may be deleted at any time.
 */
export { type PulseEntry, PulseReader, removeGonePulses } from "./pulse-reader.js";
export { Pulse, type PulseNews, type PulseRole, type PulseSettings, startPulse } from "./pulse-writer.js";
