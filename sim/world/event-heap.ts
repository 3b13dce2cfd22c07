/** The queue of what happens next in virtual time: earliest first, first scheduled first among equals. */

/** Something that happens at a virtual time. A fired event may be scheduled again, so one object can carry a call through all its stages. */
export abstract class SimEvent {
  timeMs = 0;
  /** Order of scheduling, which breaks ties. */
  order = 0;
  /** A cancelled event stays in the heap and is skipped. */
  cancelled = false;

  /** Called once its time has come. */
  abstract fire(): void;
}

/** A binary heap over parallel arrays: comparing plain numbers is most of the cost of a simulation's queue. */
export class EventHeap {
  #times: number[] = [];
  #events: SimEvent[] = [];
  #order = 0;
  #cancelled = 0;

  /** Events waiting, cancelled ones included. */
  get size(): number {
    return this.#events.length;
  }

  /** Adds an event. It must not be waiting already. */
  push(event: SimEvent, timeMs: number): void {
    event.timeMs = timeMs;
    event.order = this.#order++;
    const times = this.#times;
    const events = this.#events;
    let i = events.length;
    times.push(timeMs);
    events.push(event);
    // The newest event loses every tie, so times alone decide on the way up.
    while (i > 0) {
      const parent = (i - 1) >> 1;
      const parentTime = times[parent] as number;
      if (parentTime <= timeMs) break;
      times[i] = parentTime;
      events[i] = events[parent] as SimEvent;
      i = parent;
    }
    times[i] = timeMs;
    events[i] = event;
  }

  /** Time of the next live event, or Infinity. */
  peekTimeMs(): number {
    this.#dropCancelled();
    return this.#times.length === 0 ? Number.POSITIVE_INFINITY : (this.#times[0] as number);
  }

  /** Removes and returns the next live event. */
  pop(): SimEvent | undefined {
    this.#dropCancelled();
    return this.#events.length === 0 ? undefined : this.#removeFirst();
  }

  /** Marks a waiting event so that it never fires. */
  cancel(event: SimEvent): void {
    if (event.cancelled) return;
    event.cancelled = true;
    this.#cancelled++;
    // Hedge timers and timeouts are cancelled nearly always; without this the heap would mostly hold the dead.
    if (this.#cancelled > 1024 && this.#cancelled * 2 > this.#events.length) this.#compact();
  }

  #dropCancelled(): void {
    while (this.#cancelled > 0 && this.#events.length > 0 && (this.#events[0] as SimEvent).cancelled) {
      this.#removeFirst();
      this.#cancelled--;
    }
  }

  #removeFirst(): SimEvent {
    const times = this.#times;
    const events = this.#events;
    const first = events[0] as SimEvent;
    const lastTime = times.pop() as number;
    const last = events.pop() as SimEvent;
    if (events.length > 0) this.#sink(0, last, lastTime);
    return first;
  }

  #sink(from: number, event: SimEvent, timeMs: number): void {
    const times = this.#times;
    const events = this.#events;
    const length = events.length;
    let i = from;
    for (;;) {
      let child = 2 * i + 1;
      if (child >= length) break;
      let childTime = times[child] as number;
      if (child + 1 < length) {
        const rightTime = times[child + 1] as number;
        if (
          rightTime < childTime ||
          (rightTime === childTime && (events[child + 1] as SimEvent).order < (events[child] as SimEvent).order)
        ) {
          child++;
          childTime = rightTime;
        }
      }
      if (childTime > timeMs || (childTime === timeMs && (events[child] as SimEvent).order > event.order)) break;
      times[i] = childTime;
      events[i] = events[child] as SimEvent;
      i = child;
    }
    times[i] = timeMs;
    events[i] = event;
  }

  #compact(): void {
    const live = this.#events.filter((event) => !event.cancelled);
    this.#events = live;
    this.#times = live.map((event) => event.timeMs);
    this.#cancelled = 0;
    for (let i = (live.length >> 1) - 1; i >= 0; i--) this.#sink(i, live[i] as SimEvent, this.#times[i] as number);
  }
}
