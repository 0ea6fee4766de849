"""A page as headless Chromium shows it, and what axe-core thinks of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

Scheme = Literal["light", "dark"]
VIEWS: list[tuple[int, Scheme]] = [(390, "dark"), (1440, "light"), (390, "light"), (1440, "dark")]


@dataclass
class Visit:
    """A page that was opened. ``text`` is its console and its errors, ``asked`` what it fetched
    beside itself."""

    page: Page
    text: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)

    @property
    def overflows(self) -> bool:
        """Whether the page scrolls sideways."""
        root = "document.documentElement"
        return bool(self.page.evaluate(f"{root}.scrollWidth > {root}.clientWidth"))

    def violations(self) -> list[str]:
        """What axe-core finds, serious or critical."""
        from axe_playwright_python.sync_playwright import Axe

        result = Axe().run(self.page).response["violations"]
        return [
            f"{each['id']} ({each['impact']}): {node['html'][:120]}"
            for each in result
            if each["impact"] in ("serious", "critical")
            for node in each["nodes"]
        ]


@contextmanager
def visit(
    browser: Browser, file: Path, width: int = 1440, scheme: Scheme = "light"
) -> Iterator[Visit]:
    """Opens a file at a width in pixels, in a light or dark theme."""
    page = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    seen = Visit(page)
    page.on("console", lambda message: seen.text.append(message.text))
    page.on("pageerror", lambda error: seen.text.append(str(error)))
    page.on("request", lambda request: seen.asked.append(request.url))
    page.goto(file.as_uri())
    seen.asked = [url for url in seen.asked if not url.startswith(("file:", "data:"))]
    yield seen
    page.close()
