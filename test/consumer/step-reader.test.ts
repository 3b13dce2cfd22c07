/**
 * Property: a slice is read by its step, whole or in parts, stored in any encoding; a step that is not there yet is waited for, and one that was
 * reclaimed is told. Method: a small log in memory.
 */
import { expect, test } from "vitest";
import { StepReader } from "../../src/consumer/index.js";
import { availableEncodings, encodeSlice } from "../../src/format/index.js";
import { cellText, commitTrim, LogWriter, makeSpec, openLog } from "./log-writer.js";
import { ManualEnv } from "./manual-env.js";
import { WatchedStore } from "./watched-store.js";

const textOf = (bytes: Uint8Array | undefined): string => Buffer.from(bytes ?? []).toString();

test("a slice is read whole or in parts, and its length is known, whatever its encoding", async () => {
  for (const encoding of ["none", "zstd"] as const) {
    const [env, store, spec] = [new ManualEnv(), new WatchedStore(), makeSpec({ rows: 2, chunks: 2 })];
    const long = (row: number, chunk: number): string => cellText(0, row, chunk).repeat(20);
    const writer = new LogWriter(openLog(store, env, spec));
    if (!availableEncodings.includes(encoding)) continue;
    await writer.append(0, { slice: (row, chunk) => encodeSlice(Buffer.from(long(row, chunk)), encoding) });
    const reader = new StepReader(openLog(store, env, spec));
    expect(reader.end).toBe(0);
    expect(await env.drive(reader.reach(0))).toBe(true);
    expect(reader.end).toBe(1);
    const place = { step: 0, row: 1, chunk: 0 };
    expect(textOf(await env.drive(reader.slice(place)))).toBe(long(1, 0));
    expect(await env.drive(reader.sliceBytes(place))).toBe(long(1, 0).length);
    const parts = [
      { offset: 3, length: 5 },
      { offset: long(1, 0).length - 4, length: 4 },
    ];
    const found = await env.drive(reader.parts(place, parts));
    expect(found.map(textOf)).toEqual([long(1, 0).slice(3, 8), long(1, 0).slice(-4)]);
    if (encoding === "none")
      await expect(env.drive(reader.parts(place, [{ offset: long(1, 0).length - 4, length: 5 }]))).rejects.toThrow(
        /bytes \d+ to \d+ of a slice/,
      );
  }
});

test("a step is waited for until the log is closed, and one that was reclaimed meanwhile is told", async () => {
  const [env, store, spec] = [new ManualEnv(), new WatchedStore(), makeSpec({ rows: 1, chunks: 1 })];
  const writer = new LogWriter(openLog(store, env, spec));
  const [first] = (await writer.append(0)) as [string];
  const reader = new StepReader(openLog(store, env, spec));
  const reached = reader.reach(1);
  await writer.append(1);
  expect(await env.drive(reached)).toBe(true);
  const third = reader.reach(2);
  await writer.log.close();
  expect(await env.drive(third)).toBe(false);
  // Its object is gone, but no trim says so: that is a loss, not a reclaim.
  await store.delete([first]);
  await expect(env.drive(reader.slice({ step: 0, row: 0, chunk: 0 }))).rejects.toMatchObject({
    code: "MISSING_OBJECT",
  });
  await commitTrim(writer.log, 1);
  const late = new StepReader(openLog(store, env, spec));
  await expect(env.drive(reader.slice({ step: 0, row: 0, chunk: 0 }))).rejects.toMatchObject({ code: "RECLAIMED" });
  expect(textOf(await env.drive(late.slice({ step: 1, row: 0, chunk: 0 })))).toBe(cellText(1, 0, 0));
});
