/** Sources: the mixture against its schedule, who is waited for, and how even the work of the ranks is. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { CostsView, HealthView, SourcesView } from "../../src/dashboard/views.js";
import { useView } from "./api.js";
import * as show from "./format.js";
import { Card, Health, Pending, Table } from "./parts.js";

export function SourcesPage(props: { readonly ns: string }): JSX.Element {
  const asked = useView<SourcesView>(`sources?ns=${encodeURIComponent(props.ns)}`, 5_000);
  const health = useView<HealthView>(`health?ns=${encodeURIComponent(props.ns)}`, 5_000).data;
  const [chosen, setChosen] = useState<number | undefined>(undefined);
  const view = asked.data;
  if (!view) return <Pending asked={asked} />;
  const one = view.balance.find(({ step }) => step === chosen) ?? view.balance.at(-1);
  const steps = `steps ${show.count(view.from)} to ${show.count(Math.max(view.from, view.to - 1))}`;
  return (
    <>
      <Health health={health} />
      <Card
        title="Mixture"
        note={`${steps}, by ${view.unit}${view.phase === undefined ? "" : `, phase ${view.phase}`}`}
        wide
      >
        <Table
          head={["source", "share", "schedule", "", "samples", "tokens", "faults"]}
          numbers={[1, 2, 4, 5, 6]}
          rows={view.sources.map((source) => [
            source.source,
            show.percent(source.share),
            source.wanted === undefined ? "–" : show.percent(source.wanted),
            <div
              class="meter"
              role="img"
              aria-label={`${show.percent(source.share)}${source.wanted === undefined ? "" : ` of ${show.percent(source.wanted)} scheduled`}`}
            >
              <div class="got" style={{ width: `${100 * source.share}%`, "--hue": String(show.hue(source.source)) }} />
              {source.wanted !== undefined && <div class="wanted" style={{ left: `${100 * source.wanted}%` }} />}
            </div>,
            show.count(source.samples),
            show.count(source.tokens),
            source.faults === 0 ? "0" : <b class="bad">{show.count(source.faults)}</b>,
          ])}
          empty="The producers of these steps recorded no samples. Pass `lineage` to append, or write with a pipeline."
        />
      </Card>
      {(health?.sources.length ?? 0) > 0 && (
        <Card title="Loading" note="as loaders and producers tell in their pulses, the one most waited for first" wide>
          <Table
            head={["source", "samples", "waited for", "reading one", "transforming one", "faults"]}
            numbers={[1, 2, 3, 4, 5]}
            rows={(health?.sources ?? []).map((source) => [
              source.source,
              show.rate(source.perSecond),
              <span class={source.waitShare >= 0.1 ? "bad" : ""}>{show.percent(source.waitShare)}</span>,
              show.each(source.readMs, source.samples),
              show.each(source.transformMs, source.samples),
              show.count(source.faults),
            ])}
            empty=""
          />
        </Card>
      )}
      <Card title="Balance" note="heaviest rank over the mean, as samples arrived and as planned; 1 is perfect">
        <Table
          head={["step", "before", "after", ""]}
          numbers={[0, 1, 2]}
          rows={view.balance.map(({ step, before, after, costs }) => [
            show.count(step),
            before.toFixed(3),
            after.toFixed(3),
            costs && (
              <button type="button" aria-pressed={step === one?.step} onClick={() => setChosen(step)}>
                ranks
              </button>
            ),
          ])}
          empty="These steps tell nothing of balance: they were not written by a pipeline."
        />
      </Card>
      {one?.costs && (
        <Card title={`Cost by rank, step ${show.count(one.step)}`} note="over the mean of the batch">
          <Costs costs={one.costs} />
        </Card>
      )}
    </>
  );
}

/** Two bars for each rank: as samples arrived, and as planned. */
export function Costs(props: { readonly costs: CostsView }): JSX.Element {
  const { before, after } = props.costs;
  const top = 1.05 * Math.max(1, ...before, ...after);
  const height = 140;
  const y = (value: number): number => height - (height * value) / top;
  const slot = Math.max(6, Math.min(48, 640 / Math.max(1, before.length)));
  const wide = slot * before.length;
  return (
    <div class="costs scroll" tabIndex={0} role="region" aria-label="cost by rank">
      <svg viewBox={`0 0 ${wide} ${height + 16}`} width={wide} height={height + 16} role="img">
        <title>{`Cost by rank before and after balancing, ${before.length} ranks`}</title>
        {before.map((value, i) => (
          <g key={i}>
            <rect class="before" x={i * slot + slot * 0.1} y={y(value)} width={slot * 0.38} height={height - y(value)}>
              <title>{`rank ${i}: ${value} before`}</title>
            </rect>
            <rect
              class="after"
              x={i * slot + slot * 0.52}
              y={y(after[i] ?? 0)}
              width={slot * 0.38}
              height={height - y(after[i] ?? 0)}
            >
              <title>{`rank ${i}: ${after[i]} after`}</title>
            </rect>
            {(slot > 16 || i % 8 === 0) && (
              <text x={(i + 0.5) * slot} y={height + 12}>
                {i}
              </text>
            )}
          </g>
        ))}
        <line x1="0" x2={wide} y1={y(1)} y2={y(1)} />
      </svg>
      <p class="legend">
        <span>
          <span class="key before" />
          as samples arrived
        </span>
        <span>
          <span class="key after" />
          as planned
        </span>
      </p>
    </div>
  );
}
