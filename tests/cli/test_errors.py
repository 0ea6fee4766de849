"""Wrong models, inputs, cost tables, bundles and places to write to: one line and an exit code."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.bundle.storage import VERSION
from nnapi_prof.costs.store import CostStore
from tests.cli.common import INPUT, Profiled, Result, TinyNet, trace

SIM = ("--device", "sim:npu-phone")
Cli = Callable[..., Result]


# ---- the model ---------------------------------------------------------------------------------


def state_dict(path: Path) -> None:
    torch.save(TinyNet().state_dict(), path)


def whole_module(path: Path) -> None:
    torch.save(nn.Conv2d(3, 8, 3), path)


def old_pickle(path: Path) -> None:
    torch.save(TinyNet().state_dict(), path, _use_new_zipfile_serialization=False)


def cut_off(path: Path) -> None:
    content = io.BytesIO()
    torch.save(TinyNet().state_dict(), content)
    path.write_bytes(content.getvalue()[:1000])


def other_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "hello")


PICKLED = (
    "holds pickled Python objects (a state_dict or a whole module), not TorchScript: save torch"
)
WRONG_FILES = [
    (state_dict, PICKLED),
    (whole_module, PICKLED),
    (old_pickle, PICKLED),
    (cut_off, "is truncated or damaged"),
    (other_zip, "is a zip archive but no PyTorch model: save torch.jit.trace("),
    (lambda path: path.write_text("hello"), "is no PyTorch model: save torch.jit.trace("),
    (lambda path: path.touch(), "is empty: save torch.jit.trace("),
    (lambda path: path.mkdir(), "is a folder: give the path of a .pt or .pt2 file"),
    (lambda path: None, "does not exist: give the path of a .pt or .pt2 file"),
]


@pytest.mark.parametrize(("make", "words"), WRONG_FILES)
def test_a_file_that_is_no_model(
    cli: Cli, tmp_path: Path, make: Callable[[Path], None], words: str
) -> None:
    model = tmp_path / "model.pt"
    make(model)
    result = cli("profile", *SIM, "--input", INPUT, model)
    assert result.code == 2 and result.out == ""
    assert result.error.startswith(f"{model} {words}")


@pytest.mark.parametrize("command", ["partition", "convert"])
def test_other_commands_say_the_same(cli: Cli, tmp_path: Path, command: str) -> None:
    state_dict(tmp_path / "model.pt")
    result = cli(command, tmp_path / "model.pt")
    assert result.code == 2 and PICKLED in result.error
    result = cli(command, tmp_path / "absent.pt")
    assert result.code == 2 and "does not exist" in result.error


class Nothing(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x


class UntilSmall(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        while bool((x.sum() > 1).item()):
            x = x / 2
        return x


def test_a_model_that_computes_nothing(cli: Cli, tmp_path: Path) -> None:
    model = trace(Nothing(), tmp_path / "nothing.pt")
    for command in ("profile", "partition"):
        result = cli(command, *SIM, "--input", INPUT, model)
        assert result.code == 1 and result.error.startswith(
            f"{model} computes nothing: its outputs"
        )


def test_a_model_whose_shapes_hang_on_values(cli: Cli, tmp_path: Path) -> None:
    path = tmp_path / "loop.pt"
    with pytest.warns(DeprecationWarning):
        torch.jit.save(torch.jit.script(UntilSmall()), str(path))
    result = cli("profile", *SIM, "--input", INPUT, path)
    assert result.code == 1
    assert (
        "loop.pt: aten.item" in result.error and "depend on the values of a tensor" in result.error
    )


# ---- its inputs --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        (["1,3,16,16"], "input '1,3,16,16' is no shape: write sizes joined by x"),
        (["1x3x-1x16"], "input '1x3x-1x16' is no shape"),
        ([""], "input '' is no shape"),
        (["1x3x0x16"], "has a dimension of 0"),
        (["1x3x16x16:float99"], "has the element type 'float99': one of float32"),
        (["1x3x16"], "tiny.pt does not run on the input 1x3x16: Expected"),
        (["1x4x16x16"], "expected input[1, 4, 16, 16] to have 3 channels"),
        (["1x3x16x16:int64"], "tiny.pt does not run on the input 1x3x16x16:int64"),
        ([INPUT, INPUT], "tiny.pt takes 1 input, 2 were stated: give --input SHAPE once for each"),
    ],
)
def test_inputs_that_do_not_fit(cli: Cli, tiny: Path, inputs: list[str], words: str) -> None:
    stated = [part for text in inputs for part in ("--input", text)]
    result = cli("profile", *SIM, *stated, tiny)
    assert result.code == 2 and result.out == ""
    assert words in result.error


class Both(nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return x + y


def test_too_few_inputs(cli: Cli, tmp_path: Path) -> None:
    model = trace(Both(), tmp_path / "both.pt", (1, 4), (1, 4))
    result = cli("profile", *SIM, "--input", "1x4", model)
    assert result.code == 2
    assert "both.pt takes 2 inputs, 1 was stated: give --input SHAPE once for each" in result.error


def test_a_guessed_input_is_said(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    result = cli("convert", "--output", tmp_path / "out.pt", tiny)
    assert result.code == 0
    note = "note: input shape guessed as 1x3x224x224 from the first convolution"
    assert result.err.count(note) == 1
    asked = ("--accelerator", "sim-npu", "--preference", "fast", "--runs", 1)
    for _ in range(2):  # the second time the model is remembered, and not loaded
        result = cli("profile", *SIM, *asked, "--costs", tmp_path / "costs.sqlite", tiny)
        assert result.code == 0
        assert result.err.count(note) == 1


# ---- the cost table ----------------------------------------------------------------------------


def test_a_cost_table_that_is_none(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    junk = tmp_path / "junk.sqlite"
    junk.write_text("hello " * 200)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as link:
        link.execute("create table songs (title)")
    link.close()
    for costs, words in [
        (junk, "cannot open it: file is not a database"),
        (other, "this database belongs to something else (it has the table songs)"),
        (tmp_path, "unable to open database file"),
        ("/proc/absent/costs.sqlite", "cannot make its folder"),
        ("nosuch://host/costs", "nosuch is neither sqlite nor postgresql"),
    ]:
        for command in ("profile", "partition"):
            result = cli(command, *SIM, "--input", INPUT, "--costs", costs, tiny)
            assert result.code == 1 and result.out == ""
            assert f"cost table {costs}: " in result.error and words in result.error
    assert junk.read_text() == "hello " * 200


def test_partition_wants_a_profile(
    cli: Cli, tiny: Path, profiled: Profiled, tmp_path: Path
) -> None:
    words = "run nnapi-prof profile with the same model, inputs and device"
    named = ("--input", INPUT, "--costs")
    result = cli("partition", *SIM, *named, tmp_path / "empty.sqlite", tiny)
    assert result.code == 1 and words in result.error and "5 of the model's 5 units" in result.error
    # On another device, for another input, with more threads than were measured:
    result = cli("partition", "--device", "sim:gpu-phone", *named, profiled.costs, tiny)
    assert result.code == 1 and words in result.error
    result = cli("partition", *SIM, "--input", "1x3x8x8", "--costs", profiled.costs, tiny)
    assert result.code == 1 and words in result.error
    result = cli("partition", *SIM, *named, profiled.costs, "--threads", 2, tiny)
    assert result.code == 1
    assert "were never measured on this device's CPU with 2 threads" in result.error
    assert "run `nnapi-prof profile --threads 2` with the same model" in result.error


# ---- the bundle --------------------------------------------------------------------------------


def test_a_bundle_that_is_none(cli: Cli, tiny: Path, tmp_path: Path) -> None:
    for command in ("run", "report"):
        for path in (tmp_path, tiny):
            result = cli(command, path)
            assert result.code == 2
            assert result.error == f"{path} is no bundle: `nnapi-prof partition` makes one"
        result = cli(command, tmp_path / "absent")
        assert result.code == 2
        assert result.error == (
            f"bundle {tmp_path / 'absent'} does not exist: `nnapi-prof partition` makes one"
        )


def edit(**changes: object) -> Callable[[Path], None]:
    """Changes members of the manifest."""

    def change(bundle: Path) -> None:
        manifest = bundle / "manifest.json"
        data = json.loads(manifest.read_text())
        manifest.write_text(json.dumps({**data, **changes}))

    return change


def flip(pattern: str) -> Callable[[Path], None]:
    """Changes one byte of the first file that matches."""

    def change(bundle: Path) -> None:
        file = min(bundle.glob(pattern))
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)

    return change


def remove(pattern: str) -> Callable[[Path], None]:
    return lambda bundle: min(bundle.glob(pattern)).unlink()


DAMAGES = [
    (lambda bundle: (bundle / "manifest.json").write_text("{"), "Expecting property name"),
    (lambda bundle: (bundle / "manifest.json").write_text("[]"), "is no nnapi-prof-bundle"),
    (lambda bundle: (bundle / "manifest.json").write_bytes(b"\xff\xfe"), "Expecting value"),
    (edit(format="tarball"), "manifest.json is no nnapi-prof-bundle"),
    (edit(version="2"), f"manifest.json has version '2', {VERSION} is read"),
    (edit(threads=7), "manifest.json was changed after it was written"),
    (edit(plans=[]), "manifest.json was changed after it was written"),
    (flip("regions/*"), "CRC-32"),
    (flip("blobs/*"), "its bytes have another hash"),
    (remove("regions/*"), "is no file of its own"),
    (remove("blobs/*"), "is no file of its own"),
]


@pytest.mark.parametrize(("damage", "words"), DAMAGES)
def test_a_damaged_bundle(
    cli: Cli, profiled: Profiled, damage: Callable[[Path], None], words: str
) -> None:
    damage(profiled.bundle)
    for command in (["run", *SIM], ["report", "--costs", profiled.costs]):
        result = cli(*command, profiled.bundle)
        assert result.code == 1 and result.out == ""
        assert result.error.startswith(f"{profiled.bundle}: the bundle is damaged (")
        assert words in result.error
        assert result.error.endswith("make it again with `nnapi-prof partition`")
    # And so it is done: partition writes over it.
    named = (*SIM, "--input", INPUT, "--costs", profiled.costs, "--output", profiled.bundle)
    if (profiled.bundle / "manifest.json").is_file():
        assert cli("partition", *named, profiled.model).code == 0
        assert cli("run", *SIM, "--runs", 2, profiled.bundle).code == 0


def test_a_bundle_of_another_phone(cli: Cli, tmp_path: Path) -> None:
    costs, bundle = tmp_path / "costs.sqlite", tmp_path / "large.nnprof"
    # So much work that the plan goes to the NPU, which the other phone lacks.
    heavy = nn.Sequential(nn.Conv2d(3, 64, 3), nn.Conv2d(64, 64, 3), nn.Conv2d(64, 64, 3))
    model = trace(heavy, tmp_path / "heavy.pt", (1, 3, 56, 56))
    named = (*SIM, "--input", "1x3x56x56", "--costs", costs)
    only = ("--accelerator", "sim-npu", "--preference", "fast")
    assert cli("profile", *named, *only, model).code == 0
    assert cli("partition", *named, "--output", bundle, model).code == 0
    result = cli("run", "--device", "sim:gpu-phone", bundle)
    assert result.code == 2
    assert result.error.startswith(f"{bundle} was made for simulated npu-phone")
    assert "runs on its sim-npu: simulated gpu-phone" in result.error
    assert "has sim-gpu, nnapi-reference; choose the right device with --device" in result.error
    # Before the model is loaded, which would tell that it takes no such input.
    again = cli("run", "--device", "sim:gpu-phone", "--input", "7x7", bundle)
    assert again.code == 2 and again.error == result.error


def test_a_bundle_for_another_phone_that_runs_nevertheless(cli: Cli, profiled: Profiled) -> None:
    result = cli("run", "--device", "sim:gpu-phone", "--runs", 2, profiled.bundle)
    assert result.code == 0
    assert f"note: {profiled.bundle} was made for simulated npu-phone" in result.err
    assert "predictions are for that device, not this" in result.out
    assert "Plan, latency in ms, simulated" in result.out
    assert "predicted (simulated)" not in result.out


def test_only_what_is_simulated_is_labelled_so(cli: Cli, profiled: Profiled) -> None:
    result = cli("run", "--device", "local", "--runs", 2, profiled.bundle)
    assert result.code == 0
    assert "latency in ms, simulated" not in result.out
    assert result.out.count("predicted (simulated)") == 2  # the plan's table, and its baselines'
    assert "measured (simulated)" not in result.out and "compile (simulated)" not in result.out


@pytest.mark.parametrize(
    ("version", "words"),
    [
        (99, f"a newer nnapi-prof (its version is 99, {VERSION} is read): update nnapi-prof, or"),
        (1, f"an older nnapi-prof (its version is 1, {VERSION} is read): make it again"),
    ],
)
def test_a_bundle_of_another_version(
    cli: Cli, profiled: Profiled, version: int, words: str
) -> None:
    edit(version=version)(profiled.bundle)
    for command in (["run", *SIM], ["report", "--costs", profiled.costs]):
        result = cli(*command, profiled.bundle)
        assert result.code == 1 and result.out == ""
        assert result.error.startswith(f"{profiled.bundle}: the bundle was made by {words}")


def test_a_bundle_without_its_model(cli: Cli, profiled: Profiled) -> None:
    (profiled.bundle / "model.pt").unlink()
    result = cli("run", *SIM, profiled.bundle)
    assert result.code == 1
    assert f"{profiled.bundle}: the bundle is damaged (model.pt is missing)" in result.error


def test_a_run_report_that_is_none(cli: Cli, profiled: Profiled) -> None:
    for text in ("{", "[]", '{"runs": 3}'):
        (profiled.bundle / "run.json").write_text(text)
        result = cli("report", "--costs", profiled.costs, profiled.bundle)
        assert result.code == 1
        assert f"{profiled.bundle / 'run.json'}: this is no run report" in result.error
        assert "`nnapi-prof run` makes it again" in result.error


def test_a_report_needs_the_costs_of_the_plan(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    empty = tmp_path / "empty.sqlite"
    result = cli("report", "--costs", empty, profiled.bundle)
    assert result.code == 2 and f"cost table {empty} does not exist" in result.error
    CostStore(empty).close()
    result = cli("report", "--costs", empty, profiled.bundle)
    assert result.code == 1
    assert f"cost table {empty} has nothing of simulated npu-phone (" in result.error
    assert "name that table with --costs" in result.error


def test_outputs_that_differ_fail(cli: Cli, profiled: Profiled) -> None:
    result = cli("run", *SIM, "--runs", 2, "--tolerance", 0, profiled.bundle)
    assert result.code == 1
    assert "differs from eager PyTorch by" in result.error
    assert "DIFFERS from eager PyTorch" in result.out


def test_a_cache_that_cannot_be_written_to(
    cli: Cli, profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NNAPI_PROF_CACHE_DIR", "/proc/absent")
    result = cli("run", *SIM, profiled.bundle)
    assert result.code == 1
    assert result.error.startswith("the agent cannot be built in /proc/absent: No such file or dir")
    assert result.error.endswith("in NNAPI_PROF_CACHE_DIR")


# ---- where results go --------------------------------------------------------------------------


def test_places_that_cannot_be_written_to(cli: Cli, profiled: Profiled, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    for place in (Path("/proc/out"), tmp_path / "file" / "out"):
        named = ("--input", INPUT, "--output", place)
        result = cli("partition", *SIM, "--costs", profiled.costs, *named, profiled.model)
        assert result.code == 2 and f"cannot write {place}: " in result.error
        result = cli("report", "--costs", profiled.costs, "--output", place, profiled.bundle)
        assert result.code == 2 and f"cannot write the report {place}: " in result.error
        result = cli("convert", *named, profiled.model)
        assert result.code == 2 and f"cannot write {place}: " in result.error
    assert (tmp_path / "file").read_text() == "in the way"


def test_partition_writes_over_nothing_but_bundles(
    cli: Cli, profiled: Profiled, tmp_path: Path
) -> None:
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.tex").write_text("all of it")
    named = ("--input", INPUT, "--costs", profiled.costs, "--output", precious)
    result = cli("partition", *SIM, *named, profiled.model)
    assert result.code == 2
    assert f"{precious} exists and is no bundle: name another --output" in result.error
    assert [p.name for p in precious.iterdir()] == ["thesis.tex"]


def test_a_result_that_cannot_be_kept(cli: Cli, profiled: Profiled) -> None:
    """What was measured is shown even where it cannot be written down."""
    (profiled.bundle / "run.json").mkdir()
    result = cli("run", *SIM, "--runs", 2, profiled.bundle)
    assert result.code == 1
    assert result.error == f"{profiled.bundle / 'run.json'}: Is a directory"
    assert "agrees with eager PyTorch" in result.out


def test_commands_inside_the_bundle(
    cli: Cli, profiled: Profiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(profiled.bundle)
    assert cli("run", *SIM, "--runs", 2, ".").code == 0
    result = cli("report", "--costs", profiled.costs, ".")
    assert (result.code, result.out.strip()) == (0, str(profiled.bundle.with_suffix(".html")))
