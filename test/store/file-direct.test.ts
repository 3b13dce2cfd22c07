/**
 * Property: what goes past the kernel's cache is what was given, whatever its length and however it is cut; the rest is told, so that the ordinary
 * write can follow; and a file system that takes no direct writes is asked once.
 * Method: files written by the class itself and read back; lengths around blocks and areas; a file of /proc, which refuses direct writes.
 */
import fs, {
  closeSync,
  constants,
  openSync,
  readdirSync,
  readFileSync,
  renameSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { DirectWrites, isOneWrite, writeRest } from "../../src/store/file/direct-write.js";
import { openFileStore } from "../../src/store/index.js";
import { noise } from "./conformance.js";
import { makeFolder, removeFolder } from "./temporary-folder.js";

const block = 4096;
const area = 4 * 1024 * 1024;
let folder: string;
beforeEach(() => {
  folder = makeFolder();
});
afterEach(() => {
  for (const fd of open.splice(0)) closeSync(fd);
  removeFolder(folder);
});

/** Cuts at odd places, with an empty part in between. */
function parts(body: Uint8Array): Uint8Array[] {
  const cuts = [0, 1, 1, 3_000, Math.floor(body.length / 2) + 1, body.length - 3, body.length];
  return cuts.slice(1).map((end, i) => body.subarray(cuts[i], end));
}

const open: number[] = [];
function opened(path: string, flags: number | undefined): number {
  const fd = openSync(path, flags ?? "w");
  open.push(fd);
  return fd;
}

const lengths = [2 * block, 300_000, 1_000_000, area - 1, area, area + 1, 2 * area + block, 9_000_001];
test.runIf(process.platform === "linux").each(lengths)("whole blocks of %i bytes", async (length) => {
  const body = noise(length);
  const path = join(folder, "object");
  const direct = new DirectWrites(1);
  const fd = opened(path, direct.flags(length));
  const written = await direct.write(fd, parts(body));
  expect(written).toBe(length - (length % block));
  expect(Buffer.compare(readFileSync(path), body.subarray(0, written))).toBe(0);
  expect(await writeRest(fd, parts(body), written)).toBe(written < length);
  expect(Buffer.compare(readFileSync(path), body)).toBe(0);
});

test.runIf(process.platform === "linux")("what one write takes is durable by that write, and nothing else", () => {
  const direct = new DirectWrites(1);
  const durable = lengths.filter((length) => ((direct.flags(length) ?? 0) & constants.O_DSYNC) === constants.O_DSYNC);
  expect(durable).toEqual([2 * block, area]);
  expect(lengths.filter(isOneWrite)).toEqual(durable);
});

test.each(lengths)("an object of %i bytes, in place, renamed and created", async (length) => {
  const body = noise(length);
  const store = await openFileStore(folder, systemEnv);
  await store.put("in/place", parts(body), { unknownKey: true });
  await store.put("renamed", body);
  expect(await store.create("created", parts(body))).toBe("created");
  for (const key of ["in/place", "renamed", "created"]) {
    expect(statSync(join(folder, key)).size).toBe(length);
    expect(Buffer.compare((await store.get(key)) ?? new Uint8Array(), body)).toBe(0);
  }
});

test("more at a time than there are areas, and none of them mixed up", async () => {
  const store = await openFileStore(folder, systemEnv);
  const bodies = Array.from({ length: 24 }, (_, i) => new Uint8Array(300_000 + 7 * i).fill(i + 1));
  await Promise.all(bodies.map((body, i) => store.put(`many/${i}`, body, { unknownKey: true })));
  for (const [i, body] of bodies.entries())
    expect(Buffer.compare((await store.get(`many/${i}`)) ?? new Uint8Array(), body)).toBe(0);
});

test.runIf(process.platform === "linux")(
  "while all areas are in use the next file is opened for direct writes too",
  async () => {
    const direct = new DirectWrites(1);
    const writing = direct.write(opened(join(folder, "object"), direct.flags(block)), [noise(block)]);
    expect(direct.flags(block)).toBeDefined();
    await writing;
  },
);

test.runIf(process.platform === "linux")("only the file that is open, whatever has its name by now", async () => {
  const path = join(folder, "object");
  const direct = new DirectWrites(1);
  const body = noise(2 * block + 1);
  const fd = opened(path, direct.flags(body.length));
  renameSync(path, join(folder, "moved"));
  writeFileSync(path, "another's");
  expect(await direct.write(fd, [body])).toBe(2 * block);
  await writeRest(fd, [body], 2 * block);
  expect(readFileSync(path, "utf8")).toBe("another's");
  expect(Buffer.compare(readFileSync(join(folder, "moved")), body)).toBe(0);
});

test.runIf(process.platform === "linux")("refused once, never tried again", async () => {
  const direct = new DirectWrites(2);
  expect(direct.flags(block)).toBeDefined();
  // It answers EINVAL to what is no number, as a device does to blocks that are too small for it.
  expect(await direct.write(opened("/proc/self/oom_score_adj", undefined), [noise(block)])).toBe(0);
  expect(direct.flags(block)).toBeUndefined();
});

test.runIf(process.platform === "linux")(
  "another failure is left to the ordinary write, and is no refusal",
  async () => {
    const direct = new DirectWrites(1);
    expect(direct.flags(2 * block)).toBeDefined();
    expect(await direct.write(-1, [noise(2 * block)])).toBe(0);
    const fd = opened(join(folder, "object"), direct.flags(2 * block));
    expect(await direct.write(fd, [noise(2 * block)])).toBe(2 * block);
  },
);

test.runIf(process.platform === "linux").each(["EMFILE", "ENFILE"])(
  "%s: with no second descriptor to be had, large objects of any length are stored",
  async (code) => {
    const { openSync: openNow } = fs;
    const refused: number[] = [];
    const store = await openFileStore(folder, systemEnv);
    fs.openSync = (path, ...rest) => {
      if (!String(path).startsWith("/proc/self/fd/")) return openNow(path, ...rest);
      refused.push(1);
      throw Object.assign(new Error(code), { code, syscall: "open" });
    };
    syncBuiltinESMExports();
    try {
      for (const length of [300_000, area + 1]) {
        const body = noise(length);
        await store.put(`in/place/${length}`, parts(body), { unknownKey: true });
        await store.put(`put/${length}`, body);
        expect(await store.create(`created/${length}`, body)).toBe("created");
        for (const key of [`in/place/${length}`, `put/${length}`, `created/${length}`])
          expect(Buffer.compare((await store.get(key)) ?? new Uint8Array(), body)).toBe(0);
      }
    } finally {
      fs.openSync = openNow;
      syncBuiltinESMExports();
    }
    expect(refused.length).toBe(6);
    expect(readdirSync(join(folder, ".tmp~"))).toEqual([]);
  },
);

test.runIf(process.platform === "linux")(
  "where /proc is not mounted, large objects of any length are stored",
  async () => {
    const { existsSync: exists, openSync: openNow } = fs;
    const isHidden = (path: unknown): boolean => String(path).startsWith("/proc/");
    fs.existsSync = (path) => !isHidden(path) && exists(path);
    fs.openSync = (path, ...rest) => openNow(isHidden(path) ? join(folder, "no such file") : path, ...rest);
    syncBuiltinESMExports();
    try {
      const store = await openFileStore(folder, systemEnv);
      for (const length of [300_000, area, area + 1]) {
        const body = noise(length);
        await store.put(`in/place/${length}`, parts(body), { unknownKey: true });
        expect(await store.create(`created/${length}`, body)).toBe("created");
        for (const key of [`in/place/${length}`, `created/${length}`])
          expect(Buffer.compare((await store.get(key)) ?? new Uint8Array(), body)).toBe(0);
      }
    } finally {
      Object.assign(fs, { existsSync: exists, openSync: openNow });
      syncBuiltinESMExports();
    }
  },
);
