/** Dates of HTTP and of S3's XML as ms since 1970, by arithmetic: the clock is not asked, and `Date` stays out of this room. */

const months = "JanFebMarAprMayJunJulAugSepOctNovDec";

/** Of `Sun, 06 Nov 1994 08:49:37 GMT`. */
export function parseHttpDate(text: string | undefined): number | undefined {
  const parts = /^\w{3}, (\d{2}) (\w{3}) (\d{4}) (\d{2}):(\d{2}):(\d{2}) GMT$/.exec(text ?? "");
  const month = months.indexOf(parts?.[2] ?? "-") / 3;
  if (!parts || !Number.isInteger(month) || month < 0) return undefined;
  return ms(Number(parts[3]), month, Number(parts[1]), parts.slice(4, 7).map(Number));
}

/** Of `2011-02-26T16:07:30.000Z`. */
export function parseIsoDate(text: string | undefined): number | undefined {
  const parts = /^(\d{4})-(\d\d)-(\d\d)T(\d\d):(\d\d):(\d\d)(?:\.\d+)?Z$/.exec(text ?? "");
  if (!parts) return undefined;
  return ms(Number(parts[1]), Number(parts[2]) - 1, Number(parts[3]), parts.slice(4, 7).map(Number));
}

/** `month` from 0. */
function ms(year: number, month: number, day: number, time: readonly number[]): number {
  // Counted in years that begin in March, so that the leap day comes last.
  const from = month < 2 ? year - 1 : year;
  const march = (month + 10) % 12;
  const leapDays = Math.floor(from / 4) - Math.floor(from / 100) + Math.floor(from / 400);
  const days = 365 * from + leapDays + Math.floor((153 * march + 2) / 5) + day - 1 - 719_468;
  const [hour = 0, minute = 0, second = 0] = time;
  return (((days * 24 + hour) * 60 + minute) * 60 + second) * 1_000;
}

let lastSecond = -1;
let lastDate = "";

/** `20110226T160730Z` of ms since 1970. Requests come many in a second, so the last one is kept. */
export function basicDate(nowMs: number): string {
  const seconds = Math.floor(nowMs / 1_000);
  if (seconds === lastSecond) return lastDate;
  const days = Math.floor(seconds / 86_400);
  const rest = seconds - days * 86_400;
  // The inverse of the above: eras of 400 years, years that begin in March.
  const shifted = days + 719_468;
  const era = Math.floor(shifted / 146_097);
  const dayOfEra = shifted - era * 146_097;
  const yearOfEra = Math.floor(
    (dayOfEra - Math.floor(dayOfEra / 1_460) + Math.floor(dayOfEra / 36_524) - Math.floor(dayOfEra / 146_096)) / 365,
  );
  const dayOfYear = dayOfEra - (365 * yearOfEra + Math.floor(yearOfEra / 4) - Math.floor(yearOfEra / 100));
  const march = Math.floor((5 * dayOfYear + 2) / 153);
  const month = march < 10 ? march + 3 : march - 9;
  const year = yearOfEra + era * 400 + (month <= 2 ? 1 : 0);
  const day = dayOfYear - Math.floor((153 * march + 2) / 5) + 1;
  const two = (value: number): string => String(value).padStart(2, "0");
  const time = `${two(Math.floor(rest / 3_600))}${two(Math.floor(rest / 60) % 60)}${two(rest % 60)}`;
  lastSecond = seconds;
  lastDate = `${String(year).padStart(4, "0")}${two(month)}${two(day)}T${time}Z`;
  return lastDate;
}
