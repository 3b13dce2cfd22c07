/**
 * Property: a base is a known version not below the cutoff, at most 1,024 versions and a minute or two behind the newest; producers that
 * see the same versions come by the same bases; where versions are rare, the base is the newest.
 * Method: a clock and a head moved by hand.
 */
import { expect, test } from "vitest";
import type { Log } from "../../src/log/index.js";
import { uploadBase } from "../../src/producer/upload-base.js";

interface Hand {
  readonly log: Log;
  nowMs: number;
  version: number;
  cutoff: number;
}

function hand(version: number): Hand {
  const moved: Hand = { log: undefined as unknown as Log, nowMs: 1_000, version, cutoff: 0 };
  const log = {
    env: { monotonic: () => moved.nowMs },
    head: {
      get known() {
        return { version: moved.version, orphanCutoff: moved.cutoff };
      },
    },
  };
  return Object.assign(moved, { log: log as unknown as Log });
}

/** Ten versions a second, a batch every 50 ms; gives the bases used after the first seconds, and checks how old each was. */
function busy(first: number, seconds: number): Set<number> {
  const at = hand(first);
  const used = new Set<number>();
  for (let i = 0; i < seconds * 20; i++) {
    at.nowMs += 50;
    if (i % 2 === 0) at.version++;
    const base = uploadBase(at.log);
    expect(base).toBeLessThanOrEqual(at.version);
    expect(at.version - base).toBeLessThanOrEqual(1_024);
    if (i > 3 * 20) used.add(base);
  }
  return used;
}

test("producers that begin at different versions use the same few bases", () => {
  const [one, other] = [busy(7, 120), busy(33, 120)];
  const both = new Set([...one, ...other]);
  expect(both.size).toBeLessThanOrEqual(4);
  for (const base of both) expect(base % 512).toBe(0);
});

test("with rare versions the base is the newest one, soon after it came", () => {
  const at = hand(100);
  expect(uploadBase(at.log)).toBe(100);
  for (let i = 1; i <= 5; i++) {
    at.nowMs += 600_000;
    at.version++;
    expect(uploadBase(at.log)).toBe(100 + i);
  }
});

test("never below the cutoff", () => {
  const at = hand(1_000);
  uploadBase(at.log);
  at.nowMs += 3_000;
  at.version += 500;
  at.cutoff = 1_495;
  expect(uploadBase(at.log)).toBeGreaterThanOrEqual(1_495);
  at.cutoff = 1_500;
  expect(uploadBase(at.log)).toBe(1_500);
});

test("where no version is known, the base is none", () => {
  expect(uploadBase({ env: { monotonic: () => 5 }, head: { known: undefined } } as unknown as Log)).toBe(0);
});
