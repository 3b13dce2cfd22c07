/**
 * Cases of the head, the boundary and the commit: which of them is read in which order, what is concluded when something appears, vanishes or
 * fails in between, and what is made durable before anything is concluded.
 */
import {
  asVersion,
  boundaryKey,
  encodeBoundary,
  encodeManifest,
  encodeNamespace,
  everyVersion,
  genesisManifest,
  type Manifest,
  type NamespaceSpec,
} from "../../src/format/index.js";
import { Draft } from "../../src/log/draft.js";
import { stageSettings } from "../../src/log/index.js";
import type { ConformanceCase } from "./case-runner.js";
import { uuid } from "./codec-cases.js";
import type { HeadRule } from "./head-store.js";

const versions = 9;
const spec: NamespaceSpec = {
  format: 1,
  uuid,
  grid: { rows: 1, chunks: 1 },
  order: { kind: "commit" },
  created: 5,
  rest: {},
};

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

/** Versions 1 to 9 as the chain has them (`m3`), as somebody else might have made them (`m3 zombie`), with a hint (`m3 hint 2`); markers. */
function allBodies(): Record<string, string> {
  const bodies: Record<string, string> = {};
  let manifest: Manifest = genesisManifest(spec);
  const make = (by: string, maxLag: number, boundaryHint: number): Manifest => {
    const id = `${manifest.version + 1}`.padStart(12, by.slice(0, 1));
    const draft = new Draft(manifest, { id, by, time: 1_760_000_000_000, boundaryHint });
    stageSettings(draft, { maxLag });
    return draft.finish();
  };
  for (let version = 1; version <= versions; version++) {
    const real = make("chain", 100 + version, 0);
    bodies[`m${version}`] = base64(encodeManifest(real));
    bodies[`m${version} zombie`] = base64(encodeManifest(make("ghost", 200 + version, 0)));
    bodies[`m${version} hint 2`] = base64(encodeManifest(make("chain", 100 + version, 2)));
    // What the tester wants to commit, committed by somebody else.
    bodies[`m${version} done`] = base64(encodeManifest(make("other", 7, 0)));
    manifest = real;
  }
  for (const [n, upTo] of [
    [1, 2],
    [1, 4],
    [1, 6],
    [2, 4],
    [2, 6],
    [2, 1],
  ] as const)
    bodies[`b${n} up to ${upTo}`] = base64(encodeBoundary(uuid, { n, upTo: asVersion(upTo) }));
  for (const n of [1, 2]) bodies[`b${n} last`] = base64(encodeBoundary(uuid, { n, upTo: everyVersion, deleted: true }));
  bodies["damage"] = base64(Buffer.from(`{"this is": "${boundaryKey(1)}"`));
  return bodies;
}

const bodies = allBodies();

/** Versions of the chain, by short key. */
function chain(from: number, to: number): Record<string, string> {
  const present: Record<string, string> = {};
  for (let version = from; version <= to; version++) present[`m${version}`] = `m${version}`;
  return present;
}

const named = (from: number, to: number): string[] => Object.keys(chain(from, to));

/** A case, with the bodies that it names. */
function headCase(
  name: string,
  present: Record<string, string>,
  actions: readonly string[],
  script: readonly HeadRule[] = [],
): ConformanceCase {
  const used = new Set([...Object.values(present), ...script.flatMap(({ put = {} }) => Object.values(put))]);
  const mine = Object.fromEntries([...used].map((body) => [body, bodies[body] as string]));
  return { name, op: "head", spec: base64(encodeNamespace(spec)), bodies: mine, present, script, actions };
}

/** The reclaim of versions up to 4 that takes place while somebody is busy; 5 and 6 were committed meanwhile. */
const passed = { put: { ...chain(5, 6), b1: "b1 up to 4" }, remove: named(1, 4) };

export function headCases(): ConformanceCase[] {
  return [
    headCase("nothing but a namespace: version 0, after a look", {}, ["load", "jump", "advance"]),
    headCase("the newest listed version, vouched for by a look after the read, then probed forward", chain(1, 3), [
      "load",
    ]),
    headCase("jump without earlier knowledge is a load, no more", chain(1, 3), ["jump"]),
    headCase(
      "jump lists behind what is known and looks once",
      chain(1, 3),
      ["load", "jump"],
      [{ on: "list after m3", when: "before", put: chain(4, 6) }],
    ),
    headCase(
      "advance takes one step and looks once",
      chain(1, 3),
      ["load", "advance", "advance"],
      [{ on: "get m4", nth: 2, when: "before", put: chain(4, 5) }],
    ),
    headCase(
      "walk reads several versions and looks once",
      chain(1, 2),
      ["load", "walk", "walk"],
      [{ on: "get m3", nth: 2, when: "before", put: chain(3, 6) }],
    ),
    headCase(
      "a stale listing is made good by probing",
      chain(1, 5),
      ["load"],
      [{ on: "list after m0", when: "after", hide: ["m3", "m4", "m5"] }],
    ),
    headCase(
      "an empty stale listing ends at version 0 and probes from there",
      chain(1, 2),
      ["load"],
      [{ on: "list after m0", when: "after", hide: ["m1", "m2"] }],
    ),
    headCase(
      "a page with more to come is searched by strides, then halves",
      chain(1, 6),
      ["load"],
      [{ on: "list after m0", when: "after", page: 2 }],
    ),
    headCase(
      "a jump past a page is a load",
      chain(1, 2),
      ["load", "jump"],
      [{ on: "list after m2", when: "before", put: chain(3, 6), page: 1 }],
    ),
    headCase("markers are read on until one is absent", { ...chain(7, 8), b1: "b1 up to 4", b2: "b2 up to 6" }, [
      "load",
      "look",
    ]),
    headCase("a hint jumps over markers", { m7: "m7 hint 2", b1: "b1 up to 4", b2: "b2 up to 6" }, ["load"]),
    headCase("a hint at a marker that is not there stops everything", { m7: "m7 hint 2", b1: "b1 up to 4" }, ["load"]),
    headCase(
      "a zombie that a stale listing shows alone is not believed, and the head is found above",
      { m2: "m2 zombie", b1: "b1 up to 4", ...chain(5, 6) },
      ["load"],
      [{ on: "list after m0", when: "after", hide: ["m5", "m6"] }],
    ),
    headCase(
      "a candidate that the boundary passes between its read and the look is not believed",
      chain(1, 3),
      ["load"],
      [{ on: "get m3", when: "after", ...passed }],
    ),
    headCase(
      "a candidate that is deleted between the listing and its read: listed again",
      chain(1, 3),
      ["load"],
      [{ on: "list after m0", when: "after", ...passed }],
    ),
    headCase(
      "an absent next version proves nothing once the boundary has passed it",
      chain(1, 3),
      ["load", "advance"],
      [{ on: "get m4", nth: 2, when: "before", ...passed }],
    ),
    headCase(
      "a zombie in the place of the next version is not believed",
      chain(1, 3),
      ["load", "advance"],
      [{ on: "get m4", nth: 2, when: "before", put: { ...passed.put, m4: "m4 zombie" }, remove: named(1, 3) }],
    ),
    headCase(
      "a zombie that a jump lists is not believed",
      chain(1, 3),
      ["load", "jump"],
      [
        { on: "get b1", nth: 2, when: "after", put: { ...passed.put, m4: "m4 zombie" }, remove: named(1, 3) },
        { on: "list after m3", when: "after", hide: ["m5", "m6"] },
      ],
    ),
    headCase(
      "a zombie that a walk reads is not believed",
      chain(1, 3),
      ["load", "walk"],
      [{ on: "get m4", nth: 2, when: "before", put: { ...passed.put, m4: "m4 zombie" }, remove: named(1, 3) }],
    ),
    headCase(
      "a version that no look vouched for, for want of an answer, is not adopted",
      chain(1, 3),
      ["load", "load"],
      [{ on: "get b1", when: "before", answer: "unavailable" }],
    ),
    headCase(
      "a failed step leaves the head where it was",
      chain(1, 3),
      ["load", "advance", "newest"],
      [{ on: "get m4", nth: 2, when: "before", answer: "unavailable" }],
    ),
    headCase(
      "a marker that was seen and is gone stops everything",
      { ...chain(5, 6), b1: "b1 up to 4" },
      ["load", "load"],
      [{ on: "get b2", when: "after", remove: ["b1"] }],
    ),
    headCase("a marker that does not raise the boundary", { ...chain(5, 6), b1: "b1 up to 4", b2: "b2 up to 1" }, [
      "look",
    ]),
    headCase("a damaged marker", { ...chain(5, 6), b1: "damage" }, ["load"]),
    headCase("a damaged manifest", { ...chain(1, 2), m3: "damage" }, ["load"]),
    headCase("the last marker of a deleted namespace, whatever versions are there", { ...chain(1, 3), b1: "b1 last" }, [
      "load",
      "look",
    ]),
    headCase(
      "deleted between two steps",
      chain(1, 3),
      ["load", "advance", "jump"],
      [{ on: "get m4", nth: 2, when: "before", put: { b1: "b1 last" }, remove: named(1, 3) }],
    ),
    ...commitCases(),
    ...durabilityCases(),
  ];
}

function commitCases(): ConformanceCase[] {
  const reclaimed: Omit<HeadRule, "on" | "when"> = passed;
  return [
    headCase("a commit: newest version, create, then a look", chain(1, 3), ["load", "commit"]),
    headCase("a commit on what is known: create, then a look", chain(1, 3), ["load", "commit known"]),
    headCase(
      "lost to another: whose it is, is read; then the newest",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "before", put: chain(4, 5) }],
    ),
    headCase(
      "412 for what was created: the id tells that it is mine",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "after", answer: "exists" }],
    ),
    headCase(
      "no answer, not applied: the same again",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "before", answer: "unknown" }],
    ),
    headCase(
      "no answer, applied: the same again, 412, and mine",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "after", answer: "unknown" }],
    ),
    headCase(
      "no answer, and another was there first",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "before", answer: "unknown", put: { m4: "m4" } }],
    ),
    headCase(
      "not even sent: the same again",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "before", answer: "unavailable" }],
    ),
    headCase(
      "created under a name that the boundary has passed: unsettled, not committed",
      chain(1, 3),
      ["load", "commit known"],
      [{ on: "create m4", when: "before", ...reclaimed }],
    ),
    headCase(
      "the boundary passes between the verdict and the look: unsettled",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "after", ...passed }],
    ),
    headCase(
      "taken, and gone when it is read: unsettled",
      chain(1, 3),
      ["load", "commit"],
      [
        { on: "create m4", when: "before", put: { m4: "m4" } },
        { on: "get m4", nth: 2, when: "before", ...reclaimed },
      ],
    ),
    headCase(
      "a look-up for staging finds its object gone with the base: staged again on the newest",
      chain(1, 3),
      ["load", "commit looked up"],
      [{ on: "get m3", nth: 2, when: "before", ...reclaimed }],
    ),
    headCase(
      "a look-up for staging finds its object gone, and nothing is newer: a loss",
      chain(1, 3),
      ["load", "commit looked up"],
      [{ on: "get m3", nth: 2, when: "before", remove: ["m3"] }],
    ),
    headCase(
      "deleted between the verdict and the look",
      chain(1, 3),
      ["load", "commit"],
      [{ on: "create m4", when: "after", put: { b1: "b1 last" } }],
    ),
  ];
}

/** What others created may not be durable yet: whoever concludes from it syncs its name first. */
function durabilityCases(): ConformanceCase[] {
  const done = { ...chain(1, 2), m3: "m3 done" };
  return [
    headCase("nothing left to commit: looked at, then synced, then concluded", done, ["load", "commit"]),
    headCase("nothing left to commit on what is known: a fresh look, a sync, the conclusion", done, [
      "load",
      "commit known",
    ]),
    headCase(
      "a sync that fails concludes nothing, and is tried again",
      done,
      ["load", "commit", "commit", "commit"],
      [{ on: "sync m3", when: "before", answer: "unavailable" }],
    ),
    headCase("one sync for one version", done, ["load", "commit", "keep", "commit"]),
    headCase("what this process created itself needs no sync", chain(1, 3), ["load", "commit", "keep", "commit"]),
    headCase(
      "what another created needs one, however it is found",
      chain(1, 3),
      ["load", "keep", "advance", "keep"],
      [{ on: "get m4", nth: 2, when: "before", put: { m4: "m4" } }],
    ),
    headCase(
      "mine by the id although the answer said otherwise: no sync either",
      chain(1, 3),
      ["load", "commit", "keep"],
      [{ on: "create m4", when: "after", answer: "exists" }],
    ),
  ];
}
