/** Producers and lanes, and all processes that left a hint of life: loaders, constructors, ranks. */
import type { JSX } from "preact";
import { useState } from "preact/hooks";
import type { FleetView } from "../../src/dashboard/views.js";
import { useView } from "./api.js";
import * as show from "./format.js";
import { Card, Fact, Pending, Table } from "./parts.js";

export function FleetPage(props: { readonly ns: string; readonly nowMs: number }): JSX.Element {
  const [query, setQuery] = useState("");
  const [page, setPage] = useState(0);
  const asked = useView<FleetView>(
    `fleet?ns=${encodeURIComponent(props.ns)}&q=${encodeURIComponent(query)}&page=${page}`,
    3_000,
  );
  const fleet = asked.data;
  if (!fleet) return <Pending asked={asked} />;
  const pages = Math.max(1, Math.ceil(fleet.matching / fleet.pageSize));
  return (
    <>
      <div class="facts">
        <Fact
          label="producers"
          value={show.count(fleet.total)}
          hint="That have written lately; those long silent are in sealed tables"
        />
        {fleet.roles.map(({ role, count, late }) => (
          <Fact
            key={role}
            label={`${role} processes`}
            hint="That leave pulses beside the log; of how many, where some are late or dead"
            value={late === 0 ? show.count(count) : `${show.count(count - late)} of ${show.count(count)}`}
            tone={late > 0 ? "bad" : undefined}
          />
        ))}
      </div>
      <Card title="Producers and lanes" wide>
        <div class="row">
          <input
            id="search"
            type="search"
            placeholder="find by name ( / )"
            aria-label="find producers and processes by name"
            value={query}
            onInput={(event) => {
              setQuery(event.currentTarget.value);
              setPage(0);
            }}
          />
          <span class="buttons">
            <button
              type="button"
              onClick={() => setPage(fleet.page - 1)}
              disabled={fleet.page === 0}
              aria-label="page before"
            >
              ←
            </button>
            <span class="note">
              page {show.count(fleet.page + 1)} of {show.count(pages)}
            </span>
            <button
              type="button"
              onClick={() => setPage(fleet.page + 1)}
              disabled={fleet.page + 1 >= pages}
              aria-label="next page"
            >
              →
            </button>
          </span>
        </div>
        <Table
          head={["producer", "batches", "epoch", "version", "last commit", ""]}
          numbers={[1, 2, 3]}
          rows={fleet.producers.map((p) => [
            p.id,
            show.count(p.seq),
            show.count(p.epoch),
            show.count(p.version),
            p.lastCommitMs === undefined ? "reclaimed" : show.ago(p.lastCommitMs, props.nowMs),
            p.isMissing ? (
              <b class="bad">all wait for it</b>
            ) : p.carriedBy === undefined ? (
              ""
            ) : (
              `carried by ${p.carriedBy}`
            ),
          ])}
          empty={query === "" ? "No producer has written yet." : "No producer has such a name."}
        />
      </Card>
      <Card title="Processes" note="as their last pulses tell; a pulse is a hint and may be old" wide>
        <Table
          head={["role", "name", "last pulse", "host", "running", "says"]}
          rows={fleet.pulses.map((pulse) => [
            pulse.role,
            pulse.name,
            <span class={pulse.isLate || pulse.isDead ? "bad" : ""}>
              {show.ago(pulse.atMs, props.nowMs)}
              {pulse.isDead ? ", died" : pulse.isLate ? ", late" : ""}
            </span>,
            pulse.host ?? "",
            pulse.startedMs === undefined ? "" : show.duration(props.nowMs - pulse.startedMs),
            <Facts pulse={pulse} />,
          ])}
          empty="No process has left a pulse."
        />
        {fleet.pulsesMore > 0 && <p class="note">{`and ${show.count(fleet.pulsesMore)} more: find them by name`}</p>}
      </Card>
    </>
  );
}

function Facts(props: { readonly pulse: FleetView["pulses"][number] }): JSX.Element {
  const told = Object.entries(props.pulse.facts).slice(0, 12);
  return (
    <span class="told">
      {told.map(([name, value]) => (
        <span key={name}>
          <i>{factName(name)}</i> {factText(name, value)}
        </span>
      ))}
    </span>
  );
}

/** `waitedMs` is `waited`. */
function factName(name: string): string {
  return name.replace(/Ms$/, "").replace(/[A-Z]/g, (letter) => ` ${letter.toLowerCase()}`);
}

/** What others wrote: taken for what it may be. */
function factText(name: string, value: unknown): string {
  if (name === "sources" && Array.isArray(value)) return value.slice(0, 4).map(sourceText).join("; ");
  if (typeof value === "number" && /Ms$/.test(name)) return show.duration(value);
  if (typeof value === "number" && /bytes$/i.test(name)) return show.bytes(value);
  if (typeof value === "number") return Number.isInteger(value) ? show.count(value) : value.toFixed(2);
  return (typeof value === "string" ? value : (JSON.stringify(value) ?? "")).slice(0, 160);
}

function sourceText(value: unknown): string {
  const { source, samples, waitMs, faults } = (value ?? {}) as Readonly<Record<string, unknown>>;
  const number = (one: unknown): number => (typeof one === "number" && Number.isFinite(one) ? one : 0);
  const left = number(faults) > 0 ? `, ${show.count(number(faults))} left out` : "";
  return `${String(source).slice(0, 64)} ${show.count(number(samples))} samples, waited for ${show.duration(number(waitMs))}${left}`;
}
