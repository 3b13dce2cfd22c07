/**
 * Property: with `power-loss`, a call returns only after its bytes, its name and the names of new folders were synced, in that order; a
 * failing system call at any point leaves either nothing visible and an error, or the truth (`unknown` when it cannot be known).
 * Method: the system calls themselves are watched, and made to fail, one at a time.
 */
import fs from "node:fs";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { systemEnv } from "../../src/env/index.js";
import { isBatchWeaveError } from "../../src/errors.js";
import { openFileStore } from "../../src/store/index.js";
import { bytes, listAll, noise } from "./conformance.js";
import { makeFolder, removeFolder } from "./temporary-folder.js";

type Call = "open" | "write" | "writev" | "fdatasync" | "fsync" | "close" | "link" | "rename" | "unlink" | "mkdir";
type Fault = (path: string, flags: unknown) => { errno: string; after?: boolean } | undefined;
type AnyCall = (...args: unknown[]) => void;

const originals = new Map<Call, AnyCall>();
let log: string[] = [];
let faults: Partial<Record<Call, Fault>> = {};
let folder: string;
let restoreSync = (): void => {};
const paths = new Map<number, string>();
/** Descriptors whose writes return when they are durable: such a write counts as a write and a sync. */
const durable = new Set<unknown>();

/** `a/b` for a path below the root, `tmp` for a temporary file. */
function shorten(path: string): string {
  const short = path.startsWith(folder) ? path.slice(folder.length + 1) : path;
  return short.startsWith(".tmp~/") ? "tmp" : short === "" ? "." : short;
}

function watch(name: Call): void {
  const original = fs[name] as unknown as AnyCall;
  originals.set(name, original);
  (fs as unknown as Record<string, AnyCall>)[name] = (...args) => {
    const callback = args.at(-1) as (e: Error | null, result?: unknown) => void;
    const path = typeof args[0] === "number" ? (paths.get(args[0]) ?? "?") : shorten(String(args[0]));
    const target = name === "link" || name === "rename" ? shorten(String(args[1])) : path;
    const isDurableWrite = name.startsWith("write") && durable.has(args[0]);
    const fault =
      faults[name]?.(target, args[1]) ?? (isDurableWrite ? faults.fdatasync?.(target, undefined) : undefined);
    const error = Object.assign(new Error(`${fault?.errno}: planted`), { code: fault?.errno, syscall: name });
    if (fault && !fault.after) return queueMicrotask(() => callback(error));
    if (name === "open") log.push(`begin open ${target}`);
    const done = (e: Error | null, result?: unknown, ...rest: unknown[]): void => {
      log.push(`${name} ${target}${e ? " failed" : ""}`);
      if (isDurableWrite) log.push(`fdatasync ${target}${e ? " failed" : ""}`);
      if (name === "open" && !e) {
        paths.set(result as number, target);
        durable[(Number(args[1]) & fs.constants.O_DSYNC) === 0 ? "delete" : "add"](result);
      }
      if (fault) callback(error);
      else (callback as AnyCall)(e, result, ...rest);
    };
    original.call(fs, ...args.slice(0, -1), done);
  };
}

beforeEach(() => {
  folder = makeFolder();
  log = [];
  faults = {};
  for (const name of [
    "open",
    "write",
    "writev",
    "fdatasync",
    "fsync",
    "close",
    "link",
    "rename",
    "unlink",
    "mkdir",
  ] as const)
    watch(name);
  const unlinkNow = fs.unlinkSync;
  const openNow = fs.openSync;
  restoreSync = () => {
    fs.unlinkSync = unlinkNow;
    fs.openSync = openNow;
  };
  // Folders are opened without a thread, to be synced, and files a second time, for what is left when all blocks were written past the cache.
  fs.openSync = (path, ...rest) => {
    const again = /^\/proc\/self\/fd\/(\d+)$/.exec(String(path));
    const target = again ? (paths.get(Number(again[1])) ?? "?") : shorten(String(path));
    log.push(`begin open ${target}`);
    const fd = openNow(path, ...rest);
    log.push(`open ${target}`);
    paths.set(fd, target);
    durable[(Number(rest[0]) & fs.constants.O_DSYNC) === 0 ? "delete" : "add"](fd);
    return fd;
  };
  fs.unlinkSync = (path) => {
    unlinkNow(path);
    log.push(`unlink ${shorten(String(path))}`);
  };
  syncBuiltinESMExports();
});
afterEach(() => {
  for (const [name, original] of originals) (fs as unknown as Record<string, AnyCall>)[name] = original;
  restoreSync();
  syncBuiltinESMExports();
  removeFolder(folder);
});

function expectOrder(...wanted: string[]): void {
  let at = -1;
  for (const call of wanted) {
    const next = log.indexOf(call, at + 1);
    expect(next, `${call} after ${log[at] ?? "the start"} in\n${log.join("\n")}`).toBeGreaterThan(at);
    at = next;
  }
}

describe("power-loss", () => {
  test("create: bytes synced before the name, folder synced after it, parents of new folders synced", async () => {
    const store = await openFileStore(folder, systemEnv);
    await store.create("a/b/c", [bytes("1"), bytes("2")]);
    expectOrder("open tmp", "writev tmp", "fdatasync tmp", "link a/b/c", "fsync a/b");
    expectOrder("mkdir a", "fsync .");
    expectOrder("mkdir a/b", "fsync a");
    log = [];
    await store.create("a/b/d", bytes("1"));
    const calls = log.filter((call) => !/^(close|begin)/.test(call)).sort();
    expect(calls).toEqual(
      ["open tmp", "write tmp", "fdatasync tmp", "link a/b/d", "open a/b", "fsync a/b", "unlink tmp"].sort(),
    );
  });

  test("put: the same with rename", async () => {
    const store = await openFileStore(folder, systemEnv);
    await store.put("a/x", bytes("1"));
    expectOrder("write tmp", "fdatasync tmp", "rename a/x", "fsync a");
    expect(log.filter((call) => call.startsWith("unlink"))).toEqual([]);
  });

  test("put under a key nobody knows: large bytes are written and synced in place, small ones as ever", async () => {
    const store = await openFileStore(folder, systemEnv);
    const large = noise(300_000, 1);
    await store.put("a/x", large, { unknownKey: true });
    // Past the cache, then what is left of a block; the name is synced meanwhile.
    expectOrder("mkdir a", "open a/x", "write a/x", "write a/x", "fdatasync a/x");
    expectOrder("open a/x", "fsync a");
    await store.put("a/blocks", noise(327_680, 2), { unknownKey: true });
    expectOrder("open a/blocks", "write a/blocks", "fdatasync a/blocks");
    expect(log.filter((call) => call === "write a/blocks")).toHaveLength(1);
    expect(log.filter((call) => /rename|link/.test(call))).toEqual([]);
    expect(Buffer.compare((await store.get("a/x")) as Uint8Array, large)).toBe(0);
    await store.put("a/y", bytes("1"), { unknownKey: true });
    expectOrder("write tmp", "fdatasync tmp", "rename a/y", "fsync a");
  });

  test("a file system that takes no direct writes is asked once, and everything is written", async () => {
    const store = await openFileStore(folder, systemEnv);
    const asked: string[] = [];
    faults.open = (path, flags) => {
      if ((Number(flags) & fs.constants.O_DIRECT) === 0) return undefined;
      asked.push(path);
      // Some make the file all the same.
      return { errno: "EINVAL", after: true };
    };
    const large = noise(327_680, 1);
    await store.put("a/x", large);
    await store.put("a/y", large, { unknownKey: true });
    expect(asked).toEqual(["tmp"]);
    for (const key of ["a/x", "a/y"]) expect(Buffer.compare((await store.get(key)) as Uint8Array, large)).toBe(0);
    const other = await openFileStore(folder, systemEnv);
    await other.put("a/z", large, { unknownKey: true });
    expect(asked).toEqual(["tmp", "a/z"]);
    expectOrder("write a/z", "fdatasync a/z");
    expect(fs.readdirSync(join(folder, ".tmp~"))).toEqual([]);
  });

  test("put under a key nobody knows: a disk that refuses leaves nothing, and what a killed writer left is replaced", async () => {
    const store = await openFileStore(folder, systemEnv);
    const large = noise(300_000, 1);
    faults.write = () => ({ errno: "ENOSPC", after: true });
    await expect(store.put("a/x", large, { unknownKey: true })).rejects.toMatchObject({ code: "STORE_FULL" });
    faults = {};
    expect(await listAll(store, "")).toEqual([]);
    fs.mkdirSync(join(folder, "a"), { recursive: true });
    fs.writeFileSync(join(folder, "a/x"), large.subarray(0, 1_000));
    await store.put("a/x", large, { unknownKey: true });
    expect(Buffer.compare((await store.get("a/x")) as Uint8Array, large)).toBe(0);
  });

  test("put under a key nobody knows: of two at once the one that is given up leaves the other's object alone", async () => {
    const store = await openFileStore(folder, systemEnv);
    const large = noise(300_000, 1);
    const giveUp = new AbortController();
    // The first put stops between its last write and its end; the second finds its file there, and replaces it.
    let reached!: () => void;
    const atWrite = new Promise<void>((resolve) => {
      reached = resolve;
    });
    let goOn!: () => void;
    const held = new Promise<void>((resolve) => {
      goOn = resolve;
    });
    const watched = fs.write as unknown as AnyCall;
    let isFirst = true;
    (fs as unknown as Record<string, AnyCall>)["write"] = (...args) => {
      if (!isFirst) return watched(...args);
      isFirst = false;
      reached();
      void held.then(() => watched(...args));
    };
    syncBuiltinESMExports();
    const first = store.put("a/x", large, { unknownKey: true, signal: giveUp.signal });
    await atWrite;
    await store.put("a/x", large, { unknownKey: true });
    giveUp.abort(new Error("the other was faster"));
    goOn();
    await expect(first).rejects.toThrow("the other was faster");
    expect(Buffer.compare((await store.get("a/x")) as Uint8Array, large)).toBe(0);
  });

  test("a hint is written whole and removed like any object, but neither waits for a sync", async () => {
    const store = await openFileStore(folder, systemEnv);
    await store.put("a/x", bytes("1"));
    log = [];
    await store.put("a/h", bytes("2"), { hint: true });
    expect(await store.get("a/h")).toEqual(bytes("2"));
    await store.delete(["a/h"], { hint: true });
    expect(await store.get("a/h")).toBeUndefined();
    expectOrder("write tmp", "rename a/h", "unlink a/h");
    expect(log.filter((call) => /sync/.test(call))).toEqual([]);
  });

  test("a hint that is all name costs one call on a thread, and a listing of keys alone asks for no sizes", async () => {
    const store = await openFileStore(folder, systemEnv);
    await store.put("a/x", bytes("1"));
    log = [];
    await store.put("a/h", new Uint8Array(0), { hint: true });
    expect(log.filter((call) => /^[a-z]+ a\/h$/.test(call))).toEqual(["open a/h"]);
    expect(log.filter((call) => /sync|tmp/.test(call))).toEqual([]);
    expect(await store.get("a/h")).toEqual(new Uint8Array(0));
    expect((await store.list("a/")).objects).toEqual([
      { key: "a/h", size: 0 },
      { key: "a/x", size: 1 },
    ]);
    expect((await store.list("a/", { keysOnly: true })).objects.map(({ key }) => key)).toEqual(["a/h", "a/x"]);
  });

  test("a folder another process made is synced once too, for its maker may have died before that", async () => {
    fs.mkdirSync(join(folder, "a/b"), { recursive: true });
    const store = await openFileStore(folder, systemEnv);
    await store.put("a/b/c", bytes("1"));
    expect(log).toEqual(expect.arrayContaining(["fsync a/b", "fsync a", "fsync ."]));
  });

  test("a root it has to make is synced up to the first folder that was there", async () => {
    const store = await openFileStore(join(folder, "x/y"), systemEnv);
    await store.put("k", bytes("1"));
    expectOrder("mkdir x", "fsync .");
    expectOrder("mkdir x/y", "fsync x");
    expectOrder("rename x/y/k", "fsync x/y");
  });

  test("simultaneous writes to one folder share its syncs, and none returns before one that began after its link", async () => {
    const store = await openFileStore(folder, systemEnv);
    await store.put("d/0", bytes("1"));
    log = [];
    await Promise.all(
      Array.from({ length: 40 }, async (_, i) => {
        await store.create(`d/k${i}`, noise(1000, i));
        const linked = log.indexOf(`link d/k${i}`);
        const opened = log.indexOf("begin open d", linked);
        expect(opened === -1 ? -1 : log.indexOf("fsync d", opened), `k${i}`).toBeGreaterThan(linked);
      }),
    );
    expect(log.filter((call) => call === "fsync d").length).toBeLessThan(40);
  });

  test("process-crash syncs nothing", async () => {
    const store = await openFileStore(folder, systemEnv, { durability: "process-crash" });
    await store.create("a/b", bytes("1"));
    await store.put("a/c", bytes("1"));
    await store.delete(["a/b", "a/c"]);
    expect(log.filter((call) => call.includes("sync"))).toEqual([]);
    expect(log.filter((call) => call === "close tmp")).toHaveLength(2);
  });
});

describe("create when a system call fails", () => {
  const only =
    (path: string, errno: string, after = false): Fault =>
    (seen) =>
      seen === path ? { errno, after } : undefined;
  const before: [string, Partial<Record<Call, Fault>>, string][] = [
    ["open", { open: only("tmp", "EMFILE") }, "STORE_UNAVAILABLE"],
    ["write: disk full", { write: only("tmp", "ENOSPC") }, "STORE_FULL"],
    ["write: more than ulimit -f allows", { write: only("tmp", "EFBIG") }, "STORE_FULL"],
    ["write: quota", { write: only("tmp", "EDQUOT") }, "STORE_FULL"],
    ["fdatasync", { fdatasync: only("tmp", "EIO") }, "STORE_UNAVAILABLE"],
    ["mkdir", { mkdir: only("a", "EACCES") }, "STORE_DENIED"],
    ["link: no room for the name", { link: only("a/k", "ENOSPC") }, "STORE_FULL"],
    ["link: not permitted", { link: only("a/k", "EPERM") }, "STORE_DENIED"],
    ["link: another disk", { link: only("a/k", "EXDEV") }, "STORE_UNAVAILABLE"],
  ];

  test.each(before)(
    "%s: an error with path and remedy, nothing visible, no temporary file",
    async (_name, planted, code) => {
      const store = await openFileStore(folder, systemEnv);
      await store.put("other", bytes("x"));
      faults = planted;
      const e = await store.create("a/k", bytes("x")).catch((error: unknown) => error);
      faults = {};
      if (!isBatchWeaveError(e)) throw e;
      expect(e.code).toBe(code);
      expect(e.message).toContain(join(folder, "a/k"));
      expect(await listAll(store, "")).toEqual(["other"]);
      expect(fs.readdirSync(join(folder, ".tmp~"))).toEqual([]);
      expect(await store.create("a/k", bytes("x"))).toBe("created");
    },
  );

  test("the sync of the folder, after the link: unknown, and the object is there", async () => {
    const store = await openFileStore(folder, systemEnv);
    faults = { fsync: only("a", "EIO") };
    expect(await store.create("a/k", bytes("x"))).toBe("unknown");
    faults = {};
    expect(await store.get("a/k")).toEqual(bytes("x"));
    expect(await store.create("a/k", bytes("y"))).toBe("exists");
  });

  test("a name that is there is synced before it is said to exist: its maker may not have, or may have been this very create", async () => {
    const store = await openFileStore(folder, systemEnv);
    faults.fsync = (path) => (path === "a" ? { errno: "EIO" } : undefined);
    expect(await store.create("a/k", bytes("x"))).toBe("unknown");
    expect(await store.create("a/k", bytes("x"))).toBe("unknown");
    faults = {};
    log = [];
    expect(await store.create("a/k", bytes("x"))).toBe("exists");
    expectOrder("link a/k failed", "fsync a");
    faults.fsync = () => ({ errno: "EIO" });
    await expect(store.sync("a/k")).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    faults = {};
    log = [];
    await store.sync("a/k");
    expectOrder("fsync a");
  });

  test("the sync of a new folder's own name: unknown, and the next write tries it again", async () => {
    const store = await openFileStore(folder, systemEnv);
    faults = { fsync: only(".", "EIO") };
    expect(await store.create("a/k", bytes("x"))).toBe("unknown");
    expect(await store.create("a/l", bytes("x"))).toBe("unknown");
    faults = {};
    log = [];
    expect(await store.create("a/m", bytes("x"))).toBe("created");
    expect(log).toContain("fsync .");
  });

  test("a link that was made and answered EEXIST (a repeated NFS request): created, by the link count", async () => {
    const store = await openFileStore(folder, systemEnv);
    faults = { link: only("a/k", "EEXIST", true) };
    expect(await store.create("a/k", bytes("x"))).toBe("created");
    faults = { link: only("a/l", "EIO", true) };
    expect(await store.create("a/l", bytes("x"))).toBe("created");
  });

  test("a link that was answered with something that proves nothing: unknown", async () => {
    const store = await openFileStore(folder, systemEnv);
    for (const errno of ["EIO", "ETIMEDOUT", "ESTALE"]) {
      faults = { link: only("a/k", errno) };
      expect(await store.create("a/k", bytes("x"))).toBe("unknown");
    }
    faults = {};
    expect(await store.create("a/k", bytes("x"))).toBe("created");
  });

  test("a temporary file that cannot be removed does not change the outcome", async () => {
    const store = await openFileStore(folder, systemEnv);
    faults = { unlink: only("tmp", "EIO") };
    expect(await store.create("a/k", bytes("x"))).toBe("created");
    faults = {};
    expect(await listAll(store, "")).toEqual(["a/k"]);
  });

  test("a file system without directory sync keeps working", async () => {
    const store = await openFileStore(folder, systemEnv);
    faults = { fsync: () => ({ errno: "EINVAL" }) };
    expect(await store.create("a/k", bytes("x"))).toBe("created");
  });

  test("short writes go on where they stopped", async () => {
    const store = await openFileStore(folder, systemEnv);
    let short = 0;
    const watched = fs.writev as unknown as AnyCall;
    (fs as unknown as Record<string, AnyCall>)["writev"] = (fd, vector, position, callback) => {
      const first = (vector as Uint8Array[])[0] as Uint8Array;
      short++;
      watched(fd, [first.subarray(0, Math.ceil(first.byteLength / 3))], position, callback);
    };
    syncBuiltinESMExports();
    const parts = [noise(1000, 1), new Uint8Array(0), noise(7, 2), noise(100, 3)];
    await store.put("k", parts);
    expect(short).toBeGreaterThan(5);
    expect(Buffer.concat(parts).equals((await store.get("k")) as Uint8Array)).toBe(true);
  });
});
