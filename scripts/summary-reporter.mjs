// A vitest reporter that leaves the counts, and why each skipped test was skipped, in the file that
// BATCHWEAVE_TEST_SUMMARY names. The built-in JSON reporter does not tell the reasons.
import { writeFileSync } from "node:fs";

export default class SummaryReporter {
  /** @param {ReadonlyArray<import("vitest/node").TestModule>} modules */
  onTestRunEnd(modules) {
    const summary = { passed: 0, failed: 0, skipped: /** @type {{ name: string, reason: string }[]} */ ([]) };
    for (const module of modules) {
      // A file that cannot be loaded, or a hook that fails, has no failed test of its own.
      summary.failed += module.errors().length;
      for (const suite of module.children.allSuites()) summary.failed += suite.errors().length;
      for (const test of module.children.allTests()) {
        const result = test.result();
        if (result.state === "passed") summary.passed++;
        else if (result.state === "failed") summary.failed++;
        else {
          const note = result.state === "skipped" ? result.note : "did not run";
          summary.skipped.push({
            name: `${module.relativeModuleId}: ${test.fullName}`,
            reason: note ?? "no reason given",
          });
        }
      }
    }
    const file = process.env.BATCHWEAVE_TEST_SUMMARY;
    if (file !== undefined) writeFileSync(file, JSON.stringify(summary));
  }
}
