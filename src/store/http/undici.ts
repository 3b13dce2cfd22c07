/**
 * The parts of undici that we use. Its main file would also install its own agent for the global `fetch`, which then refuses requests of Node 20's
 * `fetch` that name a content-length: a library must not change its user's `fetch`, so the two classes are taken from their own files.
 */
import type { buildConnector as BuildConnector, Client as ClientType, Pool as PoolType } from "undici";
// @ts-expect-error -- undici describes only its main file; the types above are these classes' own
import connect from "undici/lib/core/connect.js";
// @ts-expect-error -- as above
import client from "undici/lib/dispatcher/client.js";
// @ts-expect-error -- as above
import pool from "undici/lib/dispatcher/pool.js";

export const buildConnector: typeof BuildConnector = connect;
export const Client: typeof ClientType = client;
export const Pool: typeof PoolType = pool;
