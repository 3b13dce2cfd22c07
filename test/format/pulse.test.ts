/** Property: a pulse is late, and gone, exactly when FORMAT.md says; what does not fit into one is cut. Method: both sides of each edge. */
import { expect, test } from "vitest";
import {
  decodePulse,
  encodePulse,
  isGonePulse,
  isLatePulse,
  type PulseName,
  parsePulseKey,
  pulseKey,
} from "../../src/format/index.js";

const uuid = "6f1d3c1e-58a4-4d0c-9a3e-2b7c90d1e4f5";
const name: PulseName = { role: "rank", name: "r-0", atMs: 1_000_000, everyMs: 5_000, incarnation: "0123456789ab" };

test("late after two beats and ten seconds, gone after three and an hour, by the millisecond", () => {
  const edge = (is: (pulse: PulseName, nowMs: number) => boolean): number => {
    let [no, yes] = [name.atMs, name.atMs + 1e12];
    while (yes - no > 1) {
      const middle = Math.floor((no + yes) / 2);
      if (is(name, middle)) yes = middle;
      else no = middle;
    }
    return no - name.atMs;
  };
  expect(edge(isLatePulse)).toBe(2 * 5_000 + 10_000);
  expect(edge(isGonePulse)).toBe(3 * 5_000 + 3_600_000);
});

test("a host's name is cut at 255 characters, and a key is read back", () => {
  const bytes = encodePulse(uuid, name, { host: "h".repeat(300), pid: 1, startedMs: 2, facts: { a: 1 } });
  expect(decodePulse(bytes, "here", uuid)).toEqual({ host: "h".repeat(255), pid: 1, startedMs: 2, facts: { a: 1 } });
  expect(parsePulseKey(pulseKey(name))).toEqual(name);
});

test("facts that do not fit are left out from the end on, and the pulse says so", () => {
  const facts = Object.fromEntries(Array.from({ length: 100 }, (_, i) => [`fact-${i}`, "x".repeat(200)]));
  const bytes = encodePulse(uuid, name, { host: "h", pid: 1, startedMs: 2, facts });
  const kept = Object.keys(decodePulse(bytes, "here", uuid).facts);
  expect(kept.length).toBeGreaterThan(5);
  expect(kept.length).toBeLessThan(100);
  expect(kept).toEqual(Object.keys(facts).slice(0, kept.length));
  expect(JSON.parse(Buffer.from(bytes).toString())).toMatchObject({ cut: true });
  const small = encodePulse(uuid, name, { host: "h", pid: 1, startedMs: 2, facts: { a: 1 } });
  expect(JSON.parse(Buffer.from(small).toString())).not.toHaveProperty("cut");
});
