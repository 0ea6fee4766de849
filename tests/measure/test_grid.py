"""What is measured: targets of a device, regions of a graph, each job once."""

from dataclasses import replace

import pytest

from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.device.protocol import Accelerator, AgentInfo, NnapiInfo
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile.jobs import device_targets, grid
from nnapi_prof.execution.profile.regions import unit_regions
from nnapi_prof.graph.plan import Preference
from nnapi_prof.nnapi import functions_by_api
from tests.measure.programs import chain
from tests.measure.scripted import NPU, info

GPU = Accelerator("gpu:0/a", "GPU", "2", 1000007)


def test_every_accelerator_and_auto_under_every_preference():
    specs = device_targets(info(NPU, GPU))
    keys = [spec.target.key for spec in specs]
    assert keys[0] == "cpu" and len(keys) == len(set(keys)) == 1 + 3 * 3
    assert levels(info(NPU, GPU)) == {None: 30, "npu": 29, "gpu:0/a": 30, "auto": 30}
    versions = {spec.target.accelerator: spec.driver_version for spec in specs}
    assert versions == {None: "", "npu": "1.0", "gpu:0/a": "2", "auto": "gpu:0/a=2;npu=1.0"}


def levels(device: AgentInfo) -> dict[str | None, int]:
    return {spec.target.accelerator: spec.level for spec in device_targets(device)}


def test_a_device_without_nnapi_has_its_cpu():
    assert levels(replace(info(), nnapi=NnapiInfo(None, "no library", (), ()))) == {None: 30}


def test_an_old_android_without_named_devices_has_auto():
    specs = device_targets(replace(info(), api_level=27), [Preference.LOW_POWER])
    assert [(s.target.key, s.level) for s in specs] == [("cpu", 30), ("nnapi:auto/low_power", 27)]


BEYOND = Accelerator("nnapi-reference", "CPU", "Q", 10000)


@pytest.mark.parametrize(("api", "level"), [(29, 29), (30, 30), (34, 30)])
def test_a_cpu_whose_level_is_none_has_the_devices(api, level):
    """Android 10 reports 10000 for its CPU."""
    own = {"nnapi-reference": level, "npu": 29, "auto": level}
    assert levels(replace(info(BEYOND, NPU), api_level=api)) == {None: 30, **own}


@pytest.mark.parametrize(
    ("missing", "level"),
    [((30, 31), 29), ((31,), 30), ((), 30), ((28, 29, 30, 31), 27), ((29, 30, 31), 28)],
)
def test_without_an_api_level_the_functions_tell(missing, level):
    names = tuple(name for api in missing for name in sorted(functions_by_api()[api]))
    nnapi = NnapiInfo("libneuralnetworks.so", None, names, (BEYOND,))
    own = {"nnapi-reference": level, "auto": level}
    assert levels(replace(info(), api_level=None, nnapi=nnapi)) == {None: 30, **own}


def test_filters():
    fast = [Preference.FAST_SINGLE_ANSWER]
    keys = [s.target.key for s in device_targets(info(NPU, GPU), fast, ["npu"])]
    assert keys == ["cpu", "nnapi:npu/fast"]
    with pytest.raises(UsageError, match=r"no accelerator 'tpu'.*npu, gpu:0/a, auto"):
        device_targets(info(NPU, GPU), fast, ["tpu"])


def test_equal_signatures_once_and_alternatives_in_a_row():
    graph = chain("relu", "tanh", "relu", "tanh", "sigmoid").units
    matcher = RegionMatcher(graph)
    specs = device_targets(info(NPU))
    jobs = grid(matcher, unit_regions(graph), specs, Conditions(), "1")
    assert len(jobs) == 3 * len(specs)
    assert [job.region for job in jobs[:: len(specs)]] == [(0,), (1,), (4,)]
    assert [job.spec for job in jobs[: len(specs)]] == list(specs)


def test_conditions_concern_only_their_engine():
    graph = chain("relu").units
    specs = device_targets(info(NPU), [Preference.FAST_SINGLE_ANSWER], ["npu"])
    conditions = Conditions(Precision.RELAXED, Mode.BURST, threads=4, cpus="all")
    cpu, npu = grid(RegionMatcher(graph), unit_regions(graph), specs, conditions, "1")
    assert cpu.conditions == Conditions(Precision.RELAXED, threads=4, cpus="all")
    assert npu.conditions == Conditions(Precision.RELAXED, Mode.BURST, cpus="all")
    assert npu.key[2:6] == ("relaxed", "burst", 1, "all")
    assert npu.key.driver_version == "1.0" and cpu.key.driver_version == ""
