// The site's shape. build.mjs stages the pages and says which there are.
import { defineConfig } from "vitepress";
import { slugOf } from "../check-links.mjs";

const { stage, out, hasPython, pages } = JSON.parse(process.env.BATCHWEAVE_SITE ?? "{}");

/** @param {string} folder @param {string} text */
const group = (folder, text) => ({
  text,
  collapsed: folder !== "docs/guide",
  items: pages
    .filter(({ path }) => path.startsWith(`${folder}/`) && !/(README|index)\.md$/.test(path))
    .map(({ path, title }) => ({ text: title, link: `/${path}` })),
});

export default defineConfig({
  title: "BatchWeave",
  description: "A training data plane on plain object storage",
  srcDir: stage,
  outDir: out,
  // Works from any folder of a server, and from the disk of whoever builds it.
  cleanUrls: false,
  lastUpdated: false,
  metaChunk: true,
  // Names in angle brackets are names, not markup: nobody writes HTML in our pages.
  markdown: { html: false, anchor: { slugify: slugOf } },
  head: [["link", { rel: "icon", href: "data:," }]],
  themeConfig: {
    search: { provider: "local" },
    outline: [2, 3],
    nav: [
      { text: "Quickstart", link: "/docs/quickstart" },
      { text: "Guide", link: "/docs/guide/" },
      { text: "Questions", link: "/docs/faq" },
      { text: "TypeScript", link: "/reference/typescript/" },
      ...(hasPython ? [{ text: "Python", link: "/reference/python/index.html", target: "_self" }] : []),
    ],
    sidebar: [
      {
        text: "Begin",
        items: [
          { text: "What it is", link: "/" },
          { text: "Five minutes", link: "/docs/quickstart" },
          { text: "Questions", link: "/docs/faq" },
          { text: "Compared with other ways", link: "/docs/comparisons" },
        ],
      },
      group("docs/guide", "Guide"),
      ...(pages.some(({ path }) => path.startsWith("docs/operate/")) ? [group("docs/operate", "Operate")] : []),
      {
        text: "Reference",
        items: [
          { text: "TypeScript API", link: "/reference/typescript/" },
          ...(hasPython ? [{ text: "Python API", link: "/reference/python/index.html", target: "_self" }] : []),
          { text: "Python package", link: "/python/" },
          { text: "Stored format", link: "/FORMAT" },
          { text: "Errors", link: "/docs/errors" },
          { text: "Stores", link: "/docs/stores" },
          { text: "Security", link: "/docs/security" },
          { text: "Hazards", link: "/docs/hazards" },
        ],
      },
      group("docs/results", "Results"),
      {
        text: "Inside",
        collapsed: true,
        items: [
          { text: "Architecture", link: "/ARCHITECTURE" },
          { text: "Contributing", link: "/CONTRIBUTING" },
          { text: "Changelog", link: "/CHANGELOG" },
        ],
      },
      group("docs/design", "Decisions"),
    ],
  },
});
