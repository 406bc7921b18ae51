// Rule: words that the glossary replaces, in running text. Never looks into code.
"use strict";
const { text, report } = require("../text.js");
const words = require("../words.json").map(({ avoid, say }) => ({ avoid: new RegExp(avoid, "gi"), say }));

module.exports = (context) =>
  text(context, (paragraph) => {
    for (const { avoid, say } of words) {
      for (const found of paragraph.text.matchAll(avoid)) {
        report(context, paragraph, found.index, `"${found[0]}": write ${say}`);
      }
    }
  });
