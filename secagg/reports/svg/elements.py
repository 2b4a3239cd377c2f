"""SVG for a page as an element tree, which escapes every name."""

from __future__ import annotations

from xml.etree import ElementTree as ET

from markupsafe import Markup

Element = ET.Element


def root(name: str, **attributes: str) -> Element:
    """Return an <svg> element with a class."""
    return ET.Element("svg", {"class": name, **_plain(attributes)})


def add(parent: Element, tag: str, name: str = "", text: str = "", **attributes: str) -> Element:
    """Append an element, with class and text if given; text_anchor becomes text-anchor."""
    named = {"class": name} if name else {}
    element = ET.SubElement(parent, tag, {**named, **_plain(attributes)})
    element.text = text or None
    return element


def markup(element: Element) -> Markup:
    """Return the element as markup that a template does not escape again."""
    return Markup(ET.tostring(element, encoding="unicode"))  # noqa: S704  # escaped by ElementTree


def _plain(attributes: dict[str, str]) -> dict[str, str]:
    return {key.replace("_", "-"): value for key, value in attributes.items()}
