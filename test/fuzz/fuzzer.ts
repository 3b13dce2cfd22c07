/** Runs changed cases through the decoders: whatever is not a value or a BatchWeaveError, or takes a second, is a finding. */
import { parseXml } from "../../src/store/s3/xml.js";
import { type ConformanceCase, type ConformanceResult, runCase } from "../conformance/case-runner.js";
import { Dice, mutate, seeds, type Target, targets } from "./mutations.js";

/** What a run found. */
export interface Finding {
  readonly target: Target | "http";
  readonly seed: number;
  readonly what: string;
  readonly given: unknown;
}

const slowMs = 1_000;

async function attempt(given: ConformanceCase, target: Target, seed: number): Promise<ConformanceResult | Finding> {
  // The time of the processor, not of a busy machine.
  const begun = process.cpuUsage();
  try {
    const result = await runCase(given);
    const tookMs = process.cpuUsage(begun).user / 1_000;
    return tookMs < slowMs ? result : { target, seed, what: `took ${Math.round(tookMs)} ms`, given };
  } catch (error) {
    return { target, seed, what: String(error), given };
  }
}

/** One case of every target, and what became of it. The same seed gives the same cases. */
export async function fuzzOnce(
  seed: number,
  note: (given: ConformanceCase, result: ConformanceResult, target: Target) => void = () => {},
): Promise<Finding[]> {
  const findings: Finding[] = [];
  for (const [i, target] of targets.entries()) {
    const dice = new Dice(seed * 31 + i);
    const given = mutate(dice.pick(corpus.get(target) as ConformanceCase[]), target, dice);
    const result = await attempt(given, target, seed);
    if ("target" in result) findings.push(result);
    else note(given, result, target);
  }
  const text = fuzzedXml(new Dice(seed * 31 + targets.length));
  try {
    parseXml(text);
  } catch (error) {
    // It says that it is no XML; anything else is a defect.
    if (!(error instanceof Error) || error instanceof TypeError || error instanceof RangeError)
      findings.push({ target: "http", seed, what: String(error), given: text });
  }
  return findings;
}

const corpus = seeds();

const answers = [
  '<?xml version="1.0" encoding="UTF-8"?><Error><Code>NoSuchKey</Code><Message>a &lt;b&gt; &#x1b;</Message><Key>x</Key></Error>',
  "<ListBucketResult><Name>b</Name><IsTruncated>true</IsTruncated><Contents><Key>a/b</Key><Size>12</Size></Contents><NextContinuationToken>t==</NextContinuationToken></ListBucketResult>",
  "<!doctype html><html><body>Sign in</body></html>",
  '<DeleteResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/"><Error><Key>k</Key><Code>AccessDenied</Code></Error></DeleteResult>',
];

function fuzzedXml(dice: Dice): string {
  let text = dice.pick(answers);
  for (let i = dice.below(6); i >= 0; i--) {
    const at = dice.below(text.length + 1);
    const piece = dice.pick([
      "<",
      ">",
      "&",
      "</",
      "]]>",
      "<![CDATA[",
      "&#x110000;",
      "&#0;",
      "<a>".repeat(50),
      "\u0000",
      text.slice(0, 40),
      "",
    ]);
    text = text.slice(0, at) + piece + text.slice(at + dice.below(5));
  }
  return text;
}
