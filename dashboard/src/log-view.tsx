/** The log: its strip of steps, freshness, throughput, lag, checkpoints and forks. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { HealthView, HistoryView, LogView, StepsView } from "../../src/dashboard/views.js";
import { type Asked, useView } from "./api.js";
import { Chart, type Point } from "./chart.js";
import * as show from "./format.js";
import { Card, Fact, Health, Pending, Table } from "./parts.js";
import { linkTo } from "./route.js";

const pageSteps = 96;

export function LogPage(props: {
  readonly ns: string;
  readonly asked: Asked<LogView>;
  readonly theme: string;
}): JSX.Element {
  const { ns, asked, theme } = props;
  const query = `ns=${encodeURIComponent(ns)}`;
  const history = useView<HistoryView>(`history?${query}`, 60_000);
  // After the log itself: it asks for more.
  const health = useView<HealthView>(asked.data && `health?${query}`, 5_000);
  const log = asked.data;
  if (!log) return <Pending asked={asked} />;
  const speed = speedOf(log);
  const lagTone = log.maxLag !== undefined && log.lag && log.lag.steps >= 0.9 * log.maxLag ? "bad" : undefined;
  const fresh = log.looks.findLast(({ freshMs }) => freshMs !== undefined)?.freshMs;
  return (
    <>
      <Health health={health.data} />
      {log.warning !== undefined && <p class="warning">{log.warning}</p>}
      <div class="facts">
        <Fact label="next step" value={show.count(log.steps.end)} hint="The first step that is not in the log yet" />
        <Fact
          label="kept"
          value={`${show.count(log.steps.end - log.steps.trim)} steps`}
          hint={`from step ${log.steps.trim} on`}
        />
        <Fact label="throughput" value={log.closed ? "ended" : show.rate(speed)} hint="Steps, over the last looks" />
        <Fact
          label="last commit"
          value={log.version === 0 ? "none" : show.ago(log.lastCommit.timeMs, log.nowMs)}
          hint={`by ${log.lastCommit.by}`}
        />
        <Fact
          label="fresh in"
          value={fresh === undefined ? "–" : show.duration(fresh)}
          hint="From the making of the newest batch to its commit"
        />
        <Fact
          label="lag"
          value={
            log.lag
              ? `${show.count(log.lag.steps)}${log.maxLag === undefined ? "" : ` of ${show.count(log.maxLag)}`} steps`
              : "–"
          }
          hint={log.lag ? `Ahead of the newest checkpoint of group ${log.lag.group}` : "No checkpoint is live"}
          tone={lagTone}
        />
        <Fact label="producers" value={show.count(log.producers)} />
        <Fact label="version" value={show.count(log.version)} hint={`Versions up to ${log.boundary} may be gone`} />
      </div>
      <Card
        title="The log"
        note={`${log.grid.rows} rows x ${log.grid.chunks} chunks, order ${log.order}, ${log.closed ? "ended" : "open"}`}
        wide
      >
        <Strip log={log} from={0} ns={ns} />
        {log.steps.trim > 0 && log.steps.end > log.steps.trim && <Strip log={log} from={log.steps.trim} ns={ns} />}
        <p class="legend">
          <span>
            <span class="key trimmed" />
            trimmed
          </span>
          <span>
            <span class="key kept" />
            kept
          </span>
          <span>
            <span class="key mark" />
            checkpoint
          </span>
          <span>
            <span class="key pin" />
            held for a fork
          </span>
        </p>
        <Newest ns={ns} log={log} />
      </Card>
      <Card
        title="Throughput"
        note="steps a second, from versions of the log spread over its life and the looks of this server"
      >
        <Chart label="throughput" points={ratesOf(log, history.data)} show={show.rate} theme={theme} />
      </Card>
      <Card title="Freshness" note="from the making of a batch to its commit, as the newest batch of each look tells">
        <Chart
          label="fresh in"
          points={log.looks.map(({ atMs, freshMs }) => ({ atMs, value: freshMs }))}
          show={show.duration}
          theme={theme}
        />
      </Card>
      <Card title="Lag" note="steps between the newest checkpoint of the slowest group and the end">
        <Chart
          label="lag"
          points={log.looks.map(({ atMs, lag }) => ({ atMs, value: lag }))}
          show={show.count}
          theme={theme}
        />
      </Card>
      <Card
        title="Checkpoints"
        note={log.checkpointsMore > 0 ? `and ${show.count(log.checkpointsMore)} more` : undefined}
      >
        <Table
          head={["group", "checkpoint", "iteration", "step"]}
          numbers={[2, 3]}
          rows={log.checkpoints.map((c) => [
            c.group,
            c.id,
            show.count(c.iteration),
            <a href={linkTo("step", ns, c.step)}>{show.count(c.step)}</a>,
          ])}
          empty="No checkpoint is live: nothing tells the reclaimer what may go."
        />
      </Card>
    </>
  );
}

/** Steps a second over the last minute of looks. */
function speedOf({ looks }: LogView): number {
  const last = looks.at(-1);
  const first = looks.find(({ atMs }) => last !== undefined && atMs >= last.atMs - 60_000);
  if (!last || !first || last.atMs === first.atMs) return 0;
  return (1_000 * (last.end - first.end)) / (last.atMs - first.atMs);
}

/** Rates between known points of the log's life. Looks are thinned to one in five seconds. */
function ratesOf({ looks }: LogView, history: HistoryView | undefined): Point[] {
  const firstLook = looks[0]?.atMs ?? Number.POSITIVE_INFINITY;
  const known = (history?.commits ?? [])
    .map(({ timeMs, end }) => ({ atMs: timeMs, end }))
    .filter(({ atMs }) => atMs < firstLook);
  for (const { atMs, end } of looks) if (atMs - (known.at(-1)?.atMs ?? 0) >= 5_000) known.push({ atMs, end });
  return known.slice(1).flatMap(({ atMs, end }, i) => {
    const before = known[i] as { atMs: number; end: number };
    return atMs <= before.atMs ? [] : [{ atMs, value: (1_000 * Math.max(0, end - before.end)) / (atMs - before.atMs) }];
  });
}

/** The log from a step on, drawn to scale. */
function Strip(props: { readonly log: LogView; readonly from: number; readonly ns: string }): JSX.Element {
  const { log, from, ns } = props;
  const { trim, end } = log.steps;
  const span = Math.max(1, end - from);
  const at = (step: number): string => `${(100 * Math.min(Math.max(step - from, 0), span)) / span}%`;
  const width = (a: number, b: number): string =>
    `${(100 * Math.max(0, Math.min(b, end) - Math.max(a, from))) / span}%`;
  return (
    <div class="strip-box">
      <div class="strip" role="img" aria-label={`steps ${from} to ${end}: trimmed below ${trim}`}>
        {trim > from && (
          <div
            class="trimmed"
            style={{ left: "0%", width: width(from, trim) }}
            title={`trimmed: steps 0 to ${trim - 1}`}
          />
        )}
        <div
          class="kept"
          style={{ left: at(trim), width: width(trim, end) }}
          title={`kept: steps ${trim} to ${end - 1}`}
        />
        {log.forks.map(({ uri, from: first, to }) => (
          <div
            key={uri}
            class="pin"
            style={{ left: at(first), width: width(first, to) }}
            title={`${uri} holds steps ${first} to ${to - 1}`}
          />
        ))}
        {log.checkpoints.map(({ group, id, step }) => (
          <a
            key={`${group} ${id}`}
            class="mark"
            href={linkTo("step", ns, Math.min(step, Math.max(trim, end - 1)))}
            style={{ left: at(step) }}
            title={`${group} / ${id} at step ${step}`}
            aria-label={`checkpoint ${id} of ${group} at step ${step}`}
          />
        ))}
      </div>
      <div class="scale">
        <span>{show.count(from)}</span>
        <span>{show.count(from + span / 2)}</span>
        <span>{show.count(end)}</span>
      </div>
    </div>
  );
}

/** Single steps, the newest by default. */
function Newest(props: { readonly ns: string; readonly log: LogView }): JSX.Element {
  const { ns, log } = props;
  const { trim, end } = log.steps;
  const [from, setFrom] = useState<number | undefined>(undefined);
  const first = Math.max(trim, from ?? end - pageSteps);
  // The end is named so that the steps are asked for again when there are more.
  const query = `steps?ns=${encodeURIComponent(ns)}&from=${first}&end=${Math.min(end, first + pageSteps)}`;
  const asked = useView<StepsView>(end > trim ? query : undefined, 0);
  const batches = asked.data?.batches ?? [];
  const largest = Math.max(1, ...batches.map((batch) => batch.bytes));
  const go = (to: number): void => setFrom(to >= end - pageSteps ? undefined : Math.max(trim, to));
  if (end === trim) return <p class="note">{end === 0 ? "Nothing is published yet." : "Everything is trimmed."}</p>;
  return (
    <div class="newest">
      <div class="row">
        <h3>
          Steps {show.count(first)} to {show.count(Math.min(end, first + pageSteps) - 1)}
        </h3>
        <span class="buttons">
          <button type="button" onClick={() => go(trim)} disabled={first <= trim}>
            oldest
          </button>
          <button
            type="button"
            onClick={() => go(first - pageSteps)}
            disabled={first <= trim}
            aria-label="earlier steps"
          >
            ←
          </button>
          <button
            type="button"
            onClick={() => go(first + pageSteps)}
            disabled={from === undefined}
            aria-label="later steps"
          >
            →
          </button>
          <button type="button" onClick={() => setFrom(undefined)} disabled={from === undefined}>
            newest
          </button>
        </span>
      </div>
      <p class="note">
        one cell a step, in its producer's colour and filled by its size; open one to see what it holds
      </p>
      <div class="cells">
        {batches.map(({ step, producer, seq, bytes, origin }) => (
          <a
            key={step}
            class={origin === undefined ? "cell" : "cell inherited"}
            href={linkTo("step", ns, step)}
            style={{ "--hue": String(show.hue(producer)), "--fill": `${Math.round((100 * bytes) / largest)}%` }}
            title={`step ${step}: ${producer}, batch ${seq}, ${show.bytes(bytes)}${origin === undefined ? "" : `, of ${origin}`}`}
            aria-label={`step ${step} by ${producer}`}
          />
        ))}
      </div>
    </div>
  );
}
