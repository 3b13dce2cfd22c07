/** Asking the server: the token, one request, and a view that is asked for again and again. */
import { useEffect, useRef, useState } from "preact/hooks";
import type { FailureView } from "../../src/dashboard/views.js";

const tokenKey = "batchweave-token";

/** The token of the address, kept for this tab and taken out of the address bar. */
export function takeToken(): string {
  const given = /^#token=([\w.~-]+)$/.exec(location.hash)?.[1];
  if (given !== undefined) {
    sessionStorage.setItem(tokenKey, given);
    history.replaceState(null, "", "#/");
  }
  return sessionStorage.getItem(tokenKey) ?? "";
}

/** Keeps a token that the user typed. */
export function giveToken(token: string): void {
  sessionStorage.setItem(tokenKey, token.replace(/^.*#token=/, "").trim());
}

/** A failure that the server told, or that it did not answer. */
export class ApiError extends Error {
  readonly code: string;

  constructor(code: string, message: string) {
    super(message);
    this.code = code;
  }
}

/** One view. */
export async function ask<T>(path: string, signal: AbortSignal): Promise<T> {
  let response: Response;
  try {
    response = await fetch(`/api/${path}`, {
      headers: { authorization: `Bearer ${sessionStorage.getItem(tokenKey) ?? ""}` },
      signal,
    });
  } catch (error) {
    if (signal.aborted) throw error;
    throw new ApiError("SERVER_GONE", "The dashboard's server does not answer. Is the command still running?");
  }
  const body = (await response.json()) as T | FailureView;
  if (response.ok) return body as T;
  const { code, message } = (body as FailureView).error;
  throw new ApiError(code, message);
}

/** A view as it is known now. After a failure the last one stays, with the failure and since when. */
export interface Asked<T> {
  readonly data: T | undefined;
  readonly error: ApiError | undefined;
  readonly failedSinceMs: number | undefined;
}

/** Between two attempts at a view that failed. */
const failedMs = 2_000;

const nothing = { data: undefined, error: undefined, failedSinceMs: undefined };

/** Asks for a view, and again every `everyMs` while the tab is looked at. `undefined`: not now. */
export function useView<T>(path: string | undefined, everyMs = 0): Asked<T> {
  const [asked, setAsked] = useState<Asked<T>>(nothing);
  const shown = useRef<string | undefined>(undefined);
  useEffect(() => {
    // Another namespace's numbers must not stand under this one's name.
    if (shown.current?.split("?")[0] !== path?.split("?")[0] || nsOf(shown.current) !== nsOf(path)) setAsked(nothing);
    shown.current = path;
    if (path === undefined) return;
    const ended = new AbortController();
    const loop = async (): Promise<void> => {
      for (;;) {
        let againMs = everyMs;
        try {
          const data = await ask<T>(path, ended.signal);
          setAsked({ data, error: undefined, failedSinceMs: undefined });
        } catch (error) {
          if (ended.signal.aborted) return;
          const failed = error instanceof ApiError ? error : new ApiError("INTERNAL", String(error));
          setAsked((before) => ({ ...before, error: failed, failedSinceMs: before.failedSinceMs ?? Date.now() }));
          // What was asked for once is asked for until it is there, unless it never will be.
          if (failed.code !== "INVALID_ARGUMENT") againMs = Math.max(everyMs, failedMs);
        }
        if (againMs === 0) return;
        do await sleep(againMs, ended.signal);
        while (document.hidden && !ended.signal.aborted);
        if (ended.signal.aborted) return;
      }
    };
    void loop();
    return () => ended.abort();
  }, [path, everyMs]);
  return asked;
}

function nsOf(path: string | undefined): string | null {
  return new URLSearchParams(path?.split("?")[1] ?? "").get("ns");
}

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}
