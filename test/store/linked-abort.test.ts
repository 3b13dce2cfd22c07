/**
 * Property: a linked signal follows its parent while it is linked and not afterwards; one that is used again knows nothing of what was before, and one that
 * aborted, or that still has a listener, is not used again. Method: plain calls, looking at which signals are the same.
 */
import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { AbortLinks } from "../../src/store/linked-abort.js";

test("a signal is used again, and follows its new parent only", () => {
  const links = new AbortLinks();
  const [a, b] = [new AbortController(), new AbortController()];
  const first = links.link(a.signal);
  first.unlink();
  const second = links.link(b.signal);
  expect(second.signal).toBe(first.signal);
  a.abort(new Error("a"));
  expect(second.signal.aborted).toBe(false);
  b.abort(new Error("b"));
  expect(second.signal.reason).toEqual(new Error("b"));
  second.unlink();
  expect(getEventListeners(a.signal, "abort")).toEqual([]);
  expect(getEventListeners(b.signal, "abort")).toEqual([]);
});

test("one that aborted, by itself or with its parent, is not used again", () => {
  const links = new AbortLinks();
  const parent = new AbortController();
  const [own, followed] = [links.link(undefined), links.link(parent.signal)];
  own.abort("over");
  parent.abort("stop");
  for (const link of [own, followed]) link.unlink();
  const next = [links.link(undefined), links.link(undefined)];
  for (const { signal } of next) expect(signal.aborted).toBe(false);
  expect(links.link(parent.signal).signal.reason).toBe("stop");
});

test("one that somebody still listens to is not used again", () => {
  const links = new AbortLinks();
  const first = links.link(undefined);
  first.signal.addEventListener("abort", () => {});
  first.unlink();
  expect(links.link(undefined).signal).not.toBe(first.signal);
});
