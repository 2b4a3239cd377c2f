"""An SVG file as an element tree, which escapes every name; and the marks that tell curves apart.

The colours are the palette of Okabe and Ito; neighbours differ in lightness.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

Element = ET.Element

STYLE = (
    "text{font:12px system-ui,'Segoe UI',Helvetica,Arial,sans-serif;fill:#222}"
    ".name{font-weight:600}"
)
COLOURS = (
    "#0072B2", "#D55E00", "#000000", "#009E73", "#E69F00", "#CC79A7", "#56B4E9", "#777777",
)  # fmt: skip
MARKERS = (  # paths centred at (0, 0)
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M0 -5L4.6 3.4L-4.6 3.4z",
    "M-3.6 -3.6h7.2v7.2h-7.2z",
    "M0 -5L5 0L0 5L-5 0z",
    "M0 5L4.6 -3.4L-4.6 -3.4z",
    "M-4 -4L4 4M4 -4L-4 4",
    "M0 -5V5M-5 0H5",
    "M-4 -2h8v4h-8z",
)


def drawing(name: str, title: str, width: float, height: float, style: str) -> Element:
    """Return an empty drawing with its title. name: its class; style: added to STYLE"""
    root = ET.Element("svg", {
        "class": name, "xmlns": "http://www.w3.org/2000/svg",
        "viewBox": f"0 0 {width:.0f} {height:.0f}", "width": f"{width:.0f}",
        "height": f"{height:.0f}", "role": "img",
    })  # fmt: skip
    add(root, "title", text=title)
    add(root, "style", text=STYLE + style)
    add(root, "rect", width="100%", height="100%", fill="#fff")
    add(root, "text", "name", text=title, x="12", y="22")
    return root


def add(parent: Element, tag: str, name: str = "", text: str = "", **attributes: str) -> None:
    """Append an element, with class and text if given; text_anchor becomes text-anchor."""
    named = {"class": name} if name else {}
    plain = {key.replace("_", "-"): value for key, value in attributes.items()}
    ET.SubElement(parent, tag, {**named, **plain}).text = text or None


def as_file(root: Element) -> str:
    """Return the text of the file."""
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'
