/** Plain data as YAML: what manifests need of it. Text that could be read as something else is quoted as JSON, which YAML reads alike. */

type Plain = string | number | boolean | readonly Plain[] | { readonly [name: string]: Plain | undefined };

const plainText = /^[A-Za-z/][A-Za-z0-9_./@-]*$/;
const words = /^(true|false|yes|no|on|off|null|y|n|~)$/i;

function scalar(value: string | number | boolean): string {
  if (typeof value !== "string") return String(value);
  return plainText.test(value) && !words.test(value) ? value : JSON.stringify(value);
}

function lines(value: Plain, indent: string): string[] {
  if (Array.isArray(value)) {
    return (value as readonly Plain[]).flatMap((item) => {
      if (typeof item !== "object") return [`${indent}- ${scalar(item)}`];
      const [first = "", ...rest] = lines(item, `${indent}  `);
      return [`${indent}- ${first.trimStart()}`, ...rest];
    });
  }
  return Object.entries(value as Readonly<Record<string, Plain | undefined>>).flatMap(([name, item]) => {
    if (item === undefined) return [];
    const key = `${indent}${scalar(name)}:`;
    if (typeof item === "string" && item.includes("\n") && /\S/.test(item) && !/^\s|[\r\t]/.test(item))
      return [
        `${key} |${item.endsWith("\n") ? "" : "-"}`,
        ...item
          .replace(/\n$/, "")
          .split("\n")
          .map((line) => (line === "" ? "" : `${indent}  ${line}`)),
      ];
    if (typeof item !== "object") return [`${key} ${scalar(item)}`];
    const isEmpty = Array.isArray(item) ? item.length === 0 : Object.keys(item).length === 0;
    if (isEmpty) return [`${key} ${Array.isArray(item) ? "[]" : "{}"}`];
    return [key, ...lines(item, Array.isArray(item) ? indent : `${indent}  `)];
  });
}

/** Documents, one after another. */
export function toYaml(documents: readonly object[]): string {
  return documents.map((document) => `---\n${lines(document as Plain, "").join("\n")}\n`).join("");
}
