"""How far commands are, kept in files and shown by ``report --serve``; in a real browser."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from nnapi_prof.api import running
from nnapi_prof.api.serve import Site, server
from nnapi_prof.execution.profile.options import Progress

if TYPE_CHECKING:
    from playwright.sync_api import Browser


def test_progress_of_a_command(
    browser: Browser, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(running, "folder", lambda: tmp_path)
    clock = iter([1000.0, 1000.2, 1061.5])
    heard: list[Progress] = []
    publisher = running.Publisher(heard.append, now=lambda: next(clock))
    publisher(Progress("measuring", 1, 9, "early"))
    assert list(tmp_path.iterdir()) == []  # a command that takes no time leaves nothing
    publisher(Progress("measuring", 4, 9, "conv2d <3x3>"))
    (tmp_path / "1.json").write_text("{}")
    (state,) = running.running(now=lambda: 1062.0)
    assert (state.pid, state.done, state.total) == (os.getpid(), 4, 9) and len(heard) == 2
    assert running.running(now=lambda: 1062.0 + running.STALE_S) == []
    monkeypatch.setattr("nnapi_prof.api.serve.running", lambda: [state])
    with server(Site([tmp_path]), 0) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        page = browser.new_page(viewport={"width": 390, "height": 844})
        told: list[str] = []
        page.on("console", lambda message: told.append(message.text))
        page.on("pageerror", lambda error: told.append(str(error)))
        page.goto(f"http://127.0.0.1:{listening.server_port}/")
        page.get_by_text("measuring: 4 of 9, for 1 min 2 s conv2d <3x3>").wait_for()
        assert page.locator("#idle").is_hidden() and told == []
        page.close()
        listening.shutdown()
        thread.join()
    publisher.close()
    assert running.running(now=lambda: 1062.0) == []
