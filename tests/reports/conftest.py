"""A real browser for pages: Debian's Chromium through Playwright, started once."""

import shutil

import pytest

from tests.parts import missing, need
from tests.reports.sample import sample


@pytest.fixture(scope="session")
def browser():
    sync_playwright = need("playwright.sync_api", "dev").sync_playwright
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        missing("no chromium on PATH: apt-get install chromium")
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture(scope="session")
def data():
    """24 units, of which the NPU refuses the tenth."""
    return sample(24, (9,))
