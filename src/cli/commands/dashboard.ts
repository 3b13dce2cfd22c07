/** `batchweave dashboard`: a page in the browser. */
import { type Dashboard, serveDashboard } from "../../dashboard/index.js";
import { listNamespaces, openNamespace } from "../../index.js";
import type { Call, Command } from "../command.js";
import { diagnose } from "../diagnosis.js";
import { durabilityOf } from "../run.js";
import { openNamedTokenizer, tokenizerOption } from "../tokenizer-option.js";

async function run({ args, terminal, stopping, env, metrics }: Call): Promise<undefined> {
  const { signal } = stopping;
  const storeSettings = { durability: durabilityOf(args) };
  const name = args.text("tokenizer");
  const tokenizer = name === undefined ? undefined : await openNamedTokenizer(name);
  const dashboard: Dashboard = await serveDashboard(
    {
      uri: args.uri.replace(/(?<=[^/:])\/+$/, ""),
      host: args.text("host"),
      port: args.integer("port", { max: 65_535 }),
      token: args.text("token"),
      tokenizer: tokenizer && { name: name as string, decode: (tokens) => tokenizer.decode(tokens) },
      dollarsPerGbMonth: args.number("price"),
    },
    {
      env,
      open: (uri, call) => openNamespace(uri, { metrics, storeSettings, signal: call }),
      list: (uri, call) => listNamespaces(uri, { storeSettings, signal: call }),
      // The page says itself when the store does not answer.
      diagnose: (now, before) => diagnose(now, before, 0),
    },
  );
  try {
    terminal.result({ url: dashboard.url }, () => dashboard.url);
    terminal.note("Open this address in a browser; with it, any user can read the log. Ctrl-C ends.");
    await env.sleep(2 ** 31 - 1, signal).catch(() => {});
  } finally {
    await dashboard.close();
  }
  return undefined;
}

export const command: Command = {
  usage: "URI [--port PORT] [--host ADDRESS] [--token TOKEN] [--tokenizer NAME]",
  about:
    "Serves a page that shows a namespace, or all namespaces below a URI, live: the log, freshness and lag, producers and ranks, sources,\nbalance, storage, forks, and single steps down to their samples. It only reads. Only this machine can reach it unless --host says\notherwise, and only with the token in the address that it prints.",
  positionals: ["URI"],
  options: {
    port: { value: "PORT", help: "Where to listen (default 0: any free port)." },
    host: {
      value: "ADDRESS",
      help: "Default 127.0.0.1. With another one, put TLS before it: the token is sent with every request.",
    },
    token: { value: "TOKEN", help: "At least 16 characters (default: a new random one)." },
    tokenizer: tokenizerOption,
    price: { value: "DOLLARS", help: "What a GB costs for a month (default 0.023)." },
  },
  examples: [
    "batchweave dashboard file:///data/run",
    "batchweave dashboard s3://bucket/runs --port 8080 --tokenizer o200k_base",
  ],
  isLong: true,
  run,
};
