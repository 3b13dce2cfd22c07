/** Dates as others write them: the calendar is Node's, and no clock is asked. */

/** `2011-02-26T16:07:30.000Z` of ms since 1970. */
export function isoDate(ms: number): string {
  return new Date(ms).toISOString();
}

/** Ms since 1970 of an ISO date or of HTTP's (`Sun, 06 Nov 1994 08:49:37 GMT`); undefined when it is neither. */
export function parseDate(text: string | undefined): number | undefined {
  const ms = /^(\d{4}-\d\d-\d\dT|\w{3}, \d\d \w{3} \d{4} )[\d:.]+( GMT|Z)$/.test(text ?? "")
    ? Date.parse(text as string)
    : Number.NaN;
  return Number.isNaN(ms) ? undefined : ms;
}
