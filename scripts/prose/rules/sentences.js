// Rule: sentences are short, and begin with a noun, not with a clause ("What it costs is ...").
"use strict";
const { text, report } = require("../text.js");

// A point, a question or exclamation mark, or a colon or semicolon, before a blank.
const END = /[.!?:;](?=["')\]]*\s)/g;
// Words of a sentence at most. Code does not count, nor do parentheses: lists of fields have many.
const LIMIT = 30;
const CLAUSE = /^(?:what|whatever|whether|whoever)\b/i;

function sentences(paragraph) {
  const found = [];
  let begin = 0;
  for (const end of [...paragraph.matchAll(END), { index: paragraph.length }]) {
    found.push({ begin, text: paragraph.slice(begin, end.index + 1) });
    begin = end.index + 1;
  }
  return found;
}

module.exports = (context) => {
  const check = (paragraph) => {
    for (const sentence of sentences(paragraph.text)) {
      const trimmed = sentence.text.trim();
      const counted = trimmed.replace(/\([^()]*\)/g, "").split(/\s+/);
      const words = counted.filter((word) => /[\p{L}\p{N}]/u.test(word) && !/^X+\W*$/.test(word)).length;
      const begin = sentence.begin + sentence.text.search(/\S|$/);
      if (words > LIMIT) {
        report(context, paragraph, begin, `a sentence of ${words} words: at most ${LIMIT}`);
      }
      // A cell is often no sentence: "what it needs".
      if (paragraph.node.type === "Paragraph" && CLAUSE.test(trimmed) && !trimmed.endsWith("?")) {
        report(context, paragraph, begin, `a clause as the subject ("${trimmed.split(/\s+/, 3).join(" ")} ..."): write a noun`);
      }
    }
  };
  return text(context, check, ["Paragraph", "TableCell"]);
};
