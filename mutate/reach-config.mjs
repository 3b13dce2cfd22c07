// The tests as ever, with a counter of lines in each file's process.
import { defineConfig, mergeConfig } from "vitest/config";
import own from "../vitest.config.ts";

export default mergeConfig(own, defineConfig({ test: { root: process.cwd(), setupFiles: ["mutate/reach-setup.ts"] } }));
