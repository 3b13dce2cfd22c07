/** A line over time, drawn by uPlot. */
import type { JSX } from "preact";
import { useEffect, useRef } from "preact/hooks";
import UPlot from "uplot";

export interface Point {
  readonly atMs: number;
  readonly value: number | undefined;
}

function color(name: string): string {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}

function show24(seconds: number): string {
  return new Date(1_000 * seconds).toLocaleTimeString("en-GB");
}

export function Chart(props: {
  readonly label: string;
  readonly points: readonly Point[];
  readonly show: (value: number) => string;
  readonly theme: string;
}): JSX.Element {
  const box = useRef<HTMLDivElement>(null);
  const plot = useRef<UPlot | undefined>(undefined);
  const { points, show, label, theme } = props;
  const data: UPlot.AlignedData = [points.map(({ atMs }) => atMs / 1_000), points.map(({ value }) => value ?? null)];
  const hasLine = points.filter(({ value }) => value !== undefined).length >= 2;
  // Made again for other colours only; new points are given to the same plot below.
  useEffect(() => {
    const element = box.current;
    if (!element || !hasLine) return;
    const axis = { stroke: color("--dim"), grid: { stroke: color("--line"), width: 1 }, ticks: { show: false } };
    const made = new UPlot(
      {
        width: element.clientWidth,
        height: 150,
        legend: { show: false },
        cursor: { y: false },
        scales: { y: { range: (_, __, max) => [0, max > 0 ? max * 1.15 : 1] } },
        axes: [
          { ...axis, space: 72, values: (_, splits) => splits.map((at) => show24(at)) },
          { ...axis, size: 64, values: (_, splits) => splits.map((value) => show(value)) },
        ],
        series: [
          {},
          {
            label,
            stroke: color("--accent"),
            fill: color("--accent-soft"),
            width: 2,
            spanGaps: true,
            points: { show: false },
          },
        ],
      },
      data,
      element,
    );
    plot.current = made;
    const watch = new ResizeObserver(() => made.setSize({ width: element.clientWidth, height: 150 }));
    watch.observe(element);
    return () => {
      watch.disconnect();
      made.destroy();
      plot.current = undefined;
    };
  }, [theme, hasLine]);
  useEffect(() => {
    plot.current?.setData(data);
  });
  const last = points.findLast(({ value }) => value !== undefined)?.value;
  return (
    <figure class="chart">
      <figcaption>
        {label} <b>{last === undefined ? "" : show(last)}</b>
      </figcaption>
      {hasLine ? <div ref={box} role="img" aria-label={label} /> : <p class="note">Not enough to draw yet.</p>}
    </figure>
  );
}
