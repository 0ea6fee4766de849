"""A plan's file timed against those of rules: the fastest is written, and called so."""

import json

import pytest
import torch
from click.testing import CliRunner

import nnapi_prof
from nnapi_prof.cli import cli
from nnapi_prof.costs.measurement import Status
from nnapi_prof.errors import UsageError

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

from nnapi_prof.executorch import fastest, lower
from nnapi_prof.executorch.rivals import made_on

SLOW = "nnapi:nnapi-reference/fast"


@pytest.fixture(scope="module")
def slow_plan(picture_model, tmp_path_factory):
    """What a user has who pins it all to the slowest accelerator of this host."""
    folder = tmp_path_factory.mktemp("local")
    model = nnapi_prof.load(picture_model)
    costs = nnapi_prof.profile(
        model, device="local", options=nnapi_prof.MeasureOptions(runs=2), costs=folder / "costs.db"
    )
    return nnapi_prof.partition(
        model, costs, nnapi_prof.Latency(pin={"conv2d*": SLOW, "tanh*": "cpu"})
    )


@pytest.mark.slow("files are timed in turns, for real")
def test_on_this_host_files_run_in_turns_and_the_fastest_is_the_answer(slow_plan):
    choice = fastest(slow_plan)
    assert choice.device == "local" and not choice.simulated_times
    names = [file.name for file in choice.files]
    assert {"plan", "xnnpack"} <= set(names)
    assert all(file.status is Status.OK for file in choice.files), choice.frame()
    assert choice.median_ns == min(file.median_ns for file in choice.files)
    assert all(len(file.rounds_ns) > 1 and file.buffer for file in choice.files)
    xnnpack = choice.files[names.index("xnnpack")]
    assert set(xnnpack.backends) == {"XnnpackBackend"}


@pytest.mark.parametrize("options", [(), ("--device", "sim:gpu-phone")])
def test_convert_times_a_bundle_by_the_simulated_driver(picture_plan, tmp_path, options):
    bundle = picture_plan.save(tmp_path / "pictures.nnprof")
    path = tmp_path / "pictures.pte"
    command = ["convert", "--json", "--to", "executorch", *options, "-o", str(path), str(bundle)]
    done = CliRunner().invoke(cli, command)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    compared = document["executorch"]
    assert compared["device"] == "sim:gpu-phone" and compared["simulated_times"]
    times = {file["name"]: file["median_ns"] for file in compared["files"]}
    assert compared["chosen"] == min(times, key=times.__getitem__)
    assert len(times) > 1 and path.stat().st_size == document["files"][0]["n_bytes"]


def test_the_table_says_that_times_are_simulated(picture_plan, tmp_path):
    bundle = picture_plan.save(tmp_path / "pictures.nnprof")
    done = CliRunner().invoke(cli, ["convert", "--to", "executorch", str(bundle)])
    assert done.exit_code == 0, done.output
    assert "simulated latency in ms" in done.stdout and "note: times are simulated" in done.stdout


def test_a_plan_of_another_device_is_the_plans_file(picture_plan, tmp_path, monkeypatch):
    monkeypatch.setattr("nnapi_prof.executorch.rivals.made_on", lambda planned: None)
    bundle = picture_plan.save(tmp_path / "pictures.nnprof")
    done = CliRunner().invoke(cli, ["convert", "--json", "--to", "executorch", str(bundle)])
    document = json.loads(done.stdout)
    assert document["executorch"] is None and len(document["regions"]) == 2
    assert "not timed" in document["notes"][0]
    with pytest.raises(UsageError, match="cannot be timed from here"):
        fastest(picture_plan, "192.0.2.1:5555")


def test_a_plan_knows_the_simulated_phone_that_it_was_made_on(picture_plan, tmp_path):
    planned = nnapi_prof.read_plan(picture_plan.save(tmp_path / "pictures.nnprof"))
    assert made_on(planned) == "sim:gpu-phone"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--as-planned",), "is for --to executorch of a bundle"),
        (("--to", "executorch", "--seconds", "3"), "is for --partitioners"),
    ],
)
def test_options_that_have_no_meaning(picture_plan, tmp_path, options, words):
    bundle = picture_plan.save(tmp_path / "pictures.nnprof")
    done = CliRunner().invoke(cli, ["convert", *options, str(bundle)])
    assert isinstance(done.exception, UsageError) and words in str(done.exception)


class Sorted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sort(x * 2, -1)[0]


def test_what_executorch_has_no_kernel_of_is_not_written(tmp_path):
    """It would not load: of a simulated phone's bundle no file is run here."""
    torch.export.save(torch.export.export(Sorted(), (torch.rand(2, 9),)), tmp_path / "net.pt2")
    model = nnapi_prof.load(tmp_path / "net.pt2")
    costs = nnapi_prof.profile(
        model,
        device="sim:gpu-phone",
        options=nnapi_prof.MeasureOptions(runs=2),
        costs=tmp_path / "costs.db",
    )
    plan = nnapi_prof.partition(model, costs, nnapi_prof.Latency(pin={"*": "cpu"}))
    with pytest.raises(UsageError, match=r"no kernel of aten::sort\.values, which dp of net"):
        lower(plan)
    choice = fastest(plan)  # a rule that has NNAPI sort
    refused = {file.name: file.status for file in choice.files if not file.rounds_ns}
    assert refused["plan"] is Status.REFUSED and choice.file.backends["NnapiBackend"] == 1


class Nearby(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.nextafter(x, y)


def test_what_executorch_cannot_lower_is_said_in_a_sentence(tmp_path):
    example = (torch.rand(2, 9), torch.rand(2, 9))
    torch.export.save(torch.export.export(Nearby(), example), tmp_path / "net.pt2")
    model = nnapi_prof.load(tmp_path / "net.pt2")
    costs = nnapi_prof.profile(
        model,
        device="sim:gpu-phone",
        options=nnapi_prof.MeasureOptions(runs=2),
        costs=tmp_path / "costs.db",
    )
    with pytest.raises(UsageError, match=r"ExecuTorch cannot lower dp of net: .*nextafter"):
        lower(nnapi_prof.partition(model, costs))
