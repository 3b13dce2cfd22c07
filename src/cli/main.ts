#!/usr/bin/env node
/** The entry of the package's `batchweave` command. */
import { runCli } from "./index.js";

process.exitCode = await runCli(process.argv.slice(2));
