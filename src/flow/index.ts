/**
 * flow: how many at a time.
 *
 * Owns: the two shapes of a limit on concurrent work: a {@link Gate} that calls pass as they come, and {@link inParallel} over work that is known.
 * May import: nothing of ours.
 * Promises: never more under way than was said; a call that fails gives the place back; a failure is thrown when nothing is under way any more.
 */
export { Gate } from "./gate.js";
export { inParallel, mapParallel } from "./parallel.js";
