"""Style figures with one palette, safe for the colour-blind, that follows the page's theme, and
write them as ``<svg>`` elements with a title and a description for readers who do not see them."""

from __future__ import annotations

import io
import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from html import escape
from typing import Any

import matplotlib as mpl
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnapi_prof.graph.plan import AUTO, Engine, Target
from nnapi_prof.reports.words import LatencySource

# After M. Okabe and K. Ito, "Color Universal Design" (2008), each brought to a luminance of 0.24 to
# 0.30: 3:1 against white and against the dark page, 5:1 under ON_COLOUR's text.
CPU_COLOUR = "#3f93d0"
HOST_COLOUR = "#8b9098"
AUTO_COLOUR = "#c9709f"
ACCELERATOR_COLOURS = ("#d9641a", "#0f9d76", "#c08a00", "#9a75d6")
ON_COLOUR = "#101418"
"""Text on any of these colours."""

INK = "#010203"
"""Placeholder for the page's text colour."""
FAINT = "#7f7f7f"
"""Axes and grid."""
PAGE = "#fefdfc"
"""Placeholder for the page's background, in gaps between touching shapes."""
HEAT = (
    ("#e3e8f4", "#232a3d"), ("#c6d2ea", "#2c3f63"), ("#a3bbe0", "#345689"),
    ("#7aa0d2", "#4470ab"), ("#527fbf", "#648cc4"), ("#355fa2", "#8eabd6"),
    ("#26437a", "#b7c9e6"), ("#172a52", "#e0e8f5"),
)  # fmt: skip
"""Steps from low to high: a colour for a light and for a dark page."""

VARIABLES = {INK: "currentColor", FAINT: f"var(--faint,{FAINT})", PAGE: "var(--page,#ffffff)"} | {
    light: f"var(--heat-{i},{light})" for i, (light, _) in enumerate(HEAT)
}
"""Colour in a figure -> CSS."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
    "svg.hashsalt": "nnapi-prof",  # the same data gives the same bytes
    "text.parse_math": False,  # labels from models and drivers may contain dollar signs
    "font.family": ["sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 10.5,
}

WIDE = 9.2
"""Width in inches of a figure on a screen."""
NARROW = 4.1
"""Width in inches of a figure on a phone held upright, where its text is as large as the page's."""


def new_environment() -> Environment:
    """Returns the environment of this package's templates, which escapes all values."""
    return Environment(
        loader=PackageLoader("nnapi_prof.reports"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last value of a cell, without pyplot."""

    def _repr_svg_(self) -> str:

        return to_svg(self, f"figure-{id(self):x}", "figure", "")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """Returns a figure with one axes, sized in inches, without pyplot and background.

    Call it under :data:`STYLE`, which texts read when they are created.
    """
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    figure.patch.set_alpha(0)
    bare(axes)
    return figure, axes


def canvas(
    width: float,
    height: float,
    *,
    left: float = 0.12,
    right: float = 0.12,
    top: float = 0.3,
    bottom: float = 0.45,
) -> tuple[Figure, Axes]:
    """Returns a :func:`new_figure` with axes of a given height and margins in inches. A constrained
    layout would take ten times as long to find them."""
    whole = height + top + bottom
    figure = NotebookFigure(figsize=(width, whole))
    across = (width - left - right) / width
    axes = figure.add_axes((left / width, bottom / whole, across, height / whole))
    figure.patch.set_alpha(0)
    bare(axes)
    return figure, axes


def label_axes(axes: Axes, heading: str, axis: str) -> None:
    """Sets the heading and the label of the x axis, for rows with their own names."""
    axes.set_yticks([])
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(axis, color=INK, labelpad=2)
    axes.set_title(heading, color=INK, loc="left")


def bare(axes: Axes) -> None:
    """Removes box and background, and draws lines and texts in the page's colours."""
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, color=FAINT)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(INK)


def colours(targets: Iterable[Target]) -> dict[str, str]:
    """Returns target key -> colour; all preferences of an accelerator have the same one."""
    colour_of: dict[str, str] = {}
    named: dict[str, str] = {}
    for target in sorted(set(targets), key=lambda t: t.key):
        if target.engine is Engine.CPU:
            colour = CPU_COLOUR
        elif target.engine is Engine.HOST:
            colour = HOST_COLOUR
        elif target.accelerator == AUTO:
            colour = AUTO_COLOUR
        else:
            place = len(named) % len(ACCELERATOR_COLOURS)
            colour = named.setdefault(target.accelerator or "", ACCELERATOR_COLOURS[place])
        colour_of[target.key] = colour
    return colour_of


def title(text: str, source: LatencySource) -> str:
    """Returns a title that names the source of latencies that were not measured."""
    return f"{text} ({source.value})" if source.value else text


def common_source(one: LatencySource, other: LatencySource) -> LatencySource:
    """Returns the source for a heading over two kinds of latencies: theirs if it is the same."""
    return one if one is other else LatencySource.MEASURED


# ---- as SVG --------------------------------------------------------------------------------------


_NUMBER = re.compile(r"-?\d+\.\d+")
_REFERENCE = re.compile(r"url\(#([^)]+)\)")
_COLOUR = re.compile(r"#[0-9a-f]{6}")
_FONT = re.compile(r"font-family:[^;]*(;|$)")
_NO_TURN = re.compile(r"rotate\(-?0(\.0+)? ")
_UNSEEN = "fill: none; opacity: 0"


def to_svg(figure: Figure, prefix: str, title: str, description: str) -> Markup:
    """Returns the figure as an ``<svg>`` element.

    Ids get ``prefix``, so that one page can contain several figures. Colours of
    :data:`~nnapi_prof.reports.style.VARIABLES` become the page's CSS variables, with the colours
    themselves as defaults. Styles that a page sets once (fonts, line joins) and invisible elements
    are left out. ``title`` and ``description`` are plain text.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(buffer.getvalue())
    used = {name for element in root.iter() for name in _references(element)}
    drawn = "".join(_element(child, prefix, used) for child in root)
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


def _element(element: ET.Element, prefix: str, used: set[str]) -> str:
    """Returns an element with its children; empty if it shows nothing."""
    tag = _local(element.tag)
    if tag in ("metadata", "style") or element.attrib.get("style", "") == _UNSEEN:
        return ""
    _share_style(element)
    inner = escape(element.text or "", quote=False) if tag == "text" else ""
    inner += "".join(_element(child, prefix, used) for child in element)
    attributes = "".join(_attributes(element, prefix, used))
    if tag in ("g", "defs") and not inner:
        return ""
    if tag == "g" and not attributes:
        return inner
    return f"<{tag}{attributes}>{inner}</{tag}>" if inner else f"<{tag}{attributes}/>"


def _share_style(group: ET.Element) -> None:
    """Moves a style that all dots of a group share to the group."""
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
    text = _COLOUR.sub(lambda match: VARIABLES.get(match[0], match[0]), text)
    return text.replace("; ", ";").replace(": ", ":").strip("; ")


def _rounded(text: str) -> str:
    """Rounds numbers to two decimals, less than a viewer's pixel."""
    return _NUMBER.sub(lambda match: f"{float(match[0]):.2f}".rstrip("0").rstrip("."), text)


def _local(name: str) -> str:
    """Removes the namespace, which HTML knows."""
    return name.rpartition("}")[2]
