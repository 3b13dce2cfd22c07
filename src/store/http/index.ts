/**
 * store/http: HTTP/1.1 to one server.
 *
 * Owns: connections, timeouts and limits around undici, and the account of a failure.
 * May import: env, store.
 * Promises: a request is sent once; whether the server may have seen it is told; no answer is larger or slower than was said; nothing of undici's own errors gets out.
 */
export { HttpClient } from "./http-client.js";
export { type HttpAnswer, HttpFailure, HttpProtocolError, HttpTimeout } from "./message.js";
