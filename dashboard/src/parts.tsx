/** Small parts that all views use. */
import type { ComponentChildren, JSX } from "preact";
import type { HealthView } from "../../src/dashboard/views.js";
import type { Asked } from "./api.js";
import { duration } from "./format.js";

export function Card(props: {
  readonly title: string;
  readonly note?: string | undefined;
  readonly wide?: boolean;
  readonly children: ComponentChildren;
}): JSX.Element {
  return (
    <section class={props.wide ? "card wide" : "card"}>
      <h2>{props.title}</h2>
      {props.note !== undefined && <p class="note">{props.note}</p>}
      {props.children}
    </section>
  );
}

export function Fact(props: {
  readonly label: string;
  readonly value: string;
  readonly hint?: string | undefined;
  readonly tone?: "good" | "bad" | undefined;
}): JSX.Element {
  return (
    <div class={`fact ${props.tone ?? ""}`} title={props.hint}>
      <span class="label">{props.label}</span>
      <span class={props.value.length > 13 ? "value long" : "value"}>{props.value}</span>
    </div>
  );
}

/** Rows under a header; the first column names the row. */
export function Table(props: {
  readonly head: readonly string[];
  readonly numbers?: readonly number[];
  readonly rows: readonly (readonly ComponentChildren[])[];
  readonly empty: string;
}): JSX.Element {
  if (props.rows.length === 0) return <p class="note">{props.empty}</p>;
  const kind = (i: number): string => (props.numbers?.includes(i) ? "number" : "");
  return (
    <div class="scroll" tabIndex={0} role="region" aria-label="table">
      <table>
        <thead>
          <tr>
            {props.head.map((name, i) => (
              <th key={name} scope="col" class={kind(i)}>
                {name}
              </th>
            ))}
          </tr>
        </thead>
        <tbody>
          {props.rows.map((cells, r) => (
            <tr key={r}>
              {cells.map((cell, i) => (
                <td key={i} class={kind(i)}>
                  {cell}
                </td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** What holds the log up, in a sentence; the same that `batchweave top` says. */
export function Health(props: { readonly health: HealthView | undefined }): JSX.Element | null {
  const { health } = props;
  if (!health || health.sentence === "looking") return null;
  const isBad =
    health.warnings.length > 0 ||
    /wait|missing|nothing for|died|stood still/.test(health.sentence.replace("nothing waits", ""));
  return (
    <div class={isBad ? "warning" : "health"} role="status">
      {health.sentence}
      {health.etaMs === undefined ? "" : `; done in ${duration(health.etaMs)}`}
      {health.warnings.map((warning) => (
        <p key={warning}>{warning}</p>
      ))}
    </div>
  );
}

/** What is shown instead of a view that is not there yet, or whose first answer failed. */
export function Pending(props: { readonly asked: Asked<unknown> }): JSX.Element {
  const { error } = props.asked;
  if (!error) return <p class="note loading">Reading the log…</p>;
  return (
    <p class="failure" role="alert">
      {error.message}
    </p>
  );
}
