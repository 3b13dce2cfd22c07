/** Every command by name. Each is loaded only when it is called, so that the command starts fast. */
import type { Command } from "./command.js";

/** A command before it is loaded. */
interface CommandEntry {
  readonly summary: string;
  load(): Promise<{ readonly command: Command }>;
}

/** In the order in which help lists them. */
export const commands: Readonly<Record<string, CommandEntry>> = {
  demo: {
    summary: "Producers, ranks, crashes and a proof, on this machine",
    load: () => import("./commands/demo.js"),
  },
  create: { summary: "Create a namespace", load: () => import("./commands/create.js") },
  ls: { summary: "List namespaces, or the batches of one", load: () => import("./commands/ls.js") },
  info: { summary: "Show the state of a namespace", load: () => import("./commands/info.js") },
  top: { summary: "Show a log and the processes on it, live", load: () => import("./commands/top.js") },
  dashboard: { summary: "Show namespaces live in the browser", load: () => import("./commands/dashboard.js") },
  inspect: { summary: "Show one batch", load: () => import("./commands/inspect.js") },
  preview: { summary: "Show what a slice holds, such as tensors", load: () => import("./commands/preview.js") },
  produce: { summary: "Write batches, synthetic or from files", load: () => import("./commands/produce.js") },
  run: { summary: "Run a pipeline: from many sources to balanced batches", load: () => import("./commands/run.js") },
  load: { summary: "Load a pipeline's sources into their logs", load: () => import("./commands/load.js") },
  construct: { summary: "Construct batches from source logs", load: () => import("./commands/construct.js") },
  plan: { summary: "Show what a pipeline would do", load: () => import("./commands/plan.js") },
  "fleet up": {
    summary: "Run a pipeline's processes here, on Ray, Kubernetes or Slurm",
    load: () => import("./commands/fleet-up.js"),
  },
  "fleet render": {
    summary: "Show what fleet up would hand to an engine",
    load: () => import("./commands/fleet-render.js"),
  },
  "fleet scale": {
    summary: "Carry out fleet advice on Kubernetes or Slurm",
    load: () => import("./commands/fleet-scale.js"),
  },
  "fleet size": { summary: "Size a fleet for a pipeline", load: () => import("./commands/fleet-size.js") },
  "fleet advice": {
    summary: "Say how many processes there should be now",
    load: () => import("./commands/fleet-advice.js"),
  },
  consume: { summary: "Read as one rank of a mesh", load: () => import("./commands/consume.js") },
  close: { summary: "Close a log: no batch after its end", load: () => import("./commands/close.js") },
  delete: { summary: "Delete a namespace", load: () => import("./commands/delete.js") },
  verify: { summary: "Prove every reference, checksum and sequence", load: () => import("./commands/verify.js") },
  find: { summary: "Find the steps that held a sample", load: () => import("./commands/find.js") },
  fork: { summary: "Share another namespace's batches up to a step", load: () => import("./commands/fork.js") },
  checkpoint: { summary: "List or release checkpoints", load: () => import("./commands/checkpoint.js") },
  limit: { summary: "Limit how far producers may be ahead", load: () => import("./commands/limit.js") },
  reclaim: { summary: "Delete what is no longer needed", load: () => import("./commands/reclaim.js") },
  doctor: { summary: "Check a namespace, and say what to do", load: () => import("./commands/doctor.js") },
  completion: { summary: "Completion for bash, zsh or fish", load: () => import("./commands/completion.js") },
  probe: { summary: "Check that a store keeps the rules", load: () => import("./commands/probe.js") },
};
