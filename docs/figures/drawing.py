"""A very small SVG writer: boxes, lines, words; colours for light and dark."""

from __future__ import annotations

from html import escape

STYLE = """
text { font: 13px sans-serif; fill: #222 }
.small { font-size: 11px }
.strong { font-weight: bold }
.line { stroke: #444; stroke-width: 1.5; fill: none }
.thin { stroke: #999; stroke-width: 1; fill: none }
.way { stroke: #b3261e; stroke-width: 4; fill: none }
.box { fill: #fff; stroke: #444 }
.cpu { fill: #ffe0b2; stroke: #8a5a00 }
.npu { fill: #c8e6c9; stroke: #1b5e20 }
.gpu { fill: #bbdefb; stroke: #0d47a1 }
.cost { fill: #e1bee7; stroke: #4a148c }
.dots { stroke-dasharray: 5 4 }
@media (prefers-color-scheme: dark) {
  text { fill: #eee }
  .on text, text.on { fill: #111 }
  .line { stroke: #ccc }
  .box { fill: #333; stroke: #ccc }
  .way { stroke: #ff8a80 }
}
"""


class Drawing:
    """An SVG picture of ``width`` x ``height`` px. ``title`` and ``text`` say what it shows."""

    def __init__(self, width: int, height: int, title: str, text: str) -> None:
        self._size = (width, height)
        self._words = (title, text)
        self._parts: list[str] = []

    def box(self, x: float, y: float, w: float, h: float, kind: str = "box") -> None:
        self._parts.append(
            f'<rect x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{h:.1f}" rx="4"'
            f' class="{kind}"/>'
        )

    def circle(self, x: float, y: float, r: float, kind: str = "box") -> None:
        self._parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" class="{kind}"/>')

    def line(self, x0: float, y0: float, x1: float, y1: float, kind: str = "line") -> None:
        self._parts.append(f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" class="{kind}"/>')

    def arrow(self, x0: float, y0: float, x1: float, y1: float, kind: str = "line") -> None:
        self._parts.append(
            f'<path d="M{x0:.1f} {y0:.1f}L{x1:.1f} {y1:.1f}" class="{kind}"'
            ' marker-end="url(#head)"/>'
        )

    def path(self, d: str, kind: str = "line") -> None:
        self._parts.append(f'<path d="{d}" class="{kind}" marker-end="url(#head)"/>')

    def words(self, x: float, y: float, text: str, kind: str = "", at: str = "start") -> None:
        self._parts.append(
            f'<text x="{x:.1f}" y="{y:.1f}" class="{kind}" text-anchor="{at}">{escape(text)}</text>'
        )

    def __str__(self) -> str:
        width, height = self._size
        title, text = map(escape, self._words)
        return "\n".join(
            [
                f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
                f' width="{width}" height="{height}" role="img" aria-labelledby="t d">',
                f'<title id="t">{title}</title>',
                f'<desc id="d">{text}</desc>',
                f"<style>{STYLE}</style>",
                '<marker id="head" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7"'
                ' markerHeight="7" orient="auto"><path d="M0 0L8 4L0 8z" fill="#777"/></marker>',
                *self._parts,
                "</svg>\n",
            ]
        )
