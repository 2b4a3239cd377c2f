"""Fill the pages of the site with what the code already says.

Each mark stands alone on a line of a page and is replaced when the site is built:

    <!-- keys: MODULE:CLASS -->  the table of a class's settings: names, types and defaults from
                                 its fields, meanings from the string under each field
    <!-- sums: MODULE:CLASS -->  what a method says of its sums
    <!-- pages: FOLDER -->       the list of a folder's pages

Formulas become MathML, which every browser shows without a script.
"""

from __future__ import annotations

import importlib
import re
from html import unescape
from pathlib import Path
from typing import Any

from secagg.jobs.settings import fields, settings_of_class

TILDE = ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # "is distributed as" is an operator
DOCS = Path(__file__).parent
MARK = re.compile(r"^<!-- keys: ([\w.]+):(\w+) -->$", re.M)
SUMS = re.compile(r"^<!-- sums: ([\w.]+):(\w+) -->$", re.M)
LIST = re.compile(r"^<!-- pages: (\w+) -->$", re.M)
REQUIRED = {"outcome": "y", "predictors": ("x",), "family": "binomial"}
"""Any values of settings without a default: what sums tell does not depend on them."""


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Replace each mark by its table (called by mkdocs for every page)."""
    markdown = LIST.sub(lambda found: page_list(found[1]), markdown)
    markdown = SUMS.sub(lambda found: what_sums_tell(found[1], found[2]), markdown)
    return MARK.sub(lambda found: key_table(found[1], found[2]), markdown)


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML (called by mkdocs for every page)."""
    from latex2mathml.converter import convert  # noqa: PLC0415  # the tests of tables lack it

    def inline(found: re.Match[str]) -> str:
        return convert(unescape(found[1])).replace(*TILDE)

    def block(found: re.Match[str]) -> str:
        return convert(unescape(found[1]), display="block").replace(*TILDE)

    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', inline, html, flags=re.S)
    return re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', block, html, flags=re.S)


def page_list(folder: str) -> str:
    """Return a list of the pages of a folder, by their titles."""
    lines = []
    for page in sorted((DOCS / folder).glob("*.md")):
        title = page.read_text(encoding="utf-8").partition("\n")[0].removeprefix("# ")
        if page.name != "index.md":
            lines.append(f"- [{title}]({page.name})")
    return "\n".join(lines)


def what_sums_tell(module: str, name: str) -> str:
    """Return what plan and report say of a method's sums, with its default settings."""
    kind = getattr(importlib.import_module(module), name)
    required = {key: REQUIRED[key] for key, field in fields(kind).items() if field[1] is ...}
    says = kind(**required).disclosure
    parts = {
        "All sums together determine": says.text,
        "All sums together determine, if they have noise": says.text_noised,
        "What a dishonest coordinator can learn": says.if_malicious,
        "What a dishonest coordinator can learn if all sums have noise": says.if_malicious_noised,
        "What this run and other runs on the same records reveal together": says.other_runs,
    }
    questions = [part.replace("? ", "?** ", 1) for part in says.if_honest]
    texts = [f"**{head}:** {text}" for head, text in parts.items() if text]
    return "\n\n".join([*texts, *(f"**{question}" for question in questions)])


def key_table(module: str, name: str) -> str:
    """Return the settings of a model or dataclass as a Markdown table, required ones first."""
    rows = ["| key | type | default | meaning |", "|---|---|---|---|"]
    for key in settings_of_class(getattr(importlib.import_module(module), name)):
        cells = (f"`{key.name}`", key.type, key.default, key.meaning)
        rows.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(rows)
