"""A matplotlib figure as an ``<svg>`` that stands in a page: small, in the page's font and colours,
with a title and a description for those who do not see it."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from html import escape

import matplotlib as mpl
from markupsafe import Markup
from matplotlib.figure import Figure

from nnapi_prof.reports.style import STYLE, VARIABLES

_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"font-family:[^;]*(;|$)")
_NO_TURN = re.compile(r"rotate\(-?0(\.0+)? ")
_UNSEEN = "fill: none; opacity: 0"


def to_svg(figure: Figure, prefix: str, title: str, description: str) -> Markup:
    """The figure as an ``<svg>`` element.

    Ids get ``prefix``, so that several figures live in one page; colours of
    :data:`~nnapi_prof.reports.style.VARIABLES` become the page's CSS variables, with themselves
    where it has none; what a page has once (fonts, line joins) and what nobody sees is left out.
    ``title`` and ``description`` are plain text.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(buffer.getvalue())
    used = {name for element in root.iter() for name in _references(element)}
    drawn = "".join(_written(child, prefix, used) for child in root)
    box = root.attrib["viewBox"]
    wide = float(box.split()[2])
    return Markup(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{_rounded(box)}" role="img" '
        f'aria-labelledby="{prefix}-title {prefix}-desc" '
        f'style="max-width:{wide / 72:.2f}in;stroke-linejoin:round;stroke-linecap:butt">'
        f'<title id="{prefix}-title">{escape(title)}</title>'
        f'<desc id="{prefix}-desc">{escape(description)}</desc>{drawn}</svg>'
    )


def _references(element: ET.Element) -> Iterator[str]:
    for name, value in element.attrib.items():
        if _local(name) == "href" and value.startswith("#"):
            yield value[1:]
        yield from _REFERENCE.findall(value)


def _written(element: ET.Element, prefix: str, used: set[str]) -> str:
    """An element with all below it; empty where it shows nothing."""
    tag = _local(element.tag)
    if tag in ("metadata", "style") or element.attrib.get("style", "") == _UNSEEN:
        return ""
    _share_style(element)
    inner = escape(element.text or "", quote=False) if tag == "text" else ""
    inner += "".join(_written(child, prefix, used) for child in element)
    attributes = "".join(_attributes(element, prefix, used))
    if tag in ("g", "defs") and not inner:
        return ""
    if tag == "g" and not attributes:
        return inner
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _share_style(group: ET.Element) -> None:
    """Given hundreds of dots of one look, each saying so; result: their group says it once."""
    styles = {child.attrib.get("style") for child in group if _local(child.tag) == "use"}
    alike = len(group) > 1 and len(styles) == 1 and all(_local(c.tag) == "use" for c in group)
    style = styles.pop() if alike else None
    if style is None or "style" in group.attrib:
        return
    group.set("style", style)
    for child in group:
        del child.attrib["style"]


def _attributes(element: ET.Element, prefix: str, used: set[str]) -> Iterator[str]:
    for name, value in element.attrib.items():
        name = _local(name)
        if name == "id":
            if value not in used:
                continue
            value = f"{prefix}-{value}"
        elif name == "href" and value.startswith("#"):
            value = f"#{prefix}-{value[1:]}"
        elif name == "style":
            value = _style(value)
        elif name == "transform" and _NO_TURN.match(value):
            continue
        elif name in ("d", "x", "y", "width", "height", "transform", "points"):
            value = _rounded(" ".join(value.split()))
        value = _REFERENCE.sub(rf"url(#{prefix}-\1)", value)
        if value:
            yield f' {name}="{escape(value)}"'


def _style(text: str) -> str:
    text = _FONT.sub("", text)
    text = _COLOUR.sub(lambda found: VARIABLES.get(found[0], found[0]), text)
    return text.replace("; ", ";").replace(": ", ":").strip("; ")


def _rounded(text: str) -> str:
    """With two decimals at most: a viewer's pixel is larger."""
    return _NUMBER.sub(lambda found: f"{float(found[0]):.2f}".rstrip("0").rstrip("."), text)


def _local(name: str) -> str:
    """Without the namespace, which HTML knows."""
    return name.rpartition("}")[2]
