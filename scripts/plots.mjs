// `npm run plots`: every figure of docs/results, from the JSON that the benchmarks printed (docs/results/data). The SVGs follow the
// reader's light or dark scheme. `npm run plots -- --check` fails when a figure is not what its data gives.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import * as Plot from "@observablehq/plot";
import { parseHTML } from "linkedom";

const folder = join(fileURLToPath(new URL("..", import.meta.url)), "docs/results");
const { document } = parseHTML("<html><body></body></html>");

/** Readable on white and on black. */
const colors = ["#2f81f7", "#d4602c", "#3f9a4a", "#a371f7", "#c2497d", "#8c6d1f", "#5f7d95", "#6e7781"];
const scheme =
  "svg{color:#1f2328;background:transparent}@media (prefers-color-scheme:dark){svg{color:#e6edf3}}text{fill:currentColor}";

/** @param {string} name */
const rowsOf = (name) => JSON.parse(readFileSync(join(folder, "data", `${name}.json`), "utf8")).rows;

/** One row for each of the columns, with its label. */
const long = (rows, ...columns) =>
  rows.flatMap((row) => columns.map(([column, label]) => ({ ...row, what: label, value: row[column] })));

/** Name of a figure, its title for people who cannot see it, and its plot. */
const figures = {
  freshness: {
    title:
      "Seconds from uploaded to visible by number of producers: DAC waits in proportion, cooperative commit does not",
    options: () => ({
      width: 720,
      height: 360,
      x: { type: "log", base: 2, label: "producers", ticks: [8, 32, 128, 512, 2048, 4096], tickFormat: "d" },
      y: { type: "log", label: "seconds from uploaded to visible", grid: true, tickFormat: "~s" },
      color: { legend: false, range: colors, domain: ["cooperative", "dac"] },
      marks: [
        ...["p50S", "p99S"].flatMap((y) => [
          Plot.line(rowsOf("freshness"), {
            x: "producers",
            y,
            stroke: "policy",
            strokeDasharray: y === "p99S" ? "4 4" : "0",
          }),
          Plot.dot(rowsOf("freshness"), { x: "producers", y, fill: "policy", r: 3 }),
        ]),
        ...["p50S", "p99S"].map((y) =>
          Plot.text(
            rowsOf("freshness").filter(({ producers }) => producers === 4096),
            {
              x: "producers",
              y,
              text: (row) => `${row.policy} ${y.slice(0, 3)}`,
              textAnchor: "end",
              dy: y === "p99S" ? -9 : 12,
              dx: 4,
            },
          ),
        ),
      ],
    }),
  },
  success: {
    title: "Commit attempts that succeed in each of five hours, with a bounded and with a growing manifest",
    options: () => ({
      width: 720,
      height: 320,
      x: { label: "hour", ticks: [1, 2, 3, 4, 5], tickFormat: "d" },
      y: { label: "commit attempts that succeed", grid: true, percent: true, domain: [0, 104] },
      fx: { label: null, domain: ["bounded", "never sealed"] },
      color: { legend: false, range: colors },
      marginRight: 80,
      marks: [
        Plot.line(rowsOf("success"), { fx: "manifest", x: "hour", y: "success", stroke: "policy" }),
        Plot.text(
          rowsOf("success").filter(
            (row) =>
              row.hour === 5 &&
              row.manifest === "never sealed" &&
              ["cooperative", "fixed-100", "incr", "aimd-inverse"].includes(row.policy),
          ),
          {
            fx: "manifest",
            x: "hour",
            y: "success",
            text: "policy",
            textAnchor: "start",
            dx: 6,
          },
        ),
      ],
    }),
  },
  attempts: {
    title: "How long a commit attempt takes in each of five hours: flat with a bounded manifest, growing without",
    options: () => ({
      width: 720,
      height: 320,
      x: { label: "hour", ticks: [1, 2, 3, 4, 5], tickFormat: "d" },
      y: { label: "milliseconds of a commit attempt", grid: true, zero: true },
      fx: { label: null, domain: ["bounded", "never sealed"] },
      color: { range: colors },
      marginRight: 80,
      marks: [
        Plot.line(
          rowsOf("success").filter(({ policy }) => ["cooperative", "dac", "naive"].includes(policy)),
          {
            fx: "manifest",
            x: "hour",
            y: "attemptMs",
            stroke: "policy",
          },
        ),
        Plot.text(
          rowsOf("success").filter(
            (row) =>
              row.hour === 5 && row.manifest === "never sealed" && ["cooperative", "dac", "naive"].includes(row.policy),
          ),
          { fx: "manifest", x: "hour", y: "attemptMs", text: "policy", textAnchor: "start", dx: 6 },
        ),
      ],
    }),
  },
  requests: {
    title: "Requests and bytes that a batch costs, its own PUT included, by number of producers on one folder",
    options: () => ({
      width: 720,
      height: 300,
      x: { type: "log", base: 2, label: "producers", ticks: [1, 2, 4, 8, 32], tickFormat: "d" },
      y: { label: "per batch", grid: true, domain: [0.9, 1.8] },
      fx: { label: null },
      color: { range: colors },
      marginRight: 130,
      marks: [
        Plot.line(long(rowsOf("requests"), ["requestsPerBatch", "requests"], ["bytesPerByte", "bytes per byte"]), {
          fx: (row) => `${row.payloadBytes / 1e6} MB`,
          x: "producers",
          y: "value",
          stroke: "what",
          marker: true,
        }),
        Plot.text(
          long(rowsOf("requests"), ["requestsPerBatch", "requests"], ["bytesPerByte", "bytes per byte"]).filter(
            (row) => row.producers === 32 && row.payloadBytes === 1e7,
          ),
          {
            fx: (row) => `${row.payloadBytes / 1e6} MB`,
            x: "producers",
            y: "value",
            text: "what",
            textAnchor: "start",
            dx: 8,
          },
        ),
      ],
    }),
  },
  "store-cpu": {
    title: "CPU seconds a GB of the bare HTTP client, of BatchWeave's store and of the AWS SDK, by object size",
    options: () => {
      const measured = rowsOf("store-cpu").filter((row) => row.concurrency === 8);
      const size = (bytes) => (bytes >= 1e6 ? `${bytes / 1e6} MB` : `${bytes / 1e3} KB`);
      const cell = { fx: (row) => `${row.op} ${size(row.bytes)}`, x: "what", y: "value" };
      const rows = long(measured, ["bare", "bare"], ["ours", "ours"], ["sdk", "SDK"]);
      return {
        width: 720,
        height: 320,
        x: { axis: null, domain: ["bare", "ours", "SDK"] },
        y: { type: "log", label: "CPU seconds a GB", grid: true, tickFormat: "~g" },
        fx: { label: null, domain: measured.map((row) => `${row.op} ${size(row.bytes)}`) },
        color: { range: colors, domain: ["bare", "ours", "SDK"] },
        marks: [Plot.dot(rows, { ...cell, fill: "what", r: 6 }), Plot.text(rows, { ...cell, text: "what", dy: -12 })],
      };
    },
  },
  "gpu-wait": {
    title: "Share of a training step that the GPU waits for data",
    options: () => ({
      width: 720,
      height: 240,
      marginLeft: 270,
      marginRight: 60,
      x: { label: "share of a step", percent: true, grid: true },
      y: { label: null },
      marks: [
        Plot.barX(rowsOf("gpu-wait"), { y: "source", x: "waitShare", fill: colors[0], sort: { y: "x" } }),
        Plot.text(rowsOf("gpu-wait"), {
          y: "source",
          x: "waitShare",
          text: (row) => `${(row.waitShare * 100).toFixed(1)} %`,
          textAnchor: "start",
          dx: 4,
        }),
      ],
    }),
  },
  scaling: {
    title:
      "Share of each minute that constructors wait when the mixture of 306 sources changes from 1:9 to 9:1, by how loaders are scaled",
    options: () => ({
      width: 720,
      height: 320,
      marginRight: 100,
      x: { label: "minutes from the change" },
      y: { label: "share of the minute that constructors wait", grid: true, percent: true },
      color: { legend: false, range: colors, domain: ["fixed", "static", "reactive", "predictive"] },
      marks: [
        Plot.line(rowsOf("scaling"), { x: "minute", y: "waitShare", stroke: "mode" }),
        ...["fixed", "static", "reactive", "predictive"].map((mode, i) =>
          Plot.text(
            rowsOf("scaling").filter((row) => row.mode === mode),
            Plot.selectLast({
              x: "minute",
              y: "waitShare",
              text: "mode",
              fill: "mode",
              textAnchor: "start",
              dx: 6,
              dy: [0, 12, -12, 0][i],
            }),
          ),
        ),
      ],
    }),
  },
  "plan-time": {
    title: "Milliseconds to plan a batch by number of samples",
    options: () => {
      const rows = rowsOf("plan-time").filter(({ method }) => !method.includes("groups"));
      const label = (method, dy) =>
        Plot.text(
          rows.filter((row) => row.method === method),
          Plot.selectLast({ x: "samples", y: "ms", text: "method", textAnchor: "start", dx: 8, dy }),
        );
      return {
        width: 720,
        height: 320,
        marginRight: 120,
        x: { type: "log", label: "samples", tickFormat: "~s" },
        y: { type: "log", label: "milliseconds", grid: true },
        color: { range: colors },
        marks: [
          Plot.line(rows, { x: "samples", y: "ms", stroke: "method", marker: true }),
          label("greedy", 8),
          label("Karmarkar-Karp", -6),
        ],
      };
    },
  },
  storage: {
    title: "Stored bytes over a run of 1,010 steps with a checkpoint every 10, with and without reclaim",
    options: () => ({
      width: 720,
      height: 300,
      x: { label: "seconds" },
      y: { label: "MB stored", grid: true },
      color: { range: colors, domain: ["with reclaim", "without reclaim"] },
      marginRight: 110,
      marks: [
        Plot.line(rowsOf("storage"), { x: (row) => row.atMs / 1e3, y: (row) => row.bytes / 1e6, stroke: "run" }),
        Plot.text(
          rowsOf("storage"),
          Plot.selectLast({
            x: (row) => row.atMs / 1e3,
            y: (row) => row.bytes / 1e6,
            z: "run",
            text: "run",
            textAnchor: "start",
            dx: 6,
          }),
        ),
      ],
    }),
  },
};

const isCheck = process.argv.includes("--check");
let stale = 0;
for (const [name, { title, options }] of Object.entries(figures)) {
  const svg = Plot.plot({ document, ...options(), style: undefined, className: "plot" });
  svg.setAttribute("xmlns", "http://www.w3.org/2000/svg");
  const text = `${svg.outerHTML.replace(/<style>[\s\S]*?<\/style>/, `<title>${title}</title><style>${scheme}</style>`)}\n`;
  const file = join(folder, `${name}.svg`);
  if (!isCheck) writeFileSync(file, text);
  else if (readFileSync(file, "utf8") !== text) {
    stale++;
    console.error(`docs/results/${name}.svg is not what its data gives: npm run plots`);
  }
}
console.log(
  isCheck ? `${stale} of ${Object.keys(figures).length} figures are stale` : `${Object.keys(figures).length} figures`,
);
process.exitCode = stale > 0 ? 1 : 0;
