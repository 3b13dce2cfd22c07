/** Retention and storage: what is kept, what keeps it, and what it costs. */
import type { JSX } from "preact";
import type { StorageView } from "../../src/dashboard/views.js";
import { useView } from "./api.js";
import * as show from "./format.js";
import { Card, Fact, Pending, Table } from "./parts.js";
import { linkTo } from "./route.js";

export function StoragePage(props: { readonly ns: string }): JSX.Element {
  const { ns } = props;
  const asked = useView<StorageView>(`storage?ns=${encodeURIComponent(ns)}`, 10_000);
  const view = asked.data;
  if (!view) return <Pending asked={asked} />;
  const about = view.isExact ? "" : "about ";
  return (
    <>
      {view.warning !== undefined && <p class="warning">{view.warning}</p>}
      <div class="facts">
        <Fact
          label="batches take"
          value={`${about}${show.bytes(view.bytes)}`}
          hint={`${show.count(view.sampledSteps)} steps were looked at`}
        />
        <Fact label="a step takes" value={show.bytes(view.bytesPerStep)} hint="On average" />
        <Fact
          label="costs"
          value={`${show.dollars(view.dollarsPerMonth)} a month`}
          hint={`at $${view.dollarsPerGbMonth} for a GB and month, without requests`}
        />
        <Fact
          label="kept"
          value={`${show.count(view.steps.end - view.steps.trim)} steps`}
          hint={`from step ${view.steps.trim} on`}
        />
        <Fact label="manifests from" value={show.count(view.boundary + 1)} hint="Older versions may be gone" />
      </div>
      <Card
        title="What keeps the log"
        note="The oldest checkpoint decides what may go; `batchweave checkpoint URI release ID` gives it up, and the next reclaim deletes. Forks keep what they share."
        wide
      >
        <Table
          head={["kept for", "", "from step", "to step", "would go with it"]}
          numbers={[2, 3, 4]}
          rows={view.holds.map((hold) => [
            hold.kind === "none" ? "nothing: no checkpoint is live" : hold.kind,
            hold.kind === "fork" ? (
              <span title={hold.name}>{show.shortName(hold.name)}</span>
            ) : hold.kind === "none" ? (
              ""
            ) : (
              hold.name
            ),
            hold.from >= view.steps.trim && hold.from < view.steps.end ? (
              <a href={linkTo("step", ns, hold.from)}>{show.count(hold.from)}</a>
            ) : (
              show.count(hold.from)
            ),
            show.count(Math.max(hold.from, hold.to - 1)),
            hold.bytes === 0 ? "–" : `about ${show.bytes(hold.bytes)}`,
          ])}
          empty="Nothing is kept."
        />
      </Card>
    </>
  );
}
