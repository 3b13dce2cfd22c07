/** All namespaces at or below the place. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { OverviewRow, OverviewView } from "../../src/dashboard/views.js";
import type { Asked } from "./api.js";
import * as show from "./format.js";
import { Card, Pending, Table } from "./parts.js";
import { linkTo } from "./route.js";

export function OverviewPage(props: { readonly asked: Asked<OverviewView>; readonly nowMs: number }): JSX.Element {
  const [query, setQuery] = useState("");
  const view = props.asked.data;
  if (!view) return <Pending asked={props.asked} />;
  const rows = view.namespaces.filter(({ name }) => name.toLowerCase().includes(query.toLowerCase()));
  return (
    <Card title="Namespaces" note={`at or below ${view.root}`} wide>
      {view.namespaces.length > 8 && (
        <input
          id="search"
          type="search"
          placeholder="find by name ( / )"
          aria-label="find namespaces by name"
          value={query}
          onInput={(event) => setQuery(event.currentTarget.value)}
        />
      )}
      <Table
        head={["namespace", "state", "steps kept", "next step", "last commit", "producers", "checkpoints", "fork of"]}
        numbers={[2, 3, 5, 6]}
        rows={rows.map((row) => cellsOf(row, props.nowMs))}
        empty="There is no namespace here."
      />
      {view.more > 0 && <p class="note">{`and ${show.count(view.more)} more: name a place further down`}</p>}
    </Card>
  );
}

function cellsOf(row: OverviewRow, nowMs: number): (JSX.Element | string)[] {
  const name = <a href={linkTo("log", row.uri)}>{row.name}</a>;
  if (row.problem !== undefined || !row.steps)
    return [row.name, <b class="bad">{row.problem ?? "unreadable"}</b>, "", "", "", "", "", ""];
  return [
    name,
    row.closed ? "ended" : "open",
    show.count(row.steps.end - row.steps.trim),
    show.count(row.steps.end),
    row.lastCommitMs === undefined ? "none yet" : show.ago(row.lastCommitMs, nowMs),
    show.count(row.producers ?? 0),
    show.count(row.checkpoints ?? 0),
    row.forkOf === undefined ? "" : show.shortName(row.forkOf),
  ];
}
