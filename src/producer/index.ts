/**
 * producer: from a user's slices to committed batches.
 *
 * Owns: the buffer, encoding and uploading of batches, tickets, backpressure, resume points going in.
 * May import: errors, env, observe, format, store, log, cadence.
 * Promises: batches are committed in the order they were appended, each once; bytes are kept until the batch was seen committed;
 * nothing that was uploaded is ever deleted or overwritten here.
 */
export type { BatchSlices } from "./batch-input.js";
export { type AppendOptions, Producer, type Ticket } from "./producer.js";
export type { ProducerObserver } from "./producer-observer.js";
export type { ProducerSettings } from "./producer-settings.js";
