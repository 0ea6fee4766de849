"""A plan's file timed against those of rules: the fastest is written, and called so."""

import json

import pytest
import torch

import nnapi_prof
from nnapi_prof.costs.measurement import Status
from nnapi_prof.errors import UsageError
from tests.executorch.common import convert, exported, profiled_plan, refusal
from tests.models import Function

pytest.importorskip("executorch", reason="no executorch: pip install -e '.[executorch]'")

from nnapi_prof.executorch import fastest, lower
from nnapi_prof.executorch.rivals import made_on


@pytest.fixture(scope="module")
def slow_plan(picture_model, tmp_path_factory):
    """What a user has who pins it all to the slowest accelerator of this host."""
    model, folder = nnapi_prof.load(picture_model), tmp_path_factory.mktemp("local")
    pins = {"conv2d*": "nnapi:nnapi-reference/fast", "tanh*": "cpu"}
    return profiled_plan(model, folder, pins, "local")


@pytest.fixture
def bundle(picture_plan, tmp_path):
    return picture_plan.save(tmp_path / "pictures.nnprof")


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
def test_convert_times_a_bundle_by_the_simulated_driver(bundle, tmp_path, options):
    path = tmp_path / "pictures.pte"
    document = json.loads(convert("--json", *options, "-o", path, bundle))
    compared = document["executorch"]
    assert compared["device"] == "sim:gpu-phone" and compared["simulated_times"]
    times = {file["name"]: file["median_ns"] for file in compared["files"]}
    assert compared["chosen"] == min(times, key=times.__getitem__)
    assert len(times) > 1 and path.stat().st_size == document["files"][0]["n_bytes"]


def test_the_table_says_that_times_are_simulated(bundle):
    table = convert(bundle)
    assert "simulated latency in ms" in table and "note: times are simulated" in table


def test_a_plan_of_another_device_is_the_plans_file(bundle, picture_plan, monkeypatch):
    monkeypatch.setattr("nnapi_prof.executorch.rivals.made_on", lambda planned: None)
    document = json.loads(convert("--json", bundle))
    assert document["executorch"] is None and len(document["regions"]) == 2
    assert "not timed" in document["notes"][0]
    with pytest.raises(UsageError, match="cannot be timed from here"):
        fastest(picture_plan, "192.0.2.1:5555")


def test_a_plan_knows_the_simulated_phone_that_it_was_made_on(bundle):
    assert made_on(nnapi_prof.read_plan(bundle)) == "sim:gpu-phone"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--as-planned",), "is for --to executorch of a bundle"),
        (("--to", "executorch", "--seconds", "3"), "is for --partitioners"),
    ],
)
def test_options_that_have_no_meaning(bundle, options, words):
    assert words in refusal("convert", *options, bundle)


def test_what_executorch_has_no_kernel_of_is_not_written(tmp_path):
    """It would not load: of a simulated phone's bundle no file is run here."""
    sort = Function(lambda x: torch.sort(x * 2, -1)[0])
    model = exported(sort, tmp_path / "net.pt2", torch.rand(2, 9))
    plan = profiled_plan(model, tmp_path, {"*": "cpu"})
    with pytest.raises(UsageError, match=r"no kernel of aten::sort\.values, which dp of net"):
        lower(plan)
    choice = fastest(plan)  # a rule that has NNAPI sort
    refused = {file.name: file.status for file in choice.files if not file.rounds_ns}
    assert refused["plan"] is Status.REFUSED and choice.file.backends["NnapiBackend"] == 1


def test_what_executorch_cannot_lower_is_said_in_a_sentence(tmp_path):
    model = exported(Function(torch.ops.aten.nextafter), tmp_path / "net.pt2", *torch.rand(2, 2, 9))
    with pytest.raises(UsageError, match=r"ExecuTorch cannot lower dp of net: .*nextafter"):
        lower(profiled_plan(model, tmp_path, {}))
