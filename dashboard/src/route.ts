/** Which namespace and view the address names: `#/log?ns=URI`, `#/step/12?ns=URI`. */
import { useEffect, useState } from "preact/hooks";

/** Views by the key that leads to them. */
export const viewNames = ["log", "fleet", "sources", "storage", "family", "step"] as const;
export type ViewName = (typeof viewNames)[number] | "overview";

export interface Route {
  readonly view: ViewName;
  readonly step: number | undefined;
  /** Undefined: the place itself. */
  readonly ns: string | undefined;
}

export function parseRoute(hash: string): Route {
  const [path = "", query = ""] = hash.replace(/^#\/?/, "").split("?");
  const [name = "", step] = path.split("/");
  const view = viewNames.find((one) => one === name) ?? "overview";
  return {
    view,
    step: step !== undefined && /^\d{1,15}$/.test(step) ? Number(step) : undefined,
    ns: new URLSearchParams(query).get("ns") ?? undefined,
  };
}

export function linkTo(view: ViewName, ns: string | undefined, step?: number | undefined): string {
  const query = ns === undefined ? "" : `?ns=${encodeURIComponent(ns)}`;
  return `#/${view === "overview" ? "" : view}${step === undefined ? "" : `/${step}`}${query}`;
}

export function useRoute(): Route {
  const [hash, setHash] = useState(location.hash);
  useEffect(() => {
    const changed = (): void => setHash(location.hash);
    addEventListener("hashchange", changed);
    // The address may have changed between the first drawing and now.
    changed();
    return () => removeEventListener("hashchange", changed);
  }, []);
  return parseRoute(hash);
}
