"""Write what the code says into the pages: `make tables`. A test compares pages and code.

Each part stands between a mark and `<!-- end -->`, both alone on their lines. The mark says what
the part contains:

    <!-- keys: MODULE:CLASS -->  the table of a class's settings: names, types and defaults from
                                 its fields, meanings from the string under each field
    <!-- sums: MODULE:CLASS -->  what a method says of its sums
    <!-- pages: FOLDER -->       the list of a folder's pages

To add a part, write its mark and run the command. Text outside the marks is never changed.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path

from secagg.jobs.settings import fields, settings_of_class

DOCS = Path(__file__).parent
PART = re.compile(
    r"^<!-- (keys|sums|pages): (\S+) -->\n(?:(?:(?!<!-- ).*\n)*<!-- end -->\n)?", re.M
)
REQUIRED = {"outcome": "y", "predictors": ("x",), "family": "binomial", "columns": (("x",),)}
"""Any values of settings without a default: what sums tell does not depend on them."""


def filled(markdown: str) -> str:
    """Return a page with its parts as the code says now."""
    make = {"keys": key_table, "sums": what_sums_tell, "pages": page_list}

    def part(found: re.Match[str]) -> str:
        kind, of = found.groups()
        return f"<!-- {kind}: {of} -->\n\n{make[kind](of)}\n\n<!-- end -->\n"

    return PART.sub(part, markdown)


def page_list(folder: str) -> str:
    """Return a list of the pages of a folder, by their titles."""
    lines = []
    for page in sorted((DOCS / folder).glob("*.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        if page.name != "index.md":
            lines.append(f"- [{title}]({page.name})")
    return "\n".join(lines)


def what_sums_tell(place: str) -> str:
    """Return what plan and report say of a method's sums, with its default settings."""
    kind = class_at(place)
    required = {key: REQUIRED[key] for key, field in fields(kind).items() if field[1] is ...}
    says = kind(**required).disclosure
    parts = {
        "All sums together determine": says.text,
        "All sums together determine, if they have noise": says.text_noised,
        "What a dishonest coordinator can learn": says.if_malicious,
        "What a dishonest coordinator can learn if all sums have noise": says.if_malicious_noised,
        "Together with other runs on the same records, this run can reveal more": says.other_runs,
    }
    questions = [part.replace("? ", "?** ", 1) for part in says.if_honest]
    texts = [f"**{head}:** {text}" for head, text in parts.items() if text]
    return "\n\n".join([*texts, *(f"**{question}" for question in questions)])


def key_table(place: str) -> str:
    """Return the settings of a model or dataclass as a Markdown table, required ones first."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in settings_of_class(class_at(place)):
        cells = (f"`{key.name}`", key.type, key.default, key.meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)


def class_at(place: str) -> type:
    """Return the class that a mark names."""
    module, name = place.split(":")
    found = getattr(importlib.import_module(module), name)
    assert isinstance(found, type)
    return found


def main() -> None:
    """Write all pages."""
    for page in sorted(DOCS.rglob("*.md")):
        before = page.read_text(encoding="utf-8")
        if (after := filled(before)) != before:
            page.write_text(after, encoding="utf-8")
            print(page.relative_to(DOCS.parent))


if __name__ == "__main__":
    main()
