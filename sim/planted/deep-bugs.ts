/** Planted bugs where only large logs go, caught by the scenario `deep`: index levels, lines of forks, lanes, releases, races, lag, listings, damage. */
import type { Edit, PlantedBug } from "./planted.js";

/** A bug of one edit or more. */
function bug(name: string, hazard: number | string, ...edits: readonly [string, string, string][]): PlantedBug {
  return {
    name,
    hazard,
    scenario: "deep",
    edits: edits.map(([file, find, replace]): Edit => ({ file, find, replace })),
  };
}

const draft = "src/log/draft.js";
const stage = "src/log/stage.js";
const stepIndex = "src/log/step-index.js";
const indexWalk = "src/lifecycle/index-walk.js";
const forkPlan = "src/lifecycle/fork-plan.js";
const fork = "src/lifecycle/fork.js";
const sweep = "src/lifecycle/sweep.js";
const lagGate = "src/lifecycle/lag-gate.js";
const producer = "src/producer/producer.js";
const stageCheckpoint = "src/log/stage-checkpoint.js";

const levels: readonly PlantedBug[] = [
  bug("a node names the children of a run that was trimmed", "index", [
    draft,
    "level.refs[first + i - level.start] ?? null",
    "level.refs[i] ?? null",
  ]),
  bug("a level is trimmed by the span of the one below", "index", [
    draft,
    "const passed = Math.floor(this.trim / stepsPerNode(i));",
    "const passed = Math.floor(this.trim / stepsPerNode(Math.max(0, i - 1)));",
  ]),
  bug("only segments get nodes above them", 19, [
    draft,
    "if ((number + 1) % indexFanout !== 0)",
    "if (levelNumber > 0 || (number + 1) % indexFanout !== 0)",
  ]),
  bug(
    "what is below a node is not live",
    42,
    [indexWalk, "if (level === 0)\n        return;", "if (level <= 1)\n        return;"],
    [indexWalk, "if (segments !== expected)", "if (false)"],
  ),
  bug("index objects that are not committed yet are swept", 37, [
    sweep,
    "if (!name || name.base >= sweep.cutoff || sweep.live.hasIndexObject(key))",
    "if (!name || sweep.live.hasIndexObject(key))",
  ]),
];

const lines: readonly PlantedBug[] = [
  bug("an heir counts its grandparent's steps as its parent does", 52, [
    forkPlan,
    "found.push(range(o.at + low - o.from, high - low, i.from + low - i.at));",
    "found.push(range(o.at + low - o.from, high - low, low));",
  ]),
  bug("the last steps of a fork forget whose they are", 52, [
    fork,
    "...(origin === undefined ? {} : { origin: builder.position(origin) }),",
    "",
  ]),
  bug("an ancestor's numbers of its origins are taken for one's own", 52, [
    stepIndex,
    "ancestor.via?.[descriptor.origin] ?? Number.MAX_SAFE_INTEGER",
    "Math.max(0, descriptor.origin - 1)",
  ]),
  bug("what a fork leaves out moves nothing", 52, [forkPlan, "next += to - from;", "next = to;"]),
  bug("lanes of a fork count from step 0", 53, [
    stage,
    "asStep(firstOwnStep(spec) + batch.seq * spec.order.lanes",
    "asStep(batch.seq * spec.order.lanes",
  ]),
];

const lanes: readonly PlantedBug[] = [
  bug("a lane may be ahead as far as it likes", "lanes", [
    stage,
    "if (step >= draft.end + aheadMax(spec))",
    "if (false)",
  ]),
  bug("a batch that is too far ahead counts as in", "lanes", [
    stage,
    'return "ahead";',
    'state.advance(batch);\n        return "staged";',
  ]),
];

const releases: readonly PlantedBug[] = [
  bug("a release lets the whole group go", "design 0006", [
    stageCheckpoint,
    "withReleased(group, [id])",
    "withReleased(group, [...group.live.keys()])",
  ]),
  bug("a release is not committed", "design 0006", [
    "src/lifecycle/checkpoint.js",
    "const done = stageRelease(draft, group, id);",
    "const done = stageRelease(draft, group, id) || true;",
  ]),
  bug("a released checkpoint leaves no trace", 50, [
    stageCheckpoint,
    "released: [...group.released, ...ids].slice(-releasedMax)",
    "released: group.released",
  ]),
];

const races: readonly PlantedBug[] = [
  bug("a reader is told RECLAIMED a step too early", 26, [
    "src/consumer/visibility.js",
    "if (first < manifest.steps.trim)",
    "if (first <= manifest.steps.trim && manifest.steps.trim > 0)",
  ]),
];

const lag: readonly PlantedBug[] = [
  bug("nobody asks for maxLag", "maxLag", [lagGate, "if (manifest.settings?.maxLag === undefined)", "if (true)"]),
  bug("one batch more always goes", "maxLag", [lagGate, "return left > 0 && pending", "return pending"]),
  bug("when-quiet takes over whoever holds the id", 9, [
    "src/cadence/opener.js",
    "if (agoMs >= quietMs)\n            return;",
    "return;",
  ]),
];

const closing: readonly PlantedBug[] = [
  bug("close does not wait", "close", [
    producer,
    "await this.flush(options);",
    "void this.flush(options).catch(() => { });",
  ]),
  bug("flushed means uploaded", "close", [
    producer,
    "while (this.#firstPending() < last) {",
    "while (!this.#isUploaded(last)) {",
  ]),
  bug("an upload that found no room counts", "room", [
    "src/producer/upload.js",
    "extent.body, { signal, unknownKey: true })));",
    "extent.body, { signal, unknownKey: true }).catch(() => { })));",
  ]),
];

const pages: readonly PlantedBug[] = [
  bug("the first page of batches is taken for all of them", 32, [sweep, "if (!first.more) {", "if (true) {"]),
  bug("a sweep ends with its first page", 32, [
    sweep,
    "if (!page.more || last === undefined || last >= end)",
    "if (true)",
  ]),
];

const damage: readonly PlantedBug[] = [
  bug(
    "stored JSON is believed as it comes",
    31,
    ["src/format/json-object.js", "if (ending !== ", "if (false && ending !== "],
    [stepIndex, "if (crc32(bytes) !== ref.check)", "if (false)"],
  ),
  bug("verify looks at footers, whatever it is asked", 30, [
    "src/lifecycle/verify.js",
    'const level = settings.level ?? "footers";',
    'const level = "footers";',
  ]),
];

/** Every planted bug of this kind. */
export const deepBugs: readonly PlantedBug[] = [
  ...levels,
  ...lines,
  ...lanes,
  ...releases,
  ...races,
  ...lag,
  ...closing,
  ...pages,
  ...damage,
];
