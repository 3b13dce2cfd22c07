/**
 * dashboard: a page in the browser over one namespace, or all below a place. Reads only.
 *
 * Owns: the local server, who may ask it, what it answers, and how often the store is asked for that.
 * May import: index, plan. The public names, as any user.
 * Promises: writes nothing; answers only requests with the token; a view costs a bounded number of requests however large the log is, and many pages
 * cost what one costs; a store that does not answer is said within seconds, and what was seen before stays on the page.
 */
export { sliceTexts } from "./preview.js";
export { type Dashboard, type DashboardSettings, serveDashboard } from "./server.js";
export type { TextView } from "./views.js";
