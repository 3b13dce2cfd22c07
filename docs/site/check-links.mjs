// Follows every link of a built site within it: to a file that is there, and to a heading that is on the page.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, relative } from "node:path";

/** A heading's id, as code hosts make it. @param {string} heading */
export function slugOf(heading) {
  return heading
    .toLowerCase()
    .replace(/[`*\\]|\[([^\]]*)\]\([^)]*\)/g, "$1")
    .replace(/[^\p{L}\p{N}\s_-]/gu, "")
    .trim()
    .replace(/\s/g, "-");
}

/** Ids and names of a page. @param {string} file @param {Map<string, Set<string>>} known */
function anchorsOf(file, known) {
  let anchors = known.get(file);
  if (!anchors) {
    const found = [...readFileSync(file, "utf8").matchAll(/\s(?:id|name)="([^"]+)"/g)].map(([, id]) => decode(id));
    anchors = new Set(found);
    known.set(file, anchors);
  }
  return anchors;
}

/** @param {string | undefined} text */
function decode(text = "") {
  const plain = text
    .replaceAll("&amp;", "&")
    .replaceAll("&quot;", '"')
    .replaceAll("&#39;", "'")
    .replaceAll("&lt;", "<");
  try {
    return decodeURIComponent(plain);
  } catch {
    return plain;
  }
}

/** The file that an address leads to. @param {string} path */
function fileAt(path) {
  const candidates = [path, `${path}.html`, join(path, "index.html")];
  return candidates.find((one) => existsSync(one) && statSync(one).isFile());
}

/**
 * Links that lead nowhere.
 * @param {string} folder
 * @returns {{ page: string, link: string }[]}
 */
export function deadLinks(folder) {
  const known = new Map();
  const dead = [];
  const pages = readdirSync(folder, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name.endsWith(".html"))
    .map((entry) => join(entry.parentPath, entry.name));
  for (const page of pages) {
    const html = readFileSync(page, "utf8");
    const links = new Set([...html.matchAll(/\s(?:href|src)="([^"]*)"/g)].map(([, link]) => decode(link)));
    for (const link of links) {
      if (/^([a-z]+:|\/\/)/i.test(link) || link === "") continue;
      const [path = "", anchor = ""] = link.split("#");
      const plain = path.split("?")[0] ?? "";
      const target =
        plain === "" ? page : fileAt(plain.startsWith("/") ? join(folder, plain) : join(dirname(page), plain));
      const isThere =
        target !== undefined && (anchor === "" || !target.endsWith(".html") || anchorsOf(target, known).has(anchor));
      if (!isThere) dead.push({ page: relative(folder, page), link });
    }
  }
  return dead;
}
