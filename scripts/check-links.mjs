// Checks that every relative link, anchor and image of a built book leads somewhere.
//
//   node scripts/check-links.mjs target/book
//
// Reads files alone: links to other hosts are not followed. Ends with 1 if a target is missing.
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { dirname, join, normalize, relative } from "node:path";

const [book] = process.argv.slice(2);
const pages = readdirSync(book, { recursive: true })
  .filter((name) => name.endsWith(".html") && !["print.html", "404.html", "toc.html"].includes(name))
  .map((name) => join(book, name));
const text = new Map(pages.map((page) => [page, readFileSync(page, "utf8")]));
const anchors = new Map();

function anchorsOf(page) {
  if (!anchors.has(page)) {
    const html = text.get(page) ?? readFileSync(page, "utf8");
    anchors.set(page, new Set([...html.matchAll(/\bid="([^"]*)"/g)].map(([, id]) => id)));
  }
  return anchors.get(page);
}

let links = 0;
const broken = [];
for (const [page, html] of text) {
  // The page's own text, without the book's frame around it.
  const main = html.slice(html.indexOf("<main>"), html.indexOf("</main>"));
  for (const [, target] of main.matchAll(/\b(?:href|src)="([^"]*)"/g)) {
    if (/^[a-z]+:/.test(target)) continue;
    links += 1;
    const [path, fragment] = target.replaceAll("&amp;", "&").split("#").map(decodeURIComponent);
    const file = path === "" ? page : normalize(join(dirname(page), path));
    const shown = `${relative(book, page)}: ${target}`;
    if (!existsSync(file) || statSync(file).isDirectory()) broken.push(`${shown}: there is no such page`);
    else if (fragment && file.endsWith(".html") && !anchorsOf(file).has(fragment)) broken.push(`${shown}: no such heading`);
  }
}
for (const one of broken) console.error(`links: ${one}`);
console.log(`book: ${pages.length} pages, ${links} links, ${broken.length} broken`);
process.exit(broken.length > 0 || links === 0 ? 1 : 0);
