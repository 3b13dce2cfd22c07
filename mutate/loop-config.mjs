// The tests as ever, all in one process, kept as functions that are called again for every mutant.
import { defineConfig, mergeConfig } from "vitest/config";
import own from "../vitest.config.ts";

const loop = {
  root: process.cwd(),
  runner: "./mutate/loop-runner.ts",
  isolate: false,
  fileParallelism: false,
  maxWorkers: 1,
};
export default mergeConfig(own, defineConfig({ test: { ...loop, execArgv: ["--max-old-space-size=2048"] } }));
