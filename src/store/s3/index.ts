/**
 * store/s3: objects in S3 and in whatever speaks its protocol.
 *
 * Owns: requests, signatures, the XML, uploads in parts, and what S3's answers mean.
 * May import: errors, env, flow, store, store/http.
 * Promises: a conditional create is one PUT, sent once; what its answer does not say is `unknown`. No key, token or signature is ever in a message.
 */
export type { S3Credentials, S3Encryption, S3StoreSettings } from "./s3-place.js";
export { openS3Store } from "./s3-store.js";
