/** Checkpoints and reclaim in their smallest correct form, until the product's own take these seats. */
import {
  asRow,
  asStep,
  asVersion,
  batchKey,
  batchPrefix,
  boundaryKey,
  type Cursor,
  descriptorKeys,
  encodeBoundary,
  indexPrefix,
  type Manifest,
  manifestKey,
  manifestPrefix,
  nodeRefKey,
  parseBatchKey,
  parseIndexKey,
  parseManifestKey,
  type Version,
} from "../src/format/index.js";
import type { Log } from "../src/log/index.js";

const releasedMax = 64;

/** Commits a checkpoint and releases all but the newest `keepLast`. False: it is below the trim, or was released before. */
export async function commitCheckpoint(
  log: Log,
  group: string,
  id: string,
  cursor: Cursor,
  keepLast: number,
): Promise<boolean> {
  const { result } = await log.commit<undefined, boolean>(
    {
      by: `checkpoint ${id}`,
      stage: (draft) => {
        const before = draft.checkpoints.get(group);
        if (before?.live.has(id)) return { done: true, result: true };
        if (before?.released.includes(id) || cursor.row < draft.trim * log.spec.grid.rows)
          return { done: true, result: false };
        const live = new Map(before?.live);
        live.set(id, { row: asRow(cursor.row), iteration: cursor.iteration, at: draft.version });
        const oldest = [...live].sort(([, a], [, b]) => a.row - b.row);
        const released = [...(before?.released ?? [])];
        for (const [old] of oldest.slice(0, Math.max(0, live.size - keepLast))) {
          live.delete(old);
          released.push(old);
        }
        draft.checkpoints.set(group, { ...before, live, released: released.slice(-releasedMax) });
        return { done: false, result: live.has(id) };
      },
    },
    { fresh: true },
  );
  return result;
}

/** One round: commit trim and cutoff, announce, delete. `cutoff` is a version that was the head long enough ago. */
export async function reclaimOnce(log: Log, cutoff: Version): Promise<void> {
  if (cutoff === 0) return;
  const { manifest } = await log.commit<undefined, undefined>(
    {
      by: "reclaim log",
      stage: (draft) => {
        let oldest = Number.POSITIVE_INFINITY;
        for (const { live } of draft.checkpoints.values())
          for (const { row } of live.values()) oldest = Math.min(oldest, Math.floor(row / log.spec.grid.rows));
        const trim = Number.isFinite(oldest) ? Math.max(draft.trim, oldest) : draft.trim;
        const done = trim === draft.trim && cutoff <= draft.orphanCutoff;
        draft.trim = asStep(trim);
        draft.orphanCutoff = asVersion(Math.max(draft.orphanCutoff, cutoff));
        return { done, result: undefined };
      },
    },
    { fresh: true },
  );
  const upTo = await announce(log, asVersion(Math.min(manifest.orphanCutoff, manifest.version - 1)));
  await deleteDead(log, manifest, upTo);
}

/** Raises the boundary to `upTo` unless it is there already; returns what the chain says then. */
async function announce(log: Log, upTo: number): Promise<number> {
  const { boundary } = log.head;
  for (;;) {
    const found = await boundary.look();
    if (found >= upTo) return found;
    const marker = { n: boundary.newest.n + 1, upTo: asVersion(upTo) };
    const outcome = await log.store.create(boundaryKey(marker.n), encodeBoundary(log.spec.uuid, marker));
    // 412 or unknown: the chain says whose it is.
    if (outcome === "unknown") await log.env.sleep(100);
  }
}

async function deleteDead(log: Log, manifest: Manifest, upTo: number): Promise<void> {
  const live = await liveKeys(log, manifest);
  await deleteListed(log, manifestPrefix, manifestKey(asVersion(upTo)), (key) => {
    const version = parseManifestKey(key);
    return version !== undefined && version <= upTo && version < manifest.version;
  });
  const isDead = (key: string, base: number | undefined): boolean =>
    base !== undefined && base < manifest.orphanCutoff && !live.has(key);
  await deleteListed(log, indexPrefix, undefined, (key) => isDead(key, parseIndexKey(key)?.base));
  await deleteListed(log, batchPrefix, undefined, (key) => isDead(key, parseBatchKey(key)?.name.base));
}

async function deleteListed(
  log: Log,
  prefix: string,
  last: string | undefined,
  isDead: (key: string) => boolean,
): Promise<void> {
  let startAfter: string | undefined;
  for (;;) {
    const page = await log.store.list(prefix, { startAfter });
    const dead = page.objects.map(({ key }) => key).filter(isDead);
    if (dead.length > 0) await log.store.delete(dead);
    startAfter = page.objects.at(-1)?.key;
    if (!page.more || startAfter === undefined || (last !== undefined && startAfter > last)) return;
  }
}

async function liveKeys(log: Log, manifest: Manifest): Promise<ReadonlySet<string>> {
  const keys = new Set<string>();
  for (let step: number = manifest.steps.trim; step < manifest.steps.end; step++)
    for (const key of descriptorKeys((await log.locate(manifest, asStep(step))).descriptor)) keys.add(key);
  for (const descriptor of manifest.waiting.values()) for (const key of descriptorKeys(descriptor)) keys.add(key);
  for (const [producer, { resume }] of manifest.producers) {
    if (resume.kind === "batch") keys.add(batchKey({ producer, ...resume.batch }, resume.batch.extent));
    if (resume.kind === "table") keys.add(nodeRefKey(resume.table));
  }
  for (const { refs } of manifest.index) for (const ref of refs) keys.add(nodeRefKey(ref));
  for (const ref of manifest.tables) keys.add(nodeRefKey(ref));
  return keys;
}
