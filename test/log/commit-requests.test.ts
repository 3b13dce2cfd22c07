/**
 * Property: a commit, a look at `namespace.json` and at a resume point cost exactly the requests and the waits that they are meant to, whatever
 * a store answers: unknown, refused, late, gone. Method: scripted answers; every request and sleep compared.
 */
import { describe, expect, test } from "vitest";
import { BatchWeaveError } from "../../src/errors.js";
import { decodeNamespace, encodeNamespace, type NamespaceSpec, namespaceKey } from "../../src/format/index.js";
import { commitMaxLag } from "../../src/lifecycle/index.js";
import { type Change, type Holder, Log } from "../../src/log/index.js";
import { Presence } from "../../src/log/presence.js";
import { Writer } from "../lifecycle/small-world.js";
import { type Answer, lag, open, openOrigin, QuarterEnv, refuse, spec } from "./scripted-log.js";

describe("a commit", () => {
  test("without anything in its way: finds the head, PUTs, looks", async () => {
    const { script, env, log } = open();
    const { manifest } = await log.commit(lag(1));
    expect([manifest.version, env.sleeps]).toEqual([1, []]);
    const first = ["list manifest/ manifest/0", "get boundary/1", "get manifest/1", "get boundary/1"];
    expect(script.taken()).toEqual([...first, "create manifest/1", "get boundary/1"]);
    await log.commit(lag(2));
    expect(script.taken()).toEqual(["create manifest/2", "get boundary/1"]);
    await log.commit(lag(2));
    expect(script.taken()).toEqual(["list manifest/ manifest/2", "get boundary/1"]);
    expect(await log.attempt(lag(2), { fresh: true })).toMatchObject({ outcome: "nothing" });
    expect(script.taken()).toEqual(["list manifest/ manifest/2", "get boundary/1"]);
    const next = await log.attempt(lag(3), { vouchLater: true });
    expect([next.outcome, script.taken()]).toEqual(["created", ["create manifest/3"]]);
    const chain = await log.attempt(lag(4), { vouchLater: true, from: next.manifest });
    expect([chain.outcome, chain.manifest.version, script.taken()]).toEqual(["created", 4, ["create manifest/4"]]);
    const nothing = await log.attempt(lag(4), { from: chain.manifest });
    expect([nothing.outcome, nothing.manifest.version, script.taken()]).toEqual(["nothing", 4, []]);
  });

  test("an unknown outcome is tried again with the same bytes, 50 ms later, then twice as long, up to 5 s", async () => {
    const { script, env, log } = open();
    await log.head.load();
    script.taken();
    script.next(/create/, async () => "unknown", 9);
    const { manifest } = await log.commit(lag(1));
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800, 1_600, 3_200, 5_000, 5_000].map((ms) => 0.75 * ms));
    expect(script.taken()).toEqual([...Array(10).fill("create manifest/1"), "get boundary/1"]);
    script.next(/create/, async (inner) => {
      await inner();
      return "unknown";
    });
    const own = await log.attempt(lag(2));
    expect([own.outcome, own.manifest.version, own.manifest.commit.id === manifest.commit.id]).toEqual([
      "committed",
      2,
      false,
    ]);
    expect(script.taken()).toEqual(["create manifest/2", "create manifest/2", "get manifest/2", "get boundary/1"]);
  });

  test("a PUT that could not be sent is tried six times; any other failure ends it", async () => {
    const { script, env, log } = open();
    await log.head.load();
    script.next(/create/, refuse("STORE_UNAVAILABLE"), 5);
    expect((await log.attempt(lag(1))).outcome).toBe("committed");
    expect(env.sleeps).toEqual([50, 100, 200, 400, 800].map((ms) => 0.75 * ms));
    script.next(/create/, refuse("STORE_UNAVAILABLE"), 6);
    await expect(log.attempt(lag(2))).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(script.answers).toEqual([]);
    script.next(/create/, refuse("STORE_DENIED"));
    await expect(log.attempt(lag(2))).rejects.toMatchObject({ code: "STORE_DENIED" });
    expect(env.sleeps).toHaveLength(10);
  });

  test("a PUT without an answer for 1.5 s is sent once more, and either may win", async () => {
    for (const [first, second, outcome] of [
      ["never", "created", "committed"],
      ["never", "lost", "lost"],
      ["unknown", "created", "committed"],
      ["created", "never", "committed"],
    ] as const) {
      const { script, env, log, other } = open();
      await log.head.load();
      const later = async <T>(value: T): Promise<T> => {
        for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
        return value;
      };
      const answers: Record<string, Answer> = {
        never: () => new Promise(() => {}),
        unknown: () => later("unknown"),
        created: async (inner) => await later(await inner()),
        lost: async (inner) => {
          await commitMaxLag(other, 77);
          return await inner();
        },
      };
      script.next(/create/, answers[first] as Answer);
      script.next(/create/, answers[second] as Answer);
      script.taken();
      expect((await log.attempt(lag(1))).outcome, `${first}, ${second}`).toBe(outcome);
      expect(env.sleeps).toEqual([1_500]);
      expect(script.taken().filter((text) => text.startsWith("create"))).toHaveLength(2);
    }
    const { script, log } = open();
    await log.head.load();
    const late = async (): Promise<never> => {
      for (let i = 0; i < 5; i++) await new Promise((resolve) => setImmediate(resolve));
      throw new BatchWeaveError("STORE_DENIED", "refused", {});
    };
    script.next(/create/, late);
    script.next(/create/, refuse("STORE_DENIED"));
    await expect(log.attempt(lag(1))).rejects.toMatchObject({ code: "STORE_DENIED" });
  });

  test("what is lost is tried from the new head after a random wait that doubles, up to 2 s", async () => {
    const { script, env, log, other } = open();
    await script.inner.put(namespaceKey, encodeNamespace(spec));
    await log.head.load();
    let n = 0;
    const race: Answer = async (inner) => {
      await commitMaxLag(other, ++n);
      return await inner();
    };
    script.next(/create/, race, 10);
    script.taken();
    const { manifest } = await log.commit(lag(500));
    expect(manifest.version).toBe(11);
    expect(env.sleeps).toEqual([5, 10, 20, 40, 80, 160, 320, 500, 500, 500]);
    const seen = script.taken();
    expect(seen.slice(0, 6)).toEqual([
      "create manifest/1",
      "get manifest/1",
      "list manifest/ manifest/0",
      "get manifest/1",
      "get boundary/1",
      "list manifest/ manifest/1",
    ]);
    expect(seen).toHaveLength(5 * 10 + 10 * 2 + 2);
  });

  test("what loses a thousand times in a row is told so", async () => {
    const { script, log, other } = open();
    await script.inner.put(namespaceKey, encodeNamespace(spec));
    await log.head.load();
    let n = 0;
    script.next(
      /create/,
      async (inner) => {
        await commitMaxLag(other, ++n);
        return await inner();
      },
      1_000,
    );
    await expect(log.commit(lag(5_000))).rejects.toMatchObject({ code: "CONTENDED", details: { attempts: 1_000 } });
    expect(script.answers).toEqual([]);
  });

  test("a version that is gone when its owner is asked for settles nothing", async () => {
    const { script, log, other } = open();
    await log.head.load();
    script.next(/create/, async () => {
      await commitMaxLag(other, 8);
      return "exists";
    });
    script.next(/get manifest\/1/, async () => undefined);
    script.taken();
    const attempt = await log.attempt(lag(9));
    expect([attempt.outcome, attempt.manifest.version]).toEqual(["unsettled", 1]);
    expect(script.taken()).toEqual([
      ...["create manifest/1", "get manifest/1", "list manifest/ manifest/0", "get manifest/1", "get boundary/1"],
      ...["get manifest/2", "get boundary/1"],
    ]);
  });

  test("a look-up that finds its object gone begins again on a newer version, and only on a newer one", async () => {
    const { script, log, other } = open();
    await log.head.load();
    let tries = 0;
    const change: Change<undefined, boolean> = {
      ...lag(9),
      prepare: async () => {
        if (++tries < 3) throw new BatchWeaveError("MISSING_OBJECT", "gone", {});
        return undefined;
      },
    };
    await expect(log.attempt(change)).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect(tries).toBe(1);
    await commitMaxLag(other, 8);
    script.taken();
    expect((await log.attempt(change)).manifest.version).toBe(2);
    expect(script.taken().filter((text) => text.startsWith("list"))).toHaveLength(1);
    tries = -5;
    const refusing = { ...change, prepare: async () => Promise.reject(new BatchWeaveError("CORRUPT", "broken", {})) };
    await expect(log.attempt(refusing)).rejects.toMatchObject({ code: "CORRUPT" });
  });

  test("a refusal is concluded from a look, not from what is known", async () => {
    const { script, log, other } = open();
    await log.head.load();
    await commitMaxLag(other, 8);
    const change: Change<undefined, boolean> = {
      ...lag(9),
      stage: (draft) => {
        if (draft.version === 1) throw new BatchWeaveError("CLOSED", "refused", {});
        draft.settings = { maxLag: 9 };
        return { done: false, result: true };
      },
    };
    script.taken();
    expect((await log.attempt(change)).manifest.version).toBe(2);
    const asked = ["list manifest/ manifest/0", "get manifest/1", "get boundary/1"];
    expect(script.taken()).toEqual([...asked, "create manifest/2", "get boundary/1"]);
    const bug = { ...change, stage: () => Promise.reject(new Error("a bug")) as never };
    bug.stage = () => {
      throw new TypeError("a bug");
    };
    await expect(log.attempt(bug)).rejects.toThrow("a bug");
  });
});

describe("namespace.json", () => {
  const lives: NamespaceSpec = { ...spec, format: 2 };

  test("is asked for when it was not seen for 30 s", async () => {
    const { script, env, log } = open();
    await script.inner.put(namespaceKey, encodeNamespace(spec));
    env.nowMs += 29_999;
    await log.presence.check();
    expect(script.taken()).toEqual([]);
    env.nowMs += 1;
    await log.presence.check();
    await log.presence.check();
    expect(script.taken()).toEqual(["get namespace.json"]);
    await script.inner.put(namespaceKey, encodeNamespace({ ...spec, uuid: "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f6" }));
    await expect(log.presence.ask()).rejects.toMatchObject({ code: "DELETED" });
    const early = new Presence(script.store, env, log.head, spec, env.monotonic() - 30_000);
    await expect(early.check()).rejects.toMatchObject({ code: "DELETED" });
  });

  test("is written again where the chain goes on, by whoever may", async () => {
    const { script, log } = open(lives);
    await log.commit(lag(1));
    await log.commit(lag(2));
    script.taken();
    await log.presence.ask();
    const folder = `life/${spec.uuid}/`;
    expect(script.taken().map((text) => text.replaceAll(folder, ""))).toEqual([
      "get namespace.json",
      "list manifest/ manifest/1",
      "get boundary/1",
      "create namespace.json",
    ]);
    const bytes = (await script.inner.get(namespaceKey)) as Uint8Array;
    expect(decodeNamespace(bytes, namespaceKey).uuid).toBe(spec.uuid);
    await script.inner.delete([namespaceKey]);
    script.next(/create namespace/, refuse("STORE_DENIED"));
    await log.presence.ask();
    script.next(/create namespace/, refuse("STORE_UNAVAILABLE"));
    await expect(log.presence.ask()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    const fresh = new Log({ store: script.store, env: new QuarterEnv(), spec: lives, openOrigin });
    script.taken();
    await fresh.presence.ask();
    expect(script.taken()[1]?.replaceAll(folder, "")).toBe("list manifest/ manifest/0");
  });

  test("of a life without versions, or of the first format, is not", async () => {
    const { log } = open(lives);
    await expect(log.presence.ask()).rejects.toMatchObject({ code: "DELETED" });
    const old = open();
    await old.log.commit(lag(1));
    await expect(old.log.presence.ask()).rejects.toMatchObject({ code: "DELETED" });
  });
});

describe("a resume point", () => {
  async function written(): Promise<ReturnType<typeof open> & { holder: Holder; writer: Writer }> {
    const parts = open();
    const writer = new Writer(parts.other);
    await writer.write(3);
    parts.script.taken();
    return { ...parts, writer, holder: writer.holder as Holder };
  }
  const gone: Answer = async () => undefined;

  test("is looked at without opening anything, and four times when it is gone", async () => {
    const { script, log, writer } = await written();
    expect(await log.peek("p")).toEqual({ seq: 3, resumePoint: { after: 2 } });
    expect(await log.peek("nobody")).toBeUndefined();
    script.next(/^range/, gone, 3);
    expect(await log.peek("p")).toEqual({ seq: 3, resumePoint: { after: 2 } });
    script.next(/^range/, gone, 4);
    await expect(log.peek("p")).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    expect(script.answers).toEqual([]);
    script.next(/^range/, refuse("STORE_DENIED"));
    await expect(log.peek("p")).rejects.toMatchObject({ code: "STORE_DENIED" });
    const opened = (await log.head.jump()).producers.get("p");
    script.next(/^range/, async (_, key) => {
      await writer.write(1);
      return await script.inner.getRange(`${key}-`, 0, 1);
    });
    const resumed = await log.resume(writer.holder as Holder, opened as never);
    expect([resumed.state.seq, resumed.resumePoint]).toEqual([4, { after: 3 }]);
  });

  test("of an opening: the head tells where it is now, or that another holds the id", async () => {
    const { script, log, holder, writer } = await written();
    const state = (await log.head.jump()).producers.get("p") as never;
    script.next(/^range/, gone, 3);
    expect((await log.resume(holder, state)).resumePoint).toEqual({ after: 2 });
    script.next(/^range/, gone, 4);
    await expect(log.resume(holder, state)).rejects.toMatchObject({ code: "MISSING_OBJECT" });
    script.next(/^range/, gone);
    await expect(log.resume({ ...holder, producer: "nobody" }, state)).rejects.toMatchObject({ code: "FENCED" });
    await new Writer(writer.log, "p").open();
    script.next(/^range/, gone);
    await expect(log.resume(holder, state)).rejects.toMatchObject({ code: "FENCED" });
  });

  test("of a footer that is not the one committed is corrupt", async () => {
    const { log } = await written();
    const state = (await log.head.jump()).producers.get("p");
    if (state?.resume.kind !== "batch") throw new Error("no batch");
    const { batch } = state.resume;
    const wrong = { ...state, resume: { kind: "batch" as const, batch: { ...batch, check: batch.check + 1 } } };
    await expect(log.readResumePoint("p", wrong)).rejects.toMatchObject({ code: "CORRUPT" });
    expect(await log.readResumePoint("p", { ...state, resume: { kind: "none" } })).toBeUndefined();
  });
});
