"""Bundles that a stranger made: names that lead out, links, pipes, nesting."""

import hashlib
import json
import os
import struct
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nnapi_prof.bundle.storage import FORMAT, VERSION, _checksum, read_bundle, region_from_bytes
from nnapi_prof.convert import NnapiModel
from nnapi_prof.convert.region import Region, serialize
from nnapi_prof.errors import SerializationError
from nnapi_prof.execution.report import RunReport, every, keep, last
from nnapi_prof.nnapi.container import ContainerKind, write_container


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
    assert "does not name a file in the bundle" in refuse(bundle)
    write(bundle, regions=[{"id": name, "units": [0], "level": 1, "float16": False}])
    assert "does not name a file in the bundle" in refuse(bundle)


def test_links_and_pipes(bundle: Path, tmp_path: Path) -> None:
    region = bundle / "regions" / "u000.nnpf"
    os.mkfifo(region)
    assert "u000.nnpf is not a file of its own" in refuse(bundle)
    region.unlink()
    region.symlink_to("/dev/zero")
    assert "u000.nnpf is not a file of its own" in refuse(bundle)
    (bundle / "model.pt").symlink_to("/etc/passwd")
    assert "model.pt is not a file of its own" in refuse(bundle)


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


# ---- sizes ---------------------------------------------------------------------------------------

HUGE = 1 << 40
"""Of a sparse file, which takes no room on a disk, and would take all memory."""


def grow(path: Path, n_bytes: int = HUGE) -> None:
    with path.open("ab") as file:
        file.truncate(n_bytes)


def test_files_that_are_too_large_are_not_read(bundle: Path, refused: Callable[..., str]) -> None:
    for name, most in (
        ("regions/u000.nnpf", ", 67,108,864 at most are read"),
        ("model.pt", ""),
        ("manifest.json", ""),
    ):
        grow(bundle / name)
        words = f"{Path(name).name} has 1,099,511,627,776 bytes{most}"
        assert words in refuse(bundle)
    assert "the bundle is damaged" in refuse(bundle) and words in refused("run", bundle)


def test_a_constant_has_the_bytes_that_its_region_says(tmp_path: Path) -> None:
    digest = hashlib.sha256(b"1234").digest()
    info = {"inputs": [], "outputs": [], "input_types": [], "output_types": [], "operations": [],
            "level": 27}  # fmt: skip
    sections = {
        "INFO": json.dumps(info).encode(),
        "MODL": serialize(NnapiModel((), (), (), (), ())),
        "BUFS": b"",
    }
    blob = tmp_path / digest.hex()

    def read(length: int) -> Region:
        buffers = struct.pack("<Q32s", length, digest)
        data = write_container(ContainerKind.MODEL, {**sections, "BUFS": buffers})
        return region_from_bytes(data, tmp_path)

    blob.write_bytes(b"1234")
    assert read(4).buffers == (b"1234",)
    with pytest.raises(SerializationError, match="has 4 bytes, 3 at most are read"):
        read(3)
    grow(blob)
    for length in (4, HUGE, 2**64 - 1):
        with pytest.raises(SerializationError, match="has 1,099,511,627,776 bytes"):
            read(length)


# ---- reports of runs -----------------------------------------------------------------------------

RUN: dict[str, Any] = {
    "model": "m", "device": "d", "fingerprint": "f", "simulated": True, "created_at": "2026-01-01",
    "runs": [], "checks": [], "notes": [], "conditions": "",
}  # fmt: skip
PLAN = {"name": "dp", "segments": [], "simulated": True, "notes": []}


def timed(ns: Any) -> dict[str, Any]:
    row = {"plan": PLAN, "total_ns": ns, "segments": [], "error": None, "flags": []}
    return {"runs": [row]}


DAMAGED = [
    *({"checks": [7]}, {"checks": [{"shape": [], "evidence": "all of it"}]}),
    *({"notes": 7}, {"more": 7}, *map(timed, (["1"], [-1], [10**30], [float("nan")]))),
]
TEXTS = ["[" * 200_000, '{"runs":' * 200_000, "[]", "7", '{"runs": 7}', "{" + '"a": 1, ' * 10]
TEXTS += [json.dumps({**RUN, **change}) for change in DAMAGED]


@pytest.mark.parametrize("text", TEXTS, ids=range(len(TEXTS)))
def test_runs_that_are_none(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.json").write_text(text)
    with pytest.raises(SerializationError, match="this is not a run report") as caught:
        last(tmp_path)
    assert "`nnapi-prof run` makes it again" in str(caught.value)
    assert str(caught.value).isprintable() and len(str(caught.value)) < 1000
    folder = tmp_path / "runs"
    folder.mkdir()
    (tmp_path / "run.json").rename(folder / "a.json")
    with pytest.raises(SerializationError, match="remove the file to do without it"):
        every(tmp_path)


def test_runs_that_are_too_large_or_elsewhere(tmp_path: Path) -> None:
    run_file = tmp_path / "run.json"
    grow(run_file)
    with pytest.raises(SerializationError, match=r"run.json has 1,099,511,627,776 bytes"):
        last(tmp_path)
    run_file.unlink()
    run_file.symlink_to("/dev/zero")
    assert last(tmp_path) is None
    run_file.unlink()
    run_file.symlink_to("/etc/passwd")
    with pytest.raises(SerializationError, match=r"run.json is not a file of its own"):
        last(tmp_path)


def test_no_run_is_written_through_a_link(tmp_path: Path) -> None:
    """To a file of the user's, or a new one in a folder of theirs."""
    precious, folder = tmp_path / "precious", tmp_path / "folder"
    precious.write_text("precious")
    folder.mkdir()
    report = RunReport("m", "d", "f", True, "2026-01-01T00:00:00+00:00", (), ())
    for target in (precious, folder / "new"):
        bundle = tmp_path / f"{target.name}.nnprof"
        bundle.mkdir()
        (bundle / "run.json").symlink_to(target)
        (bundle / "runs").symlink_to(folder)
        keep(bundle, report)
        keep(bundle, replace(report, model="another"))
        assert len(every(bundle)) == 2
    assert precious.read_text() == "precious" and list(folder.iterdir()) == []
