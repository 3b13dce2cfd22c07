/**
 * Property: the file store keeps the contract of every store; its layout is what the guide says; failures of the disk are clear and leave
 * nothing half-visible; leftovers of dead processes are invisible and go away.
 * Method: the conformance suite in both durability settings, real small and read-only mounts, files planted by hand.
 */
import {
  chmodSync,
  existsSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  symlinkSync,
  utimesSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { type Durability, type FileStore, openFileStore } from "../../src/store/index.js";
import { bytes, describeStoreConformance, listAll, noise } from "./conformance.js";
import { makeFolder, mountTmpfs, remount, removeFolder, unmount, whyNoMounts } from "./temporary-folder.js";

for (const durability of ["power-loss", "process-crash"] satisfies Durability[]) {
  describeStoreConformance(`file (${durability})`, async () => {
    const folder = makeFolder();
    const store = await openFileStore(join(folder, "not", "yet"), systemEnv, { durability });
    return { store, close: async () => removeFolder(folder) };
  });
}

const temps = ".tmp~";
let folder: string;
let store: FileStore;
beforeEach(async () => {
  folder = makeFolder();
  store = await openFileStore(folder, systemEnv);
});
afterEach(() => removeFolder(folder));

describe("layout", () => {
  test("an object is one plain file under its key, and no temporary file stays", async () => {
    await store.create("batch/ab/7/x.tgb", [bytes("one"), bytes("two")]);
    await store.put("batch/ab/7/y.tgb", bytes("y"));
    await store.create("batch/ab/7/x.tgb", bytes("late"));
    expect(readFileSync(join(folder, "batch/ab/7/x.tgb"), "utf8")).toBe("onetwo");
    expect(readdirSync(join(folder, temps))).toEqual([]);
  });

  test("opening writes nothing, and the first write makes the folder", async () => {
    const path = join(folder, "a/b");
    const fresh = await openFileStore(path, systemEnv);
    expect(await fresh.get("x")).toBeUndefined();
    expect(await listAll(fresh, "")).toEqual([]);
    await fresh.delete(["x", "y/z"]);
    expect(existsSync(join(folder, "a"))).toBe(false);
    await fresh.put("x", bytes("x"));
    expect(existsSync(join(path, "x"))).toBe(true);
  });

  test("emptied folders go, and whatever somebody deletes below the root is made again", async () => {
    await store.put("a/b/c/d", bytes("1"));
    await store.delete(["a/b/c/d"]);
    expect(readdirSync(folder)).toEqual([temps]);
    await store.put("a/b/c/d", bytes("2"));
    removeFolder(folder);
    expect(await store.create("a/b/c/d", bytes("3"))).toBe("created");
    expect(await store.get("a/b/c/d")).toEqual(bytes("3"));
  });

  test("deletes that are not urgent leave the folders near the root to those who write; others take them along", async () => {
    const keys = ["a/b/c/d", "a/b/c/e", "x/y"];
    for (const key of keys) await store.put(key, bytes("1"));
    await store.delete(["a/b/c/d", "a/b/c/none", "n/n/n"], { hint: true });
    expect(await listAll(store, "")).toEqual(["a/b/c/e", "x/y"]);
    await store.delete(["a/b/c/e", "x/y"], { hint: true });
    expect(readdirSync(folder, { recursive: true }).sort()).toEqual([temps, "a", "a/b", "x"].sort());
    await store.put("a/b/c/d", bytes("2"));
    await store.delete(["a/b/c/d", "x/none"]);
    expect(readdirSync(folder)).toEqual([temps]);
  });

  test("many deletes that are not urgent let others have their turn", async () => {
    const keys = Array.from({ length: 600 }, (_, i) => `many/${i % 7}/${i % 50}/${i}`);
    await Promise.all(keys.map((key) => store.put(key, bytes("1"), { hint: true })));
    let turns = 0;
    const timer = setInterval(() => turns++, 0);
    await store.delete(keys, { hint: true });
    clearInterval(timer);
    expect(await listAll(store, "many/")).toEqual([]);
    expect(turns).toBeGreaterThan(0);
    const stop = AbortSignal.abort("mine");
    await expect(store.delete(keys, { hint: true, signal: stop })).rejects.toBe("mine");
  });

  test("what is no object is not listed and not read: links, odd names, temporary files of a store below", async () => {
    writeFileSync(join(folder, "editor~"), "x");
    writeFileSync(join(folder, "with space"), "x");
    symlinkSync("/etc/passwd", join(folder, "link"));
    symlinkSync("/etc", join(folder, "etc"));
    const below = await openFileStore(join(folder, "below"), systemEnv);
    await below.put("x", bytes("x"));
    writeFileSync(join(folder, "below", temps, "left"), "x");
    expect(await listAll(store, "")).toEqual(["below/x"]);
    expect(await store.get("link")).toBeUndefined();
    await expect(store.create("link", bytes("x"))).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("a key that is the folder of another, or goes through another, is refused with the path", async () => {
    await store.put("a/b", bytes("x"));
    for (const key of ["a", "a/b/c"]) {
      for (const write of [() => store.create(key, bytes("y")), () => store.put(key, bytes("y"))]) {
        const e = await write().catch((error: unknown) => error);
        expect(isBatchWeaveError(e, "INVALID_ARGUMENT") && e.message.includes(join(folder, key)), String(e)).toBe(true);
      }
    }
    expect(await listAll(store, "")).toEqual(["a/b"]);
    expect(readdirSync(join(folder, temps))).toEqual([]);
  });

  test("a segment longer than the file system takes is refused", async () => {
    await expect(store.create("n".repeat(300), bytes("x"))).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
  });

  test("a root that is a file is refused, a root that is a link to a folder is fine", async () => {
    writeFileSync(join(folder, "file"), "x");
    await expect(openFileStore(join(folder, "file"), systemEnv)).rejects.toMatchObject({ code: "INVALID_ARGUMENT" });
    mkdirSync(join(folder, "real"));
    symlinkSync(join(folder, "real"), join(folder, "alias"));
    const alias = await openFileStore(join(folder, "alias"), systemEnv);
    await alias.put("x", bytes("x"));
    expect(await listAll(alias, "")).toEqual(["x"]);
    await expect(openFileStore(folder, systemEnv, { durability: "maybe" as Durability })).rejects.toMatchObject({
      code: "INVALID_ARGUMENT",
    });
  });
});

test("a folder of 20,000 objects is listed in order, page by page, from anywhere", async () => {
  mkdirSync(join(folder, "manifest"));
  const keys = Array.from({ length: 20_000 }, (_, i) => `manifest/${String(i * 3).padStart(20, "0")}.json`);
  for (const key of keys) writeFileSync(join(folder, key), "");
  expect(await listAll(store, "manifest/")).toEqual(keys);
  const page = await store.list("manifest/", { startAfter: `manifest/${"29999".padStart(20, "0")}`, limit: 2 });
  expect(page).toEqual({ objects: [10_000, 10_001].map((i) => ({ key: keys[i], size: 0 })), more: true });
});

describe("leftovers of killed processes", () => {
  const age = (path: string, days: number): void => {
    const then = systemEnv.now() / 1000 - days * 86_400;
    utimesSync(path, then, then);
  };
  /** The name a process of this machine with that pid would have used. */
  const nameOf = async (pid: number): Promise<string> => {
    const seen = new Set<string>();
    const writes = Array.from({ length: 8 }, (_, i) => store.put(`big/${i}`, noise(1_000_000, i)));
    while (seen.size === 0) {
      if (existsSync(join(folder, temps))) for (const name of readdirSync(join(folder, temps))) seen.add(name);
      await new Promise((resolve) => setImmediate(resolve));
    }
    await Promise.all(writes);
    const [scope, own, ...rest] = ([...seen][0] as string).split(".");
    expect(Number(own)).toBe(process.pid);
    return [scope, pid, ...rest].join(".");
  };

  test("of a dead process of this machine go at the next opening; those of a living one and of other machines stay", async () => {
    const dead = await nameOf(2 ** 22 + 1); // above the kernel's largest pid
    const alive = await nameOf(process.ppid);
    const foreign = `other_1.${2 ** 22 + 1}.abc.0`;
    for (const name of [dead, alive, foreign]) writeFileSync(join(folder, temps, name), "torn");
    await openFileStore(folder, systemEnv);
    expect(readdirSync(join(folder, temps)).sort()).toEqual([alive, foreign].sort());
    expect((await listAll(store, "")).filter((key) => !key.startsWith("big/"))).toEqual([]);
  });

  test("of unknown owners go after a day", async () => {
    await store.put("x", bytes("x"));
    for (const [name, days] of [
      ["other_1.5.abc.0", 1.1],
      ["garbage", 2],
      ["other_1.5.abc.1", 0.9],
    ] as const) {
      writeFileSync(join(folder, temps, name), "torn");
      age(join(folder, temps, name), days);
    }
    await openFileStore(folder, systemEnv);
    expect(readdirSync(join(folder, temps))).toEqual(["other_1.5.abc.1"]);
  });

  test("a writer whose temporary file was swept away fails and has written nothing", async () => {
    await store.put("x", bytes("x"));
    let isDone = false;
    const outcomes = Promise.allSettled(
      Array.from({ length: 40 }, (_, i) => store.create(`k/${i}`, noise(400_000, i))),
    );
    void outcomes.then(() => {
      isDone = true;
    });
    while (!isDone) {
      for (const name of readdirSync(join(folder, temps))) removeFolder(join(folder, temps, name));
      await new Promise((resolve) => setImmediate(resolve));
    }
    let failed = 0;
    for (const [i, one] of (await outcomes).entries()) {
      const stored = await store.get(`k/${i}`);
      if (one.status === "rejected") {
        expect([one.reason.code, stored]).toEqual(["STORE_UNAVAILABLE", undefined]);
        failed++;
      } else {
        expect([one.value, stored?.byteLength]).toEqual(["created", 400_000]);
      }
    }
    expect(failed).toBeGreaterThan(0);
  });
});

describe("a disk that refuses", () => {
  const why = whyNoMounts();

  test("full: STORE_FULL with path and remedy, nothing visible, no temporary file, and it works again after a delete", async (context) => {
    if (why) return context.skip(why);
    mountTmpfs(folder, "size=1m");
    try {
      await store.put("small", noise(300_000));
      for (const call of [() => store.create("a/big", noise(900_000)), () => store.put("a/big", noise(900_000))]) {
        const e = await call().catch((error: unknown) => error);
        if (!isBatchWeaveError(e, "STORE_FULL")) throw e;
        expect(e.message).toContain(join(folder, "a/big"));
        expect(e.message).toMatch(/free space/);
      }
      expect(await listAll(store, "")).toEqual(["small"]);
      expect(await store.get("a/big")).toBeUndefined();
      expect(readdirSync(join(folder, temps))).toEqual([]);
      await store.delete(["small"]);
      expect(await store.create("a/big", noise(900_000))).toBe("created");
    } finally {
      unmount(folder);
    }
  });

  test("out of inodes: the same, wherever it strikes", async (context) => {
    if (why) return context.skip(why);
    for (const inodes of [2, 3, 4]) {
      mountTmpfs(folder, `size=1m,nr_inodes=${inodes}`);
      try {
        const outcome = await store.create("a/b", bytes("x")).catch((e: unknown) => isBatchWeaveError(e) && e.code);
        expect(["STORE_FULL", "created"]).toContain(outcome);
        expect(await listAll(store, "")).toEqual(outcome === "created" ? ["a/b"] : []);
      } finally {
        unmount(folder);
      }
    }
  });

  test("read-only: STORE_DENIED with path and remedy on every write, reads go on", async (context) => {
    if (why) return context.skip(why);
    mountTmpfs(folder, "size=1m");
    try {
      await store.put("a/b", bytes("x"));
      remount(folder, "ro");
      const fresh = await openFileStore(folder, systemEnv);
      for (const one of [store, fresh]) {
        const writes = [
          () => one.create("a/c", bytes("y")),
          () => one.put("a/c", bytes("y")),
          () => one.delete(["a/b"]),
        ];
        for (const write of writes) {
          const e = await write().catch((error: unknown) => error);
          if (!isBatchWeaveError(e, "STORE_DENIED")) throw e;
          expect(e.message).toContain(`${folder}/a/`);
          expect(e.message).toMatch(/read-write/);
        }
        expect(await one.get("a/b")).toEqual(bytes("x"));
        expect(await listAll(one, "")).toEqual(["a/b"]);
      }
    } finally {
      unmount(folder);
    }
  });

  test("missing permission: STORE_DENIED, for root's tests as an ordinary user", async (context) => {
    const isRoot = process.geteuid?.() === 0;
    if (isRoot && !process.seteuid)
      return context.skip("tests run in a thread as root, whom permission bits do not bind");
    chmodSync(folder, 0o755);
    mkdirSync(join(folder, "locked"), { mode: 0o500 });
    const locked = await openFileStore(join(folder, "locked"), systemEnv);
    try {
      if (isRoot) process.seteuid?.(65_534);
      await expect(locked.create("a", bytes("x"))).rejects.toMatchObject({ code: "STORE_DENIED" });
      await expect(locked.create("b/c", bytes("x"))).rejects.toMatchObject({ code: "STORE_DENIED" });
    } finally {
      if (isRoot) process.seteuid?.(0);
    }
    expect(readdirSync(join(folder, "locked"))).toEqual([]);
  });
});
