/** The little XML that S3 speaks: elements and text, strictly. Anything else (a proxy's page, half an answer) is not S3. */

/** One element. */
export interface XmlElement {
  readonly name: string;
  readonly children: readonly XmlElement[];
  /** Its own text, entities resolved; "" for an element of elements. */
  readonly text: string;
}

/** Deeper than anything S3 sends. */
const depthMax = 16;
const entities: Readonly<Record<string, string>> = { amp: "&", lt: "<", gt: ">", quot: '"', apos: "'" };
const openTag = /<([A-Za-z_][\w.:-]*)(?:\s+[\w.:-]+\s*=\s*(?:"[^"<]*"|'[^'<]*'))*\s*(\/?)>/y;
const aside = /(?:\s+|<\?[^?]*\?>|<!--[\s\S]*?-->)*/y;

/** The document's root element, or undefined when this is not a whole document of the kind S3 sends. */
export function parseXml(document: string): XmlElement | undefined {
  const reader = new Reader(document.charCodeAt(0) === 0xfeff ? document.slice(1) : document);
  return reader.document();
}

/** The text of the first child named so. */
export function childText(element: XmlElement | undefined, name: string): string | undefined {
  return element?.children.find((child) => child.name === name)?.text;
}

/** Text as it stands between two tags. */
export function escapeXml(text: string): string {
  return text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
}

class Reader {
  readonly #text: string;
  #at = 0;

  constructor(text: string) {
    this.#text = text;
  }

  document(): XmlElement | undefined {
    this.#match(aside);
    const root = this.#element(0);
    this.#match(aside);
    return this.#at === this.#text.length ? root : undefined;
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at;
    const found = pattern.exec(this.#text);
    if (found) this.#at = pattern.lastIndex;
    return found;
  }

  #element(depth: number): XmlElement | undefined {
    const tag = this.#match(openTag);
    if (!tag || depth > depthMax) return undefined;
    const name = tag[1] as string;
    if (tag[2] === "/") return { name, children: [], text: "" };
    const children: XmlElement[] = [];
    let text = "";
    for (;;) {
      const next = this.#text.indexOf("<", this.#at);
      if (next < 0) return undefined;
      text += this.#text.slice(this.#at, next);
      this.#at = next;
      if (this.#text.startsWith(`</${name}`, next)) {
        const end = this.#text.indexOf(">", next);
        if (end < 0 || this.#text.slice(next + 2 + name.length, end).trim() !== "") return undefined;
        this.#at = end + 1;
        const own = resolveEntities(children.length > 0 ? "" : text);
        return own === undefined ? undefined : { name, children, text: own };
      }
      const child = this.#element(depth + 1);
      if (!child) return undefined;
      children.push(child);
    }
  }
}

/** Undefined for an entity that XML does not define by itself. */
function resolveEntities(text: string): string | undefined {
  if (!text.includes("&")) return text;
  let isGood = true;
  const resolved = text.replace(/&([^;&]{0,10})(;?)/g, (_, name: string, end: string) => {
    const code = /^#(?:x([0-9A-Fa-f]{1,6})|([0-9]{1,7}))$/.exec(name);
    const point = code ? Number.parseInt(code[1] ?? code[2] ?? "", code[1] === undefined ? 10 : 16) : -1;
    const value = code && point <= 0x10ffff ? String.fromCodePoint(point) : entities[name];
    if (value === undefined || end === "") isGood = false;
    return value ?? "";
  });
  return isGood ? resolved : undefined;
}
