// Rule: a heading is a noun phrase or a task, no clause and no question.
"use strict";
const { plain, report } = require("../text.js");

const CLAUSE = /^(?:what|how(?!-)|whether|where|which|who|when|that)\b/i;

module.exports = (context) => ({
  [context.Syntax.Header](node) {
    const heading = plain(node);
    if (CLAUSE.test(heading.text) || heading.text.endsWith("?")) {
      report(context, heading, 0, `the heading "${heading.text}": write a noun phrase or a task`);
    }
  },
});
