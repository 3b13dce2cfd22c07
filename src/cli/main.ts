#!/usr/bin/env node
/** The entry of the package's `batchweave` command. */
import { runCli } from "./index.js";

const status = await runCli(process.argv.slice(2));
process.exitCode = status;
// A connection that hangs must not hold a process that was told to stop.
if (status > 128) process.exit();
