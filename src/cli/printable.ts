/** Text for a terminal: what others wrote, into manifests, ids and sample names, must not move its cursor or change its title. */

/** Control characters but for line breaks and tabs, and what turns the direction of writing. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is looked for.
const hidden = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g;

function escaped(char: string): string {
  return `\\u${char.charCodeAt(0).toString(16).padStart(4, "0")}`;
}

/** The text with such characters written as `\\u001b`. Lines stay lines. */
export function printable(text: string): string {
  return text.replace(hidden, escaped);
}

/** A value as one line of JSON that any terminal can show. `JSON.stringify` leaves some of them as they are. */
export function printableJson(value: unknown): string {
  return JSON.stringify(value).replace(hidden, escaped);
}
