/** Events with an addressee. */
import { SimEvent } from "./event-heap.js";
import type { SimProcess } from "./world.js";

/** An event that reaches a process: dropped when it is dead, held while it is paused. */
export abstract class ProcessEvent extends SimEvent {
  readonly process: SimProcess;
  /** True for what the process's own timers bring, false for what comes from outside. */
  readonly isTimer: boolean = false;

  constructor(process: SimProcess) {
    super();
    this.process = process;
  }

  /** Called when the process can receive it. */
  abstract deliver(): void;

  override fire(): void {
    if (this.process.accepts(this)) this.deliver();
  }
}
