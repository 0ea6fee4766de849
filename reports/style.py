"""How figures look: one palette, safe for the colour-blind; SVG that follows the page's theme."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnapi_prof.graph.plan import AUTO, Engine, Target

# M. Okabe and K. Ito, "Color Universal Design" (2008), without black and the two that vanish on
# white or on black.
CPU_COLOUR = "#56B4E9"
HOST_COLOUR = "#999999"
AUTO_COLOUR = "#CC79A7"
ACCELERATOR_COLOURS = ("#D55E00", "#009E73", "#E69F00", "#0072B2")

INK = "#010203"
"""Stands for the page's text colour: :func:`to_svg` turns it into ``currentColor``."""
FAINT = "#7f7f7f"

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
    "svg.hashsalt": "nnapi-prof",  # same data, same bytes
    "text.parse_math": False,  # labels come from models and drivers; a dollar is a dollar
    "font.family": ["sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 10.5,
}


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last value of a cell, without pyplot."""

    def _repr_svg_(self) -> str:
        return to_svg(self, f"figure-{id(self):x}", "figure")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one axes without pyplot; inches. Its background is the page's.

    To be called under :data:`STYLE`, which texts read when they are made.
    """
    figure = NotebookFigure(figsize=(width, height), layout="constrained")
    axes = figure.subplots()
    figure.patch.set_alpha(0)
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, color=FAINT)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(INK)
    return figure, axes


def colours(targets: Iterable[Target]) -> dict[str, str]:
    """Target key -> colour: one for each accelerator, whatever the preference."""
    found: dict[str, str] = {}
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
        found[target.key] = colour
    return found


def title(text: str, simulated: bool) -> str:
    """The title, which says where latencies come from a phone's description."""
    return f"{text} (simulated)" if simulated else text


def to_svg(figure: Figure, prefix: str, description: str) -> str:
    """The figure as an ``<svg>`` element to stand in HTML.

    Ids get ``prefix``, so that several figures live in one page; the text colour becomes the
    page's; prolog and metadata, which name hosts, are dropped. ``description`` is for screen
    readers and must be escaped.
    """
    buffer = io.StringIO()
    with mpl.rc_context(STYLE):
        figure.savefig(buffer, format="svg", metadata={"Date": None, "Creator": None})
    svg = buffer.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="([^"]+)"', rf'id="{prefix}-\1"', svg)
    svg = re.sub(r'href="#([^"]+)"', rf'href="#{prefix}-\1"', svg)
    svg = re.sub(r"url\(#([^)]+)\)", rf"url(#{prefix}-\1)", svg)
    svg = svg.replace(INK, "currentColor")
    return svg.replace("<svg", f'<svg role="img" aria-label="{description}"', 1)
