/** Numbers, sizes and times for people. */

/** `12,345`. */
export function count(value: number): string {
  return Math.round(value).toLocaleString("en-US");
}

/** `1.5 MB`: decimal units, as object stores bill them. */
export function bytes(value: number): string {
  const units = ["B", "kB", "MB", "GB", "TB", "PB"];
  let [size, unit] = [value, 0];
  while (size >= 1_000 && unit < units.length - 1) [size, unit] = [size / 1_000, unit + 1];
  return `${unit === 0 ? Math.round(size) : size.toFixed(1)} ${units[unit]}`;
}

/** `3.2 s`, `4 min`, `2.5 h`, `3 d`. */
export function duration(ms: number): string {
  if (ms < 1_000) return `${Math.round(Math.max(0, ms))} ms`;
  if (ms < 120_000) return `${(ms / 1_000).toFixed(1)} s`;
  if (ms < 7_200_000) return `${Math.round(ms / 60_000)} min`;
  return ms < 172_800_000 ? `${(ms / 3_600_000).toFixed(1)} h` : `${Math.round(ms / 86_400_000)} d`;
}

/** `2.5 ms`: of one, where so many took so long together. */
export function each(ms: number, count: number): string {
  if (count <= 0) return "–";
  return ms / count < 100 ? `${(ms / count).toFixed(1)} ms` : duration(ms / count);
}

/** `2026-11-16 10:03:43`, here. */
export function moment(ms: number): string {
  const at = new Date(ms);
  return new Date(ms - 60_000 * at.getTimezoneOffset()).toISOString().slice(0, 19).replace("T", " ");
}

/** `4 s ago`. */
export function ago(atMs: number | undefined, nowMs: number): string {
  return atMs === undefined ? "unknown" : `${duration(nowMs - atMs)} ago`;
}

/** `12.4 /s`, or a minute's where a second's is small. */
export function rate(perSecond: number): string {
  if (perSecond === 0) return "0 /s";
  return perSecond < 0.5 ? `${(perSecond * 60).toFixed(1)} /min` : `${perSecond.toFixed(perSecond < 10 ? 1 : 0)} /s`;
}

/** `$1.20`. */
export function dollars(value: number): string {
  return `$${value < 0.01 && value > 0 ? value.toFixed(4) : value.toFixed(2)}`;
}

/** `12.3 %`. */
export function percent(share: number): string {
  return `${(100 * share).toFixed(1)} %`;
}

/** The time of day here. */
export function clock(ms: number): string {
  return new Date(ms).toLocaleTimeString("en-GB");
}

/** A hue for a name, the same every time. */
export function hue(name: string): number {
  let hash = 2_166_136_261;
  for (let i = 0; i < name.length; i++) hash = Math.imul(hash ^ name.charCodeAt(i), 16_777_619);
  return (hash >>> 0) % 360;
}

/** The last part of an address. */
export function shortName(uri: string): string {
  return uri.replace(/\/+$/, "").split("/").at(-1) || uri;
}
