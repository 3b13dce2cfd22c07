/**
 * store/file: objects as files.
 *
 * Owns: `file:`: names in folders, whole files by link(2), listings, removal.
 * May import: errors, env, flow, store.
 * Promises: a create has one winner across processes; no reader sees part of a file; a crash leaves at most a temporary file, which is swept.
 */
export { type Durability, type FileStore, type FileStoreSettings, openFileStore } from "./file-store.js";
export { foldersHolding } from "./folders.js";
