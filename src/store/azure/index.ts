/**
 * store/azure: objects in Azure Blob Storage, by Microsoft's SDK.
 *
 * Owns: `az://`.
 * May import: errors, env, store, store/cloud.
 * Promises: what the store promises; the SDK's retries are off.
 */
export { type AzureStoreSettings, openAzureStore } from "./azure-store.js";
