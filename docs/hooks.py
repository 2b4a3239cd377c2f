"""What mkdocs calls when it builds the site: formulas, tables of keys, and what the search finds.

Formulas become MathML, which every browser shows without a script. Tables of keys are marked, so
that assets/site.css can show them on a phone. The search finds only the pages
of the navigation. Evidence (measurements, derivations, decisions) is built and linked, but no
answer to somebody who looks for a setting.
"""

from __future__ import annotations

import re
from html import unescape
from typing import Any

from latex2mathml.converter import convert
from mkdocs.plugins import event_priority

TILDE = ("<mi>&#x0007E;</mi>", "<mo>&#x0223C;</mo>")  # "is distributed as" is an operator
FIRST_AND_LAST = {"own-study.md": 10, "tutorial.md": 2, "reference/api.md": 0.1}  # in the search
KEYS = "<table data-keys>\n<thead>\n<tr>\n<th>key</th>"


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML and mark tables of keys (called by mkdocs for every page)."""

    def inline(found: re.Match[str]) -> str:
        return convert(unescape(found[1])).replace(*TILDE)

    def block(found: re.Match[str]) -> str:
        return convert(unescape(found[1]), display="block").replace(*TILDE)

    html = html.replace("<table>\n<thead>\n<tr>\n<th>key</th>", KEYS)
    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', inline, html, flags=re.S)
    return re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', block, html, flags=re.S)


@event_priority(100)  # before the search reads the page
def on_page_context(context: Any, page: Any, nav: Any, **_: Any) -> Any:
    """Say what the search finds, and what first (called for every page)."""
    if page not in nav.pages:
        page.meta["search"] = {"exclude": True}
    elif page.file.src_uri in FIRST_AND_LAST:
        page.meta["search"] = {"boost": FIRST_AND_LAST[page.file.src_uri]}
    return context
