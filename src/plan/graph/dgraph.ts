/**
 * DGraph: what happens to samples between their sources and their consumers, written down step by step. Declarative: a primitive adds a
 * node to the graph, `plan` carries the graph out over given samples, `describe` shows both. Immutable: every primitive returns a new graph. Pure.
 */
import { BatchWeaveError } from "../../index.js";
import type { SampleMeta } from "../load/sample-meta.js";
import type { MixSchedule } from "../mix/mix-schedule.js";
import { checkWord } from "../run/spec-check.js";
import { arrivalAssignment, type BalanceLevel, type BalanceMethod, balanceBins, imbalance } from "./balance.js";
import { type BinCapacity, loadsOf } from "./bin-loads.js";
import { type CostColumns, type CostFunction, costColumns, tokenCost } from "./cost.js";
import { describeGraph, describePlan } from "./description.js";
import type { LoadPlan, PlanBin, PlanBucket } from "./load-plan.js";
import type { BroadcastDim, ClientPlaceTree, PlaceAxis } from "./place-tree.js";

/** Balances one after another, each starting from the result of the one before. */
interface BalanceNode {
  readonly method: BalanceMethod;
  readonly level: BalanceLevel;
}

/** The nodes of a graph. */
interface GraphNodes {
  readonly name: string;
  readonly select: ((meta: SampleMeta) => boolean) | undefined;
  readonly mix: MixSchedule | undefined;
  readonly axis: PlaceAxis;
  readonly groupSize: number;
  readonly cost: CostFunction;
  readonly balance: readonly BalanceNode[];
  readonly raw: RawPlanner | undefined;
  readonly broadcast: readonly BroadcastDim[];
}

/** The bins of a graph, as a planner of your own sees them. */
interface PlanShape {
  readonly buckets: number;
  readonly binsPerBucket: number;
  readonly capacity: BinCapacity;
  readonly columns: CostColumns;
}

/** Decides the bin of every sample: bin `b * binsPerBucket + m` is bin m of bucket b. */
export type RawPlanner = (samples: readonly SampleMeta[], shape: PlanShape) => ArrayLike<number>;

/** What a graph is laid over. */
interface GraphPlace {
  readonly tree: ClientPlaceTree;
  /** Microbatches of each consumer. Default 1. */
  readonly microbatches?: number | undefined;
  /** Packed sequences of each microbatch, each a bin of its own. Default 1. */
  readonly sequences?: number | undefined;
  /** Of each packed sequence. */
  readonly capacity?: BinCapacity | undefined;
}

/** Cost of each consumer under an assignment. */
function computeOf(assignment: Int32Array, columns: CostColumns, consumers: number, binsPerBucket: number): number[] {
  const { compute } = loadsOf(assignment, consumers * binsPerBucket, columns);
  const sums = new Array<number>(consumers).fill(0);
  for (let bin = 0; bin < consumers * binsPerBucket; bin++) {
    const consumer = Math.floor(bin / binsPerBucket);
    sums[consumer] = (sums[consumer] as number) + (compute[bin] as number);
  }
  return sums;
}

/** A dataflow graph over the consumers of a place tree. `Name`: the names of the sources, so that a mix with a mistyped one does not compile. */
export class DGraph<Name extends string = string> {
  readonly place: GraphPlace;
  readonly nodes: GraphNodes;

  constructor(place: GraphPlace, nodes: Partial<GraphNodes> = {}) {
    this.place = place;
    this.nodes = {
      name: "samples",
      select: undefined,
      mix: undefined,
      axis: "dp",
      groupSize: 1,
      cost: tokenCost,
      balance: [],
      raw: undefined,
      broadcast: [],
      ...nodes,
    };
  }

  /**
   * A graph over the same samples that sees only some of them, for another module of the model: images for the encoder, say. The capacity of
   * packed sequences is the backbone's and does not bind it.
   */
  select(name: string, isMember: (meta: SampleMeta) => boolean): DGraph<Name> {
    const { tree, microbatches } = this.place;
    return new DGraph({ tree, microbatches }, { ...this.nodes, name, select: isMember });
  }

  /** Which sources the samples of each step come from. */
  mix(schedule: MixSchedule<Name>): DGraph<Name> {
    if (typeof schedule?.phaseAt !== "function")
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        "mix takes a schedule: staticMix, stagedMix, warmUpMix or callbackMix.",
      );
    return this.#with({ mix: schedule });
  }

  /** Among whom samples are divided: `dp` groups, `dp x cp` groups, or the whole `world`. `groupSize` consumers make one bucket. */
  distribute(axis: PlaceAxis, groupSize = 1): DGraph<Name> {
    if (!Number.isSafeInteger(groupSize) || groupSize < 1)
      throw new BatchWeaveError(
        "INVALID_ARGUMENT",
        `groupSize must be a whole number of at least 1, not ${groupSize}.`,
      );
    checkWord("distribute", axis, ["dp", "cp", "world"]);
    return this.#with({ axis, groupSize });
  }

  /** What a sample costs. */
  cost(cost: CostFunction): DGraph<Name> {
    return this.#with({ cost });
  }

  /** Evens out costs. May be given several times: each starts from the result of the one before. */
  balance(method: BalanceMethod = "greedy", level: BalanceLevel = "all"): DGraph<Name> {
    if (typeof method !== "function") checkWord("balance", method, ["greedy", "karmarkar-karp"]);
    checkWord("balance", level, ["all", "across-ranks", "across-microbatches", "within-microbatch"]);
    return this.#with({ balance: [...this.nodes.balance, { method, level }] });
  }

  /** Instead of `balance`: a planner of your own. Its result is checked like any other. */
  planRaw(raw: RawPlanner): DGraph<Name> {
    return this.#with({ raw });
  }

  /** The trainer broadcasts along `dim`: ranks above 0 on it do not read. */
  broadcastAt(dim: BroadcastDim): DGraph<Name> {
    checkWord("broadcastAt", dim, ["cp", "pp", "tp"]);
    return this.#with({ broadcast: [...this.nodes.broadcast, dim] });
  }

  /** Carries the graph out. `start`: an assignment that keeps the capacities, where one is known; by default samples in order of arrival. */
  plan(samples: readonly SampleMeta[], start?: Int32Array | undefined): LoadPlan {
    const { nodes, place } = this;
    const isMember = nodes.select;
    const members = isMember ? samples.filter(isMember) : samples;
    const consumers = place.tree.nodesAt(nodes.axis);
    const { microbatches = 1, sequences = 1, capacity = {} } = place;
    const binsPerBucket = microbatches * sequences;
    const bins = consumers.length * binsPerBucket;
    const columns = costColumns(members, nodes.cost);
    const begin = start && !isMember ? start : arrivalAssignment(columns, bins, capacity);
    const shape = { columns, buckets: consumers.length, binsPerBucket, capacity };
    let assignment = begin;
    const raw = nodes.raw;
    const steps: readonly BalanceNode[] = raw ? [{ method: () => raw(members, shape), level: "all" }] : nodes.balance;
    for (const { method, level } of steps) {
      const problem = { ...shape, start: assignment };
      assignment = balanceBins(problem, { method, level, groupSize: nodes.groupSize });
    }
    const measure = (a: Int32Array): LoadPlan["before"] => ({
      ranks: imbalance(a, columns, bins, binsPerBucket),
      microbatches: imbalance(a, columns, bins, sequences),
    });
    return {
      axis: nodes.axis,
      groupSize: nodes.groupSize,
      microbatches,
      sequences,
      capacity,
      broadcast: nodes.broadcast,
      samples: members,
      buckets: this.#buckets(assignment, columns, binsPerBucket),
      before: measure(begin),
      after: measure(assignment),
      arrived: computeOf(begin, columns, consumers.length, binsPerBucket),
    };
  }

  #buckets(assignment: Int32Array, columns: CostColumns, binsPerBucket: number): PlanBucket[] {
    const { tree, sequences = 1 } = this.place;
    const consumers = tree.nodesAt(this.nodes.axis);
    const loads = loadsOf(assignment, consumers.length * binsPerBucket, columns);
    const members: number[][] = Array.from({ length: loads.count }, () => []);
    for (let i = 0; i < assignment.length; i++) members[assignment[i] as number]?.push(i);
    return consumers.map((node, b) => {
      const bins = Array.from({ length: binsPerBucket }, (_, m): PlanBin => {
        const bin = b * binsPerBucket + m;
        return {
          bucket: b,
          microbatch: Math.floor(m / sequences),
          sequence: m % sequences,
          samples: members[bin] as number[],
          tokens: loads.tokens[bin] as number,
          compute: loads.compute[bin] as number,
          memory: loads.memory[bin] as number,
        };
      });
      const compute = bins.reduce((sum, bin) => sum + bin.compute, 0);
      const fetchers = tree.fetchers(node, this.nodes.broadcast);
      return { name: node.name, ranks: node.ranks, fetchers, compute, bins };
    });
  }

  /** The graph for a person; with a plan of it, also who gets what and at what cost. */
  describe(plan?: LoadPlan | undefined): string {
    const graph = describeGraph(this);
    return plan === undefined ? graph : `${graph}\n${describePlan(plan)}`;
  }

  #with(change: Partial<GraphNodes>): DGraph<Name> {
    return new DGraph(this.place, { ...this.nodes, ...change });
  }
}
