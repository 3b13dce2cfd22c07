// A vitest reporter that leaves the counts, what failed, and why each skipped test was skipped, in the file that
// BATCHWEAVE_TEST_SUMMARY names. The built-in JSON reporter does not tell the reasons.
import { writeFileSync } from "node:fs";

export default class SummaryReporter {
  /** @param {ReadonlyArray<import("vitest/node").TestModule>} modules */
  onTestRunEnd(modules) {
    /** @typedef {{ name: string, reason: string }[]} Named */
    const summary = { passed: 0, failures: /** @type {Named} */ ([]), skipped: /** @type {Named} */ ([]) };
    const fail = (/** @type {string} */ name, /** @type {{ message: string } | undefined} */ error) =>
      summary.failures.push({ name, reason: error?.message.split("\n")[0] ?? "no reason given" });
    for (const module of modules) {
      const file = module.relativeModuleId;
      // A file that cannot be loaded, or a hook that fails, has no failed test of its own.
      for (const error of module.errors()) fail(file, error);
      for (const suite of module.children.allSuites()) {
        for (const error of suite.errors()) fail(`${file}: ${suite.fullName}`, error);
      }
      for (const test of module.children.allTests()) {
        const result = test.result();
        if (result.state === "passed") summary.passed++;
        else if (result.state === "failed") fail(`${file}: ${test.fullName}`, result.errors[0]);
        else {
          const note = result.state === "skipped" ? result.note : "did not run";
          summary.skipped.push({
            name: `${file}: ${test.fullName}`,
            reason: note ?? "no reason given",
          });
        }
      }
    }
    const target = process.env.BATCHWEAVE_TEST_SUMMARY;
    if (target !== undefined) writeFileSync(target, JSON.stringify(summary));
  }
}
