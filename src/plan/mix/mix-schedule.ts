/** Which share of a batch each source gets, and how that changes while training goes on. Pure, but for a callback of the user's. */
import { BatchWeaveError } from "../../index.js";

/** Shares by source name; any positive scale. A source that is not named gets nothing. */
export type Weights = Readonly<Record<string, number>>;

/** The same, of sources whose names are known to the compiler. */
type NamedWeights<Name extends string> = { readonly [name in Name]?: number };

/** What a schedule counts. `substep`: parts of a step, so that shares change within a batch. */
type MixGranularity = "epoch" | "step" | "substep";

/** Where in the training a draw is made. */
export interface MixContext {
  readonly step: number;
  /** `step`, `step / stepsPerEpoch` or `step` and a fraction, by the schedule's granularity. */
  readonly position: number;
  /** What the pipeline was told about the training, such as its loss. */
  readonly metrics: Readonly<Record<string, number>>;
}

/** A mixing schedule. Phases are what reports are broken down by, and where rounding starts afresh. */
export interface MixSchedule<Name extends string = string> {
  /** The sources that it names; undefined when a callback decides. A graph takes only schedules over its own sources. */
  readonly sources: readonly Name[] | undefined;
  readonly kind: "static" | "staged" | "warm-up" | "callback";
  readonly by: MixGranularity;
  readonly stepsPerEpoch: number;
  readonly substeps: number;
  /** Names of all phases. */
  readonly phases: readonly string[];
  phaseAt(position: number): number;
  weightsAt(context: MixContext): Weights;
}

/** Settings every schedule takes. */
interface MixSettings {
  /** Default "step". */
  readonly by?: MixGranularity | undefined;
  /** With `by: "epoch"`: how many steps make one. */
  readonly stepsPerEpoch?: number | undefined;
  /** With `by: "substep"`: parts of a step. Default 8. */
  readonly substeps?: number | undefined;
}

/** One stage of {@link stagedMix}. */
interface MixStage<Name extends string = string> {
  /** First position (step, epoch or substep fraction) of the stage. */
  readonly from: number;
  readonly weights: NamedWeights<Name>;
  readonly name?: string | undefined;
}

type Shape = Pick<MixSchedule, "kind" | "phases" | "phaseAt" | "weightsAt">;

function schedule<Name extends string>(
  shape: Shape,
  settings: MixSettings,
  sources: readonly Name[] | undefined,
): MixSchedule<Name> {
  const { by = "step", stepsPerEpoch = 1, substeps = 8 } = settings;
  if (by === "epoch" && settings.stepsPerEpoch === undefined)
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      'A mix by "epoch" needs stepsPerEpoch: how many steps make an epoch.',
    );
  for (const [name, value] of Object.entries({ stepsPerEpoch, substeps })) {
    if (!Number.isSafeInteger(value) || value < 1)
      throw new BatchWeaveError("INVALID_ARGUMENT", `${name} must be a whole number of at least 1, not ${value}.`);
  }
  return { ...shape, sources, by, stepsPerEpoch, substeps: by === "substep" ? substeps : 1 };
}

/** The same shares throughout. */
export function staticMix<Name extends string>(
  given: Readonly<Record<Name, number>>,
  settings: MixSettings = {},
): MixSchedule<Name> {
  const weights: Weights = given;
  assertWeights(weights);
  const shape: Shape = { kind: "static", phases: ["all"], phaseAt: () => 0, weightsAt: () => weights };
  return schedule(shape, settings, namesOf([given]));
}

/** Shares that switch at given positions: staged training, curricula. */
export function stagedMix<Name extends string>(
  given: readonly MixStage<Name>[],
  settings: MixSettings = {},
): MixSchedule<Name> {
  const stages = given as readonly (MixStage & { readonly weights: Weights })[];
  stages.forEach(({ from, weights }, i) => {
    assertWeights(weights);
    const previous = stages[i - 1];
    if (previous ? from > previous.from : from === 0) return;
    throw new BatchWeaveError(
      "INVALID_ARGUMENT",
      `Stage ${i} of the mix starts at ${from}: the first stage starts at 0 and each later one after the one before it.`,
      { stage: i, from },
    );
  });
  if (stages.length === 0) throw new BatchWeaveError("INVALID_ARGUMENT", "A staged mix needs at least one stage.");
  const phaseAt = (position: number): number => {
    let phase = 0;
    while (phase + 1 < stages.length && (stages[phase + 1] as MixStage).from <= position) phase++;
    return phase;
  };
  return schedule(
    {
      kind: "staged",
      phases: stages.map(({ name, from }) => name ?? `from ${from}`),
      phaseAt,
      weightsAt: ({ position }) => stages[phaseAt(position)]?.weights as Weights,
    },
    settings,
    namesOf(given.map(({ weights }) => weights)),
  );
}

/** Shares that move in a straight line from one mixture to another over the first `over` positions. */
export function warmUpMix<Name extends string>(
  ramp: { readonly from: NamedWeights<Name>; readonly to: NamedWeights<Name>; readonly over: number },
  settings: MixSettings = {},
): MixSchedule<Name> {
  const { over } = ramp;
  const [from, to] = [ramp.from as Weights, ramp.to as Weights];
  assertWeights(from);
  assertWeights(to);
  const [a, b] = [shares(from), shares(to)];
  const names = [...new Set([...Object.keys(a), ...Object.keys(b)])];
  return schedule(
    {
      kind: "warm-up",
      phases: ["warm-up", "after"],
      phaseAt: (position) => (position < over ? 0 : 1),
      weightsAt: ({ position }) => {
        const t = Math.min(1, position / over);
        return Object.fromEntries(names.map((name) => [name, (1 - t) * (a[name] ?? 0) + t * (b[name] ?? 0)]));
      },
    },
    settings,
    namesOf([ramp.from, ramp.to]),
  );
}

/**
 * Shares decided while training goes on, from metrics such as the loss of each source. What the callback returned is stored with the batch
 * it was used for, so that the batch can be made again, bit for bit, whatever the callback would say then.
 */
export function callbackMix<Name extends string>(
  weightsAt: (context: MixContext) => Readonly<Record<Name, number>>,
  settings: MixSettings = {},
): MixSchedule<Name> {
  return schedule<Name>({ kind: "callback", phases: ["all"], phaseAt: () => 0, weightsAt }, settings, undefined);
}

/** Every name that some of the weights have. */
function namesOf<Name extends string>(weights: readonly NamedWeights<Name>[]): Name[] {
  return [...new Set(weights.flatMap((one) => Object.keys(one) as Name[]))];
}

function shares(weights: Weights): Record<string, number> {
  const sum = Object.values(weights).reduce((a, b) => a + b, 0);
  return Object.fromEntries(Object.entries(weights).map(([name, weight]) => [name, weight / sum]));
}

/** Refuses weights that are not numbers of at least 0 with one above it. */
export function assertWeights(weights: Weights): void {
  const values = Object.values(weights);
  if (values.every((w) => Number.isFinite(w) && w >= 0) && values.some((w) => w > 0)) return;
  throw new BatchWeaveError(
    "INVALID_ARGUMENT",
    `The weights ${JSON.stringify(weights)} are not numbers of at least 0 with one above it.`,
    { weights },
  );
}

/** The position of draw `i` of `count` in `step`. */
export function mixPosition(schedule: MixSchedule, step: number, i = 0, count = 1): number {
  if (schedule.by === "epoch") return Math.floor(step / schedule.stepsPerEpoch);
  if (schedule.by === "step") return step;
  return step + Math.floor((i * schedule.substeps) / count) / schedule.substeps;
}
