"""Tables of docs/reference/support.md that scripts write: between `<!-- NAME -->` and `<!-- end of NAME -->`."""

import re

from debian_packages import ROOT

PAGE = ROOT / "docs" / "reference" / "support.md"


def make_table(heads, rows):
    """Markdown of a table."""
    lines = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def make_notes(reasons):
    """Numbered lines, one for each reason."""
    return "".join(f"{number}. {reason}\n" for number, reason in enumerate(reasons, 1))


class Cells:
    """Texts of cells; each reason for a "no" stands below the table once."""

    def __init__(self):
        self.reasons = []

    def text(self, word, reason=None):
        if not reason:
            return word
        if reason not in self.reasons:
            self.reasons.append(reason)
        return f"{word} ({self.reasons.index(reason) + 1})"


def replace(name, text):
    """Writes a table into the page. True if the page was another before."""
    page = PAGE.read_text()
    marked = re.compile(rf"(<!-- {name} -->\n).*?(<!-- end of {name} -->)", re.DOTALL)
    if not marked.search(page):
        raise SystemExit(f"{PAGE.name} has no place for the table {name}")
    renewed = marked.sub(lambda found: found[1] + text + found[2], page)
    if renewed != page:
        PAGE.write_text(renewed)
    return renewed != page


def shows(name, text):
    """True if the page has this table."""
    return f"<!-- {name} -->\n{text}<!-- end of {name} -->" in PAGE.read_text()
