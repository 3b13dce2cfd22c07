/** Parts of sources put into processes: the heaviest first, each into the process that is emptiest. Pure. */

/** A lane of a source, by what it keeps busy. */
export interface PartLoad {
  readonly source: number;
  /** Transform threads. */
  readonly threads: number;
  /** Of a main thread. */
  readonly main: number;
}

/** What a process has. */
interface ProcessRoom {
  readonly threads: number;
  readonly main: number;
  /** So many processes, however full they get. Default: as few as have room. */
  readonly count?: number | undefined;
}

/** The fullest of both measures, as a share of a process. */
const fullness = ({ threads, main }: Omit<PartLoad, "source">, room: ProcessRoom): number =>
  Math.max(threads / room.threads, main / room.main);

/** Spreads parts over as few processes as have room for them, evenly. A part that is more than a process has one to itself. */
export function partition(parts: readonly PartLoad[], room: ProcessRoom): PartLoad[][] {
  const order = [...parts].sort((a, b) => fullness(b, room) - fullness(a, room));
  const total = (key: "threads" | "main"): number => parts.reduce((sum, part) => sum + part[key], 0);
  let count =
    room.count ?? Math.max(1, Math.ceil(fullness({ threads: total("threads"), main: total("main") }, room) - 1e-9));
  for (; ; count++) {
    const bins = spread(order, count, room);
    const isFull = bins.some((held) => held.length > 1 && fullness(loadOf(held), room) > 1 + 1e-9);
    if (room.count !== undefined || !isFull || count >= parts.length) return bins;
  }
}

function loadOf(held: readonly PartLoad[]): Omit<PartLoad, "source"> {
  return {
    threads: held.reduce((sum, part) => sum + part.threads, 0),
    main: held.reduce((sum, part) => sum + part.main, 0),
  };
}

function spread(order: readonly PartLoad[], count: number, room: ProcessRoom): PartLoad[][] {
  const bins = Array.from({ length: count }, (): PartLoad[] => []);
  const loads = bins.map(() => ({ threads: 0, main: 0 }));
  for (const part of order) {
    let best = 0;
    for (let i = 1; i < count; i++) {
      const [mine, least] = [loads[i] as (typeof loads)[0], loads[best] as (typeof loads)[0]];
      const [a, b] = [fullness(mine, room), fullness(least, room)];
      // Parts without any load are spread by number.
      if (a < b || (a === b && (bins[i]?.length ?? 0) < (bins[best]?.length ?? 0))) best = i;
    }
    bins[best]?.push(part);
    const load = loads[best] as (typeof loads)[0];
    load.threads += part.threads;
    load.main += part.main;
  }
  return bins;
}
