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
