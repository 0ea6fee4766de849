"""A real browser for pages: Debian's Chromium through Playwright, started once."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING, NoReturn

import pytest

if TYPE_CHECKING:
    from playwright.sync_api import Browser


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """Skips where there is none, unless NNAPI_PROF_REQUIRE_ALL=1: then that is a failure."""
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        missing("playwright is not installed")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        missing("no chromium on PATH")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


def missing(what: str) -> NoReturn:
    if os.environ.get("NNAPI_PROF_REQUIRE_ALL") == "1":
        pytest.fail(f"{what}, and NNAPI_PROF_REQUIRE_ALL=1", pytrace=False)
    pytest.skip(what)
