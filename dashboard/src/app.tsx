/** The page: which namespace, which view, light or dark, and what the keys do. */
import type { JSX } from "preact";
import { useEffect, useRef, useState } from "preact/hooks";
import type { LogView, OverviewView } from "../../src/dashboard/views.js";
import { type ApiError, type Asked, giveToken, useView } from "./api.js";
import { FamilyPage } from "./family-view.js";
import { FleetPage } from "./fleet-view.js";
import * as show from "./format.js";
import { LogPage } from "./log-view.js";
import { OverviewPage } from "./overview-view.js";
import { linkTo, type Route, useRoute, type ViewName, viewNames } from "./route.js";
import { SourcesPage } from "./sources-view.js";
import { StepPage } from "./step-view.js";
import { StoragePage } from "./storage-view.js";

const titles: Readonly<Record<ViewName, string>> = {
  overview: "All",
  log: "Log",
  fleet: "Fleet",
  sources: "Sources",
  storage: "Storage",
  family: "Family",
  step: "Step",
};

export function App(): JSX.Element {
  const route = useRoute();
  const [theme, setTheme] = useState(themeNow());
  const overview = useView<OverviewView>("overview", 10_000);
  const root = overview.data;
  const ns = route.ns ?? (root?.isNamespace ? root.root : undefined);
  const view: ViewName = ns === undefined ? "overview" : route.view === "overview" ? "log" : route.view;
  const log = useView<LogView>(ns === undefined ? undefined : `log?ns=${encodeURIComponent(ns)}`, 2_000);
  const help = useRef<HTMLDialogElement>(null);
  const toggle = (): void => {
    const next = theme === "dark" ? "light" : "dark";
    localStorage.setItem("batchweave-theme", next);
    document.documentElement.dataset["theme"] = next;
    setTheme(next);
  };
  useEffect(() => {
    const pressed = (event: KeyboardEvent): void => onKey(event, ns, root, toggle, () => help.current?.showModal());
    addEventListener("keydown", pressed);
    return () => removeEventListener("keydown", pressed);
  });
  useEffect(() => {
    document.title = ns === undefined ? "BatchWeave" : `${show.shortName(ns)} · BatchWeave`;
  }, [ns]);
  const failed = [log, overview].find(({ error }) => error !== undefined);
  if (failed?.error?.code === "TOKEN") return <TokenForm />;
  const isMany = root !== undefined && !root.isNamespace;
  return (
    <>
      <button type="button" class="skip" onClick={() => document.getElementById("main")?.focus()}>
        to the content
      </button>
      <header>
        <div class="brand">
          <a href={linkTo("overview", undefined)}>BatchWeave</a>
          <span class="place" title={ns ?? root?.root}>
            {ns ?? root?.root ?? ""}
          </span>
          {log.data && ns !== undefined && (
            <span class={log.data.closed ? "pill" : "pill live"}>{log.data.closed ? "ended" : "open"}</span>
          )}
        </div>
        <span class="buttons">
          <button
            type="button"
            onClick={toggle}
            aria-label={`switch to ${theme === "dark" ? "light" : "dark"}`}
            title="light or dark ( t )"
          >
            {theme === "dark" ? "☀" : "☾"}
          </button>
          <button type="button" onClick={() => help.current?.showModal()} aria-label="keys" title="keys ( ? )">
            ?
          </button>
        </span>
        <nav aria-label="views">
          {isMany && <Tab name="overview" view={view} href={linkTo("overview", undefined)} />}
          {ns !== undefined &&
            viewNames.map((name) => <Tab key={name} name={name} view={view} href={linkTo(name, route.ns)} />)}
        </nav>
      </header>
      {failed?.error && <Banner asked={failed} error={failed.error} />}
      <main id="main" tabIndex={-1}>
        <View view={view} ns={ns} route={route} log={log} overview={overview} theme={theme} />
      </main>
      <dialog ref={help} aria-label="keys">
        <h2>Keys</h2>
        <dl>
          {[
            ["1 … 6", viewNames.map((name) => titles[name]).join(", ")],
            ["0", "all namespaces"],
            ["← →", "earlier step, later step"],
            ["/", "find"],
            ["t", "light or dark"],
          ].map(([key, what]) => (
            <>
              <dt>{key}</dt>
              <dd>{what}</dd>
            </>
          ))}
        </dl>
        <form method="dialog">
          <button type="submit">close</button>
        </form>
      </dialog>
    </>
  );
}

function View(props: {
  readonly view: ViewName;
  readonly ns: string | undefined;
  readonly route: Route;
  readonly log: Asked<LogView>;
  readonly overview: Asked<OverviewView>;
  readonly theme: string;
}): JSX.Element {
  const { view, ns, route, log, overview, theme } = props;
  const nowMs = log.data?.nowMs ?? Date.now();
  if (ns === undefined || view === "overview") return <OverviewPage asked={overview} nowMs={Date.now()} />;
  switch (view) {
    case "log":
      return <LogPage key={ns} ns={ns} asked={log} theme={theme} />;
    case "fleet":
      return <FleetPage key={ns} ns={ns} nowMs={nowMs} />;
    case "sources":
      return <SourcesPage key={ns} ns={ns} />;
    case "storage":
      return <StoragePage key={ns} ns={ns} />;
    case "family":
      return <FamilyPage key={ns} ns={ns} />;
    case "step":
      return <StepPage key={ns} ns={ns} step={route.step} log={log.data} />;
  }
}

function Tab(props: { readonly name: ViewName; readonly view: ViewName; readonly href: string }): JSX.Element {
  return (
    <a href={props.href} aria-current={props.name === props.view ? "page" : undefined}>
      {titles[props.name]}
    </a>
  );
}

/** What was seen stays; this says that it is old. */
function Banner(props: { readonly asked: Asked<unknown>; readonly error: ApiError }): JSX.Element {
  const { asked, error } = props;
  const since = asked.failedSinceMs === undefined ? "" : ` What is shown is of ${show.clock(asked.failedSinceMs)}.`;
  return (
    <p class="failure banner" role="alert">
      <b>{error.code}</b> {error.message}
      {asked.data === undefined ? "" : since}
    </p>
  );
}

function TokenForm(): JSX.Element {
  return (
    <main class="token">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          giveToken(String(new FormData(event.currentTarget).get("token")));
          location.reload();
        }}
      >
        <h1>BatchWeave</h1>
        <p>
          This page needs the token of the command that serves it. Open the address that it printed, or paste it here.
        </p>
        <label>
          token <input name="token" type="password" autocomplete="off" />
        </label>
        <button type="submit">open</button>
      </form>
    </main>
  );
}

function themeNow(): string {
  const chosen = document.documentElement.dataset["theme"];
  return chosen ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light");
}

function onKey(
  event: KeyboardEvent,
  ns: string | undefined,
  root: OverviewView | undefined,
  toggle: () => void,
  help: () => void,
): void {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isTyping = event.target instanceof HTMLInputElement;
  if (isTyping) {
    if (event.key === "Escape") (event.target as HTMLInputElement).blur();
    return;
  }
  const name = viewNames[Number(event.key) - 1];
  if (/^[1-6]$/.test(event.key) && name && ns !== undefined)
    location.hash = linkTo(name, root?.isNamespace ? undefined : ns);
  else if (event.key === "0") location.hash = linkTo("overview", undefined);
  else if (event.key === "t") toggle();
  else if (event.key === "?") help();
  else if (event.key === "/") {
    const search = document.getElementById("search");
    if (!search) return;
    event.preventDefault();
    search.focus();
  } else if (event.key === "ArrowLeft") document.getElementById("earlier")?.click();
  else if (event.key === "ArrowRight") document.getElementById("later")?.click();
}
