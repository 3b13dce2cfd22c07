/** Keeps large writes from taking every thread that file calls run on. */

/** Threads of Node's pool for file calls: libuv's default, or what the process was started with. */
const threads = Math.max(1, Math.trunc(Number(process.env["UV_THREADPOOL_SIZE"])) || 4);

/**
 * Large writes at a time. Two more than there are threads: while the bytes of one write are being prepared and another's callback waits for its turn, no thread
 * stands idle. But no more: calls of the pool are served in order, so a commit or a look at the log, a handful of short calls one after another, would wait
 * behind all uploads each time.
 */
export const bulkWritesMax: number = threads + 2;
