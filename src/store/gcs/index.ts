/**
 * store/gcs: objects in Google Cloud Storage, by Google's SDK.
 *
 * Owns: `gs://`.
 * May import: errors, env, store, store/cloud.
 * Promises: what the store promises; the SDK's retries are off.
 */
export { type GcsStoreSettings, openGcsStore } from "./gcs-store.js";
