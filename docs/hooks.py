"""What mkdocs calls when it builds the site: formulas, and what the search finds.

Formulas become MathML, which every browser shows without a script. The search finds only the pages
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


def on_page_content(html: str, **_: Any) -> str:
    """Turn formulas into MathML (called by mkdocs for every page)."""

    def inline(found: re.Match[str]) -> str:
        return convert(unescape(found[1])).replace(*TILDE)

    def block(found: re.Match[str]) -> str:
        return convert(unescape(found[1]), display="block").replace(*TILDE)

    html = re.sub(r'<span class="arithmatex">\\\((.*?)\\\)</span>', inline, html, flags=re.S)
    return re.sub(r'<div class="arithmatex">\s*\\\[(.*?)\\\]\s*</div>', block, html, flags=re.S)


@event_priority(100)  # before the search reads the page
def on_page_context(context: Any, page: Any, nav: Any, **_: Any) -> Any:
    """Take pages outside the navigation out of the search (called for every page)."""
    if page not in nav.pages:
        page.meta["search"] = {"exclude": True}
    return context
