/** The planted bugs: one safety rule taken out at a time. Texts are the compiled code's, so `plant` notices when it moves on. */
import { deepBugs } from "./deep-bugs.js";
import { fleetBugs } from "./fleet-bugs.js";
import type { PlantedBug } from "./planted.js";
import { powerBugs } from "./power-bugs.js";

/** A bug of a single edit. */
function bug(name: string, hazard: number | string, file: string, find: string, replace: string): PlantedBug {
  return { name, hazard, edits: [{ file, find, replace }] };
}

const stage = "src/log/stage.js";
const commit = "src/log/commit.js";
const head = "src/log/head.js";
const silent = "src/log/silent.js";
const intents = "src/log/intents.js";
const opener = "src/cadence/opener.js";
const carrier = "src/cadence/cooperative/carrier.js";
const producer = "src/producer/producer.js";
const batch = "src/format/batch.js";
const reclaim = "src/lifecycle/reclaim.js";
const liveSet = "src/lifecycle/live-set.js";
const sweep = "src/lifecycle/sweep.js";
const sweepWindow = "src/lifecycle/sweep-window.js";
const fork = "src/lifecycle/fork.js";
const pins = "src/lifecycle/pins.js";
const boundaryChain = "src/log/boundary-chain.js";
const stageCheckpoint = "src/log/stage-checkpoint.js";
const stageRetention = "src/log/stage-retention.js";

const fencing: readonly PlantedBug[] = [
  bug(
    "no epoch check when staging",
    10,
    stage,
    "if (!state || !holds(state, holder))\n        throw fenced(holder, state);",
    "if (!state)\n        throw fenced(holder, state);",
  ),
  bug(
    "epoch alone tells whose an opening is",
    48,
    opener,
    "if (this.#stateIn(manifest)?.incarnation === this.#incarnation)",
    "if (this.#stateIn(manifest)?.epoch === (this.#before ?? 0) + 1)",
  ),
  bug(
    "an opening takes no new epoch",
    9,
    stage,
    "epoch: asEpoch((before?.epoch ?? 0) + 1),",
    "epoch: asEpoch(before?.epoch ?? 1),",
  ),
  bug(
    "FENCED taken for committed",
    "FORMAT 15",
    producer,
    "entry.reject(error);",
    "entry.resolve({ seq: entry.upload.seq, version: Number.MAX_SAFE_INTEGER });",
  ),
  bug(
    "acknowledged by seq alone, whoever holds the id",
    "FORMAT 15",
    producer,
    "if (!state || !holds(state, this.#holder))",
    "if (!state)",
  ),
  {
    name: "a zombie's intent is carried past its successor",
    hazard: 47,
    edits: [
      {
        file: intents,
        find: "if (!state || !holds(state, first) || draft.closed)",
        replace: "if (!state || draft.closed)",
      },
      // Staging checks the holder once more; here it is told the successor's name.
      {
        file: intents,
        find: 'if (stageBatches(draft, spec, first, [batch])[0] !== "staged")',
        replace: 'if (stageBatches(draft, spec, { ...state, producer: first.producer }, [batch])[0] !== "staged")',
      },
    ],
  },
  bug(
    "a late opening intent counts whatever the epoch",
    47,
    intents,
    "if (before !== opening.before || draft.closed)",
    "if (draft.closed)",
  ),
];

const sequence: readonly PlantedBug[] = [
  bug("no producer-state look-up: restage what is in", 7, stage, "if (batch.seq < state.seq) {", "if (false) {"),
  {
    name: "a gap in the sequence is accepted",
    hazard: 12,
    scenario: "hazard-12-late-names",
    edits: [
      { file: stage, find: "if (batch.seq > state.seq) {", replace: "if (false) {" },
      { file: intents, find: "if (batch.seq > seq || !isWellFormed(batch, spec))", replace: "if (false)" },
    ],
  },
  bug(
    "a returning producer is not looked up in the tables",
    14,
    opener,
    "own: base.producers.has(id) ? undefined : await find(id),",
    "own: undefined,",
  ),
  bug("an older table wins over a newer one", 51, silent, "of [...base.tables].reverse()) {", "of base.tables) {"),
  bug(
    "state that changed in this very commit is moved out",
    51,
    silent,
    "if (draft.producers.get(id) !== draft.base.producers.get(id))",
    "if (false)",
  ),
  bug(
    "silent state looked up from an older base",
    51,
    opener,
    "own: base.producers.has(id) ? undefined : await find(id),",
    "own: (this.kept ??= { found: base.producers.has(id) ? undefined : await find(id) }).found,",
  ),
];

const commits: readonly PlantedBug[] = [
  bug("no boundary check after the PUT", 15, head, "if (upTo >= created.version)", "if (false)"),
  bug(
    "the look after the PUT is an old one",
    15,
    head,
    "const upTo = await this.boundary.look(options);\n        if (upTo >= created.version)",
    "const upTo = this.boundary.newest.upTo;\n        if (upTo >= created.version)",
  ),
  bug(
    "a 412 taken for one's own",
    3,
    commit,
    'return found.commit.id === next.commit.id ? "mine" : "other";',
    'return "mine";',
  ),
  bug(
    "an unknown outcome taken for success",
    2,
    commit,
    "await this.#env.sleep(delayMs * (0.5 + this.#env.random()), signal);\n        }",
    'return "mine";\n        }',
  ),
  bug(
    "a conflicting commit is not staged again",
    "FORMAT 15",
    commit,
    "let base = looked ? await this.#head.jump({ signal }) : (options.from ?? (await this.#head.newest({ signal })));",
    "let base = (options.from ?? (change.kept ??= await this.#head.newest({ signal })));",
  ),
  bug(
    "segments are not written before the commit",
    6,
    commit,
    "await Promise.all(staged.draft.sealed.map(({ key, bytes }) => this.#store.put(key, bytes, { signal })));",
    "void Promise.all(staged.draft.sealed.map(({ key, bytes }) => this.#store.put(key, bytes, { signal })));",
  ),
  bug(
    "a manifest is created without a condition",
    21,
    commit,
    "const first = this.#store.create(key, bytes, { signal });",
    'const first = this.#store.put(key, bytes, { signal }).then(() => "created");',
  ),
  bug(
    "clean-up after a failed commit",
    45,
    producer,
    "entry.reject(error);",
    '{ void import("../format/index.js").then((format) => entry.upload.descriptor && this.#log.store.delete(format.descriptorKeys(entry.upload.descriptor)).catch(() => { })); entry.reject(error); }',
  ),
  bug(
    "acknowledging from a chain that nobody vouched for",
    16,
    carrier,
    "if (!(await head.vouch(chain, { signal }))) {",
    "if (false) {",
  ),
  bug("staging below the cutoff", 37, stage, "if (batch.base < draft.base.orphanCutoff)", "if (false)"),
  bug(
    "an upload behind the cutoff is not made again",
    55,
    producer,
    "entry.uploaded = false;\n                    this.#queue.push(entry);",
    "",
  ),
  bug("appending to a closed log", 35, stage, "if (draft.closed)\n        throw closedError(draft.end);", ""),
];

const reading: readonly PlantedBug[] = [
  bug("no boundary check after a probe read", 24, head, "if (next && upTo < next.version)", "if (next)"),
  bug("an absent name taken for the head", 23, head, "if (next || (upTo > 0 && upTo >= from.version))", "if (next)"),
  bug(
    "believing every manifest that was read",
    16,
    head,
    "return manifest;\n    }\n    #adopt(manifest) {",
    "return manifest && this.#adopt(manifest);\n    }\n    #adopt(manifest) {",
  ),
  bug("slices are not checked", 30, batch, "if (found !== entry.crc)", "if (false)"),
  {
    name: "footers are not checked",
    hazard: 30,
    edits: [
      { file: batch, find: "if (found !== extent.check)", replace: "if (false)" },
      { file: batch, find: "if (found !== entry.crc)", replace: "if (false)" },
    ],
  },
];

const reclaiming: readonly PlantedBug[] = [
  bug(
    "manifests deleted before they are announced",
    40,
    reclaim,
    ": await announce(log, manifest, signal);",
    ": lastReleased(manifest);",
  ),
  bug(
    "liveness from an older head",
    41,
    reclaim,
    "live = await computeLive(log, manifest, { basesBelow: manifest",
    "live = await computeLive(log, base, { basesBelow: manifest",
  ),
  {
    name: "the cutoff is not committed first",
    hazard: 37,
    edits: [
      {
        file: stageRetention,
        find: "draft.orphanCutoff = asVersion(Math.max(draft.orphanCutoff, Math.min(wanted, draft.base.version)));",
        replace: "void wanted;",
      },
      { file: reclaim, find: "{ basesBelow: manifest.orphanCutoff,", replace: "{ basesBelow: wanted," },
      {
        file: reclaim,
        find: "cutoff: manifest.orphanCutoff,\n        fromBase",
        replace: "cutoff: wanted,\n        fromBase",
      },
    ],
  },
  bug(
    "last batches of producers are not live",
    14,
    liveSet,
    "live.addLast({ producer, ...resume.batch });",
    "void producer;",
  ),
  bug(
    "waiting batches are not live",
    "lanes",
    liveSet,
    "for (const descriptor of manifest.waiting.values())\n        add(descriptor);",
    "",
  ),
  bug(
    "tables that a state names are not live",
    51,
    liveSet,
    'if (resume.kind === "table")\n            live.addIndexObject(nodeRefKey(resume.table));',
    "",
  ),
  bug(
    "a partial live set is good enough",
    42,
    liveSet,
    "await visitSteps(log, { ...head, from: Math.max(first, scope.fromStep) }, add, scope.inFlightMax, options);",
    "await visitSteps(log, { ...head, from: Math.max(first, scope.fromStep, manifest.tail.start) }, add, scope.inFlightMax, options);",
  ),
  {
    name: "the boundary covers the head",
    hazard: "FORMAT 9",
    edits: [
      {
        file: reclaim,
        find: "return asVersion(Math.max(0, manifest.orphanCutoff - 1));",
        replace: "return manifest.version;",
      },
      { file: boundaryChain, find: 'assert(upTo < head, "the head is never announced");', replace: "" },
    ],
  },
  bug(
    "a marker that somebody else wrote counts as one's own",
    38,
    boundaryChain,
    "another marker may have this number.\n",
    'another marker may have this number.\n            if (outcome !== "unknown")\n                return upTo;\n',
  ),
  bug(
    "the trim passes live checkpoints",
    27,
    stageRetention,
    "lowest = Math.min(lowest, Math.floor(row / rows));",
    "lowest = Math.max(lowest === Number.POSITIVE_INFINITY ? 0 : lowest, Math.floor(row / rows));",
  ),
  bug(
    "a released checkpoint is registered again",
    50,
    stageCheckpoint,
    "if (group.released.includes(wanted.id))\n        throw releasedError(wanted);",
    "",
  ),
  bug("a checkpoint below the trim is accepted", 28, stageCheckpoint, "if (row < draft.trim * rows) {", "if (false) {"),
  bug(
    "keepLast drops the newest checkpoints",
    "design 0006",
    stageCheckpoint,
    "const dropped = newestFirst(live)\n        .slice(keep)",
    "const dropped = newestFirst(live)\n        .slice(0, Math.max(0, live.size - keep))",
  ),
  bug(
    "keepLast goes by rows: after a rollback the abandoned checkpoints stay",
    "design 0006",
    stageCheckpoint,
    "y.at - x.at || y.row - x.row",
    "y.row - x.row",
  ),
  bug("keepLast keeps one too few", "design 0006", stageCheckpoint, ".slice(keep)", ".slice(Math.max(1, keep - 1))"),
  {
    name: "orphans go by age, not by the committed cutoff",
    hazard: 44,
    edits: [
      // A generous age, and clocks that may be ten minutes off.
      {
        file: reclaim,
        find: "let live;",
        replace:
          "const aged = asVersion(Math.max(manifest.orphanCutoff, await chooseCutoff(log, base, { graceMs: 60_000, keepVersions: 1 }, { signal })));\n    let live;",
      },
      { file: reclaim, find: "{ basesBelow: manifest.orphanCutoff,", replace: "{ basesBelow: aged," },
      {
        file: reclaim,
        find: "cutoff: manifest.orphanCutoff,\n        fromBase",
        replace: "cutoff: aged,\n        fromBase",
      },
    ],
  },
  bug(
    "uploads above the cutoff are swept",
    37,
    sweep,
    "if (!name || name.base >= sweep.cutoff || name.base < sweep.fromBase || sweep.live.hasBatch(name))",
    "if (!name || name.base < sweep.fromBase || sweep.live.hasBatch(name))",
  ),
  bug(
    "unfinished uploads above the cutoff are aborted",
    8,
    sweep,
    "if (!name || name.base >= sweep.cutoff || sweep.live.hasBatch(name))\n            return false;",
    "if (!name || sweep.live.hasBatch(name))\n            return false;",
  ),
];

const forking: readonly PlantedBug[] = [
  bug(
    "pins are not live",
    52,
    liveSet,
    "for (const pin of manifest.pins.values())\n        await addPinned(log, pin, trim, live, scope, options);",
    "",
  ),
  bug(
    "what the trim releases goes although a fork pins it",
    52,
    sweepWindow,
    "if (descriptor.origin !== undefined || pinned.some((pin) => step >= pin.from && step < pin.to))",
    "if (descriptor.origin !== undefined)",
  ),
  bug(
    "a pin keeps batches but not its index",
    52,
    liveSet,
    "const range = { tree, from: Math.max(pin.from, firstIndexedStep(log)), to: pin.to };\n    for (const { ref } of await indexObjects(log, range, options))\n        live.addIndexObject(nodeRefKey(ref));",
    "const range = { tree, from: Math.max(pin.from, firstIndexedStep(log)), to: pin.to };",
  ),
  {
    name: "a fork of a fork pins its parent only",
    hazard: 52,
    edits: [
      { file: fork, find: "await commitPinCopy(ancestor, log.spec.uuid, origin, pin, { signal });", replace: "" },
      // The confirmation would notice.
      {
        file: pins,
        find: 'if ((await commitConfirmation(log, spec.uuid, options)) === "gone")\n                throw pinGone(spec.uuid, uri);',
        replace: "await commitConfirmation(log, spec.uuid, options);",
      },
    ],
  },
  bug(
    "a fork lives on although its pin was removed before it existed",
    52,
    stageRetention,
    'if (!pin)\n        return "gone";',
    'if (!pin)\n        return "done";',
  ),
];

const deleting: readonly PlantedBug[] = [
  bug(
    "lives of one place share their keys",
    34,
    "src/log/life.js",
    "return withPrefix(place, lifeFolder(life));",
    'return withPrefix(place, lifeFolder({ ...life, uuid: "00000000-0000-4000-8000-000000000000" }));',
  ),
  bug(
    "deleted without a version that says so",
    34,
    "src/lifecycle/deletion.js",
    "draft.deleted = true;\n                return { done: false, result: undefined };",
    "return { done: true, result: undefined };",
  ),
  bug("the chain of a deleted life has no end", 34, "src/lifecycle/deletion.js", "await chain?.end(env, options);", ""),
  bug(
    "namespace.json goes before the objects",
    34,
    "src/namespace/open.js",
    "await endLife(life, env, { signal }).catch(tolerant);",
    "deleted += await removeNamespaceObject(life, { signal });\n        await endLife(life, env, { signal }).catch(tolerant);",
  ),
].map((planted) => ({ ...planted, scenario: "hazard-34-lives" }));

/** Every planted bug of the product. */
export const plantedBugs: readonly PlantedBug[] = [
  ...fencing,
  ...sequence,
  ...commits,
  ...reading,
  ...reclaiming,
  ...forking,
  ...deleting,
  ...deepBugs,
  ...fleetBugs,
  ...powerBugs,
];

/** Bugs in the toy log: they show that planting works, whatever the product looks like. */
export const toyBugs: readonly PlantedBug[] = [
  {
    ...bug(
      "toy: trusting a 412",
      3,
      "sim/actors/chain-cast.js",
      "if (new TextDecoder().decode(winner) === entry)",
      "if (false)",
    ),
    scenario: "chain",
  },
  {
    ...bug(
      "toy: absence taken for failure",
      2,
      "sim/actors/chain-cast.js",
      "if (winner === undefined)\n                continue;",
      "if (winner === undefined) { n++; continue; }",
    ),
    scenario: "chain",
  },
];
