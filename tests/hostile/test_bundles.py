"""Bundles that a stranger made: names that lead out, links, pipes, nesting."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.bundle.storage import FORMAT, VERSION, _checksum, read_bundle
from nnapi_prof.errors import SerializationError


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A folder with a manifest that is read up to its files."""
    folder = tmp_path / "x.nnprof"
    (folder / "regions").mkdir(parents=True)
    (folder / "blobs").mkdir()
    write(folder)
    return folder


def write(folder: Path, **changes: Any) -> None:
    manifest: dict[str, Any] = {
        "format": FORMAT,
        "version": VERSION,
        "model": "m",
        "model_file": "model.pt",
        "model_sha256": "",
        "regions": [{"id": "u000", "units": [0], "level": 1, "float16": False}],
        **changes,
    }
    manifest["sha256"] = _checksum(manifest)
    (folder / "manifest.json").write_text(json.dumps(manifest))


def refuse(folder: Path) -> str:
    with pytest.raises(SerializationError) as caught:
        read_bundle(folder)
    assert str(caught.value).isprintable()
    return str(caught.value)


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/../../b", "a\x1b[2J", "", 7, None])
def test_names_that_lead_out(bundle: Path, name: Any) -> None:
    write(bundle, model_file=name)
    assert "is no name of a file in the bundle" in refuse(bundle)
    write(bundle, regions=[{"id": name, "units": [0], "level": 1, "float16": False}])
    assert "is no name of a file in the bundle" in refuse(bundle)


def test_links_and_pipes(bundle: Path, tmp_path: Path) -> None:
    region = bundle / "regions" / "u000.nnpf"
    os.mkfifo(region)
    assert "u000.nnpf is no file of its own" in refuse(bundle)
    region.unlink()
    region.symlink_to("/dev/zero")
    assert "u000.nnpf is no file of its own" in refuse(bundle)
    (bundle / "model.pt").symlink_to("/etc/passwd")
    assert "model.pt is no file of its own" in refuse(bundle)


@pytest.mark.parametrize("text", ["[" * 200_000, '{"a":' * 200_000, "NaN", "", "\x00", "{}"])
def test_manifests_that_are_none(bundle: Path, text: str) -> None:
    (bundle / "manifest.json").write_text(text)
    assert "the bundle is damaged" in refuse(bundle)


@pytest.mark.parametrize(
    "changes", [{"regions": [7]}, {"regions": 7}, {"regions": [{}]}, {"model_file": []}]
)
def test_fields_of_other_kinds(bundle: Path, changes: dict[str, Any]) -> None:
    write(bundle, **changes)
    refuse(bundle)


def test_every_command_refuses(bundle: Path, refused: Callable[..., str]) -> None:
    write(bundle, model_file="../secret")
    assert "bundle is damaged" in refused("run", bundle)
