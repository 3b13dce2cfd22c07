/**
 * Property: a search finds every occurrence of a sample and each piece of it, in the order of steps and places, nothing else, and says what it did not look at. Method: a small log whose
 * batches hold the same samples several times, in one object or several, or none at all.
 */
import { expect, test } from "vitest";
import type { LineageSample } from "../../src/format/index.js";
import { findSample, readSamples } from "../../src/lifecycle/index.js";
import { SmallWorld, Writer } from "./small-world.js";

const of = (source: string, id: string): LineageSample => ({ source, id, tokens: 1 });

test("by step and place, in a range, of a source, up to a number", async () => {
  const world = new SmallWorld();
  const log = await world.create("memory:lineage");
  const writer = new Writer(log);
  await writer.open();
  const steps: LineageSample[][] = [
    [of("web", "a"), of("book", "a"), of("web", "b")],
    [of("web", "b")],
    [of("web", "a#2/3"), of("web", "a#x/3"), of("web", "a#2/3/4"), of("web", "aa"), of("web", "a#1/3")],
    [of("book", "a"), of("web", "a")],
  ];
  for (const samples of steps) {
    await writer.commit([await writer.upload({ samples, cellsPerExtent: writer.seq % 2 === 0 ? 1 : 2 })]);
  }
  await writer.write(1);
  const view = world.open("memory:lineage", log.spec);
  const manifest = await view.head.load();
  expect(await readSamples(view, manifest, 2)).toEqual(steps[2]);
  expect(await readSamples(view, manifest, 4)).toBeUndefined();
  const find = async (id: string, settings: object = {}) => {
    const { matches, ...rest } = await findSample(view, manifest, id, settings);
    return {
      ...rest,
      places: matches.map(({ step, index, sample }) => `${step}.${index} ${sample.source} ${sample.id}`),
    };
  };
  const all = ["0.0 web a", "0.1 book a", "2.0 web a#2/3", "2.4 web a#1/3", "3.0 book a", "3.1 web a"];
  expect(await find("a")).toEqual({ places: all, from: 0, to: 5, stepsWithoutLineage: 1, truncated: false });
  expect((await find("a", { stepsInFlightMax: 1 })).places).toEqual(all);
  expect((await find("a", { source: "book" })).places).toEqual(["0.1 book a", "3.0 book a"]);
  expect(await find("a", { from: 1, to: 3 })).toEqual({
    places: all.slice(2, 4),
    from: 1,
    to: 3,
    stepsWithoutLineage: 0,
    truncated: false,
  });
  expect(await find("a", { from: 3, to: 99 })).toEqual({
    places: all.slice(4),
    from: 3,
    to: 5,
    stepsWithoutLineage: 1,
    truncated: false,
  });
  expect(await find("a", { from: 4, to: 2 })).toEqual({
    places: [],
    from: 4,
    to: 4,
    stepsWithoutLineage: 0,
    truncated: false,
  });
  expect(await find("a", { matchesMax: 2 })).toMatchObject({ places: all.slice(0, 2), truncated: true });
  expect(await find("a", { matchesMax: 6 })).toMatchObject({ places: all, truncated: false });
  expect((await find("none")).places).toEqual([]);
  await writer.commit([await writer.upload({ samples: Array(1_001).fill(of("web", "many")) })]);
  const many = await findSample(view, await view.head.jump(), "many");
  expect([many.matches.length, many.truncated]).toEqual([1_000, true]);
});
