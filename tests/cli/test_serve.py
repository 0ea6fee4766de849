"""``report --serve``: an index of bundles and runs, reports, and what is refused."""

from __future__ import annotations

import shutil
import threading
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.error import HTTPError

import pytest

from nnapi_prof.api.serve import Site, server
from tests.cli.common import Profiled, Result

Cli = Callable[..., Result]


@pytest.fixture
def folder(profiled: Profiled, tmp_path: Path) -> Path:
    """A bundle in a folder below, one that is damaged, and what is none."""
    path = tmp_path / "serve"
    shutil.copytree(profiled.bundle, path / "deep" / "tiny & co.nnprof")
    (path / "broken.nnprof").mkdir()
    (path / "other").mkdir()
    return path


@pytest.fixture
def address(folder: Path, profiled: Profiled) -> Iterator[str]:
    with server(Site([folder], str(profiled.costs)), 0) as listening:
        thread = threading.Thread(target=listening.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{listening.server_port}"
        listening.shutdown()
        thread.join()


def get(url: str, host: str | None = None) -> str:
    request = urllib.request.Request(url, headers={} if host is None else {"Host": host})
    with urllib.request.urlopen(request, timeout=60) as answer:
        return str(answer.read().decode())


def refused(url: str, host: str | None = None) -> tuple[int, str]:
    with pytest.raises(HTTPError) as error:
        get(url, host)
    return error.value.code, error.value.read().decode()


def test_pages(address: str) -> None:
    index = get(f"{address}/")
    assert "2 bundles" in index and "tiny &amp; co.nnprof" in index and "broken.nnprof" in index
    report = get(f"{address}/report?bundle=deep%2Ftiny%20%26%20co.nnprof")
    assert "The plan" in report and "fetches nothing" in report
    for path, status, words in (
        ("/nothing", 404, "no such page"),
        ("/report?bundle=../secret", 404, "there is no such bundle"),
        ("/report?bundle=broken.nnprof", 500, "is not a bundle"),
    ):
        code, page = refused(address + path)
        assert code == status and words in page
    assert refused(address, host="evil.example:80")[0] == 403
    assert get(f"{address}/running.json", host=f"localhost:{address.rpartition(':')[2]}") == "[]"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--serve", "nowhere"], "there is no such folder to serve"),
        (["--serve", "--json"], "leave --json out"),
        ([], "BUNDLE"),
    ],
)
def test_mistakes(cli: Cli, options: list[str], words: str) -> None:
    done = cli("report", *options)
    assert done.code == 2 and words in done.error
