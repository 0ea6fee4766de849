"""How figures look: one palette, safe for the colour-blind, that follows the page's theme."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nnapi_prof.graph.plan import AUTO, Engine, Target

# After M. Okabe and K. Ito, "Color Universal Design" (2008), each brought to a luminance of 0.24 to
# 0.30: 3:1 against white and against the dark page, 5:1 under ON_COLOUR's text.
CPU_COLOUR = "#3f93d0"
HOST_COLOUR = "#8b9098"
AUTO_COLOUR = "#c9709f"
ACCELERATOR_COLOURS = ("#d9641a", "#0f9d76", "#c08a00", "#9a75d6")
ON_COLOUR = "#101418"
"""Text on any of them."""

INK = "#010203"
"""Stands for the page's text colour."""
FAINT = "#7f7f7f"
"""Axes and grid."""
PAGE = "#fefdfc"
"""Stands for the page's background: gaps between what touches."""
HEAT = (
    ("#e3e8f4", "#232a3d"), ("#c6d2ea", "#2c3f63"), ("#a3bbe0", "#345689"),
    ("#7aa0d2", "#4470ab"), ("#527fbf", "#648cc4"), ("#355fa2", "#8eabd6"),
    ("#26437a", "#b7c9e6"), ("#172a52", "#e0e8f5"),
)  # fmt: skip
"""From little to much: a colour on light and on dark."""

VARIABLES = {
    INK: "currentColor",
    FAINT: f"var(--faint,{FAINT})",
    PAGE: "var(--page,#ffffff)",
} | {light: f"var(--heat-{i},{light})" for i, (light, _) in enumerate(HEAT)}
"""Colour in a figure -> CSS."""

STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text: small, searchable, in the page's own font
    "svg.hashsalt": "nnapi-prof",  # same data, same bytes
    "text.parse_math": False,  # labels come from models and drivers; a dollar is a dollar
    "font.family": ["sans-serif"],
    "font.size": 9.0,
    "axes.titlesize": 10.5,
}

WIDE = 9.2
"""Inches: a figure beside a screen's width of text."""
NARROW = 4.1
"""Inches: the same on a phone held upright, where its text is as large as the page's."""


class NotebookFigure(Figure):
    """A figure that a notebook shows as the last value of a cell, without pyplot."""

    def _repr_svg_(self) -> str:
        from nnapi_prof.reports.svg import to_svg

        return to_svg(self, f"figure-{id(self):x}", "figure", "")


def new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    """A figure of one axes without pyplot; inches. Its background is the page's.

    To be called under :data:`STYLE`, which texts read when they are made.
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
    """:func:`new_figure` with axes of a given height and room around them, in inches: what a
    constrained layout would find in ten times the time."""
    whole = height + top + bottom
    figure = NotebookFigure(figsize=(width, whole))
    across = (width - left - right) / width
    axes = figure.add_axes((left / width, bottom / whole, across, height / whole))
    figure.patch.set_alpha(0)
    bare(axes)
    return figure, axes


def bare(axes: Axes) -> None:
    """No box, no background; lines and texts in the page's colours."""
    axes.patch.set_alpha(0)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("left", "bottom"):
        axes.spines[side].set_color(FAINT)
    axes.tick_params(colors=INK, color=FAINT)
    for text in (axes.xaxis.label, axes.yaxis.label, axes.title):
        text.set_color(INK)


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
