"""A page as headless Chromium shows it, what axe-core thinks of it, and as a parser reads it."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from tests.parts import need

VIEWS = [(390, "dark"), (1440, "light"), (390, "light"), (1440, "dark")]
"""(width in pixels, theme): a phone's and a desk's."""
VOID = {"meta", "link", "br", "img", "hr", "input"}


@dataclass
class Visit:
    """A page that was opened. ``text`` is its console and its errors, ``asked`` what it fetched
    beside itself."""

    page: Any
    text: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    def script(self, text: str) -> Any:
        return self.page.evaluate(text)

    @property
    def overflows(self) -> bool:
        """Whether the page scrolls sideways."""
        root = "document.documentElement"
        return bool(self.script(f"{root}.scrollWidth > {root}.clientWidth"))

    def violations(self) -> list[str]:
        """What axe-core finds, serious or critical."""
        axe = need("axe_playwright_python.sync_playwright", "dev").Axe()
        return [
            f"{each['id']} ({each['impact']}): {node['html'][:120]}"
            for each in axe.run(self.page).response["violations"]
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


@contextmanager
def visit(browser: Any, file: Path, width: int = 1440, scheme: str = "light") -> Iterator[Visit]:
    """Opens a file at a width in pixels, in a light or dark theme; narrow screens have touch."""
    viewport = {"width": width, "height": 900}
    page = browser.new_page(viewport=viewport, color_scheme=scheme, has_touch=width < 500)
    page.set_default_timeout(120_000)  # a machine that tests much at once
    seen, own = Visit(page), file.as_uri()

    def ask(request: Any) -> None:
        if request.url != own and not request.url.startswith("data:"):
            seen.asked.append(request.url)

    page.on("console", lambda message: seen.text.append(message.text))
    page.on("pageerror", lambda error: seen.text.append(str(error)))
    page.on("request", ask)
    page.goto(own)
    yield seen
    page.close()


class Parsed(HTMLParser):
    """Attributes and texts by tag, words by section; asserts that elements nest."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: dict[str, list[dict[str, Any]]] = {}
        self.texts: dict[str, list[str]] = {}
        self.words = {"": ""}
        self.feed(text)
        self.close()
        assert self.open == []

    @property
    def attributes(self) -> list[tuple[str, str]]:
        return [pair for tags in self.tags.values() for attrs in tags for pair in attrs.items()]

    @property
    def ids(self) -> Counter[str]:
        return Counter(value for name, value in self.attributes if name == "id")

    @property
    def links(self) -> list[str]:
        sources = ("src", "href", "xlink:href", "action")
        return [value for name, value in self.attributes if name in sources]

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.setdefault(tag, []).append(dict(attrs))
        self.texts.setdefault(tag, []).append("")

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.handle_startendtag(tag, attrs)
        if tag not in VOID:
            self.open.append(tag)
        if tag == "section":
            self.words[str(dict(attrs).get("id"))] = ""

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, f"</{tag}> closes {self.open[-3:]}"
        self.open.pop()

    def handle_data(self, data: str) -> None:
        if self.open:
            self.texts[self.open[-1]][-1] += data
        self.words[list(self.words)[-1]] += " ".join(data.split()) + " "
