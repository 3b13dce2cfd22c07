/** `batchweave limit`: how far producers may be ahead of the checkpoints. */
import type { Call, Command } from "../command.js";
import { counted } from "../terminal.js";

async function run({ args, terminal, open, stopping }: Call): Promise<undefined> {
  const isOff = args.text("max-lag") === "off";
  const maxLag = isOff ? undefined : args.requiredInteger("max-lag", { min: 1 });
  const ns = await open();
  await ns.setMaxLag(maxLag, { signal: stopping.signal });
  terminal.result(
    { uri: ns.uri, maxLag: maxLag ?? null },
    maxLag === undefined
      ? "Producers may be as far ahead as they like."
      : `Producers stop ${counted(maxLag, "step")} ahead of the slowest group's newest checkpoint.`,
  );
  return undefined;
}

export const command: Command = {
  usage: "URI --max-lag N|off",
  about:
    "Sets how many steps producers may be ahead of the newest checkpoint of the slowest group; they wait beyond. Make it longer than the\ninterval between two checkpoints. It is off in a new namespace.",
  positionals: ["URI"],
  options: { "max-lag": { value: "N", help: "Steps, or off." } },
  examples: ["batchweave limit file:///data/run --max-lag 2000"],
  run,
};
