// Running text of a document: paragraphs, headings and cells, with their code masked.
"use strict";
const { StringSource } = require("textlint-util-to-string");

// One word that no rule knows, in the place of code. Links keep their text.
const CODE = "X";

function plain(node) {
  const source = new StringSource(node, {
    replacer: ({ node: part, maskValue }) => (part.type === "Code" ? maskValue(CODE) : undefined),
  });
  return { node, source, text: source.toString() };
}

// Tables that scripts/study makes from stored runs.
const STUDY = /<!-- (?:study|rows) [\s\S]*?<!-- end of study -->/g;

function isGenerated(context, node) {
  const all = [...context.getSource().matchAll(STUDY)];
  return all.some((found) => found.index <= node.range[0] && node.range[1] <= found.index + found[0].length);
}

// Calls `each` with the text of every paragraph, heading and cell, or of the kinds that are named.
function text(context, each, kinds = ["Paragraph", "Header", "TableCell"]) {
  const visit = (node) => (isGenerated(context, node) ? undefined : each(plain(node)));
  return Object.fromEntries(kinds.map((kind) => [kind, visit]));
}

function report(context, { node, source }, index, message) {
  const at = source.originalIndexFromIndex(index);
  context.report(node, new context.RuleError(message, { padding: context.locator.at(at ?? 0) }));
}

module.exports = { plain, report, text };
