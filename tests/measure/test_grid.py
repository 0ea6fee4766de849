"""What is measured: targets of a device, regions of a graph, each job once; which of them before
there is a plan, and how much is left after it."""

from dataclasses import replace
from functools import partial
from types import SimpleNamespace

import pytest

from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.measurement import Kind
from nnapi_prof.costs.model.fit import RegionMatcher
from nnapi_prof.device.protocol import Accelerator, AgentInfo, NnapiInfo
from nnapi_prof.errors import UsageError
from nnapi_prof.execution.profile import regions
from nnapi_prof.execution.profile.jobs import TargetSpec, device_targets, grid
from nnapi_prof.execution.profile.unit_session import REFINING, expected_later
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target
from nnapi_prof.nnapi import functions_by_api
from tests.costs.graphs import chain_graph, row
from tests.measure.programs import chain
from tests.measure.scripted import NPU, info

GPU = Accelerator("gpu:0/a", "GPU", "2", 1000007)


def levels(device: AgentInfo) -> dict[str | None, int]:
    return {spec.target.accelerator: spec.level for spec in device_targets(device)}


def test_every_accelerator_and_auto_under_every_preference():
    specs = device_targets(info(NPU, GPU))
    keys = [spec.target.key for spec in specs]
    assert keys[0] == "cpu" and len(keys) == len(set(keys)) == 1 + 3 * 3
    assert levels(info(NPU, GPU)) == {None: 30, "npu": 29, "gpu:0/a": 30, "auto": 30}
    versions = {spec.target.accelerator: spec.driver_version for spec in specs}
    assert versions == {None: "", "npu": "1.0", "gpu:0/a": "2", "auto": "gpu:0/a=2;npu=1.0"}


def test_without_nnapi_there_is_the_cpu_and_an_old_android_without_named_devices_has_auto():
    assert levels(replace(info(), nnapi=NnapiInfo(None, "no library", (), ()))) == {None: 30}
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
    graph, specs = chain("relu", "tanh", "relu", "tanh", "sigmoid").units, device_targets(info(NPU))
    jobs = grid(RegionMatcher(graph), regions.unit_regions(graph), specs, Conditions(), "1")
    assert len(jobs) == 3 * len(specs)
    assert [job.region for job in jobs[:: len(specs)]] == [(0,), (1,), (4,)]
    assert [job.spec for job in jobs[: len(specs)]] == list(specs)


def test_conditions_concern_only_their_engine():
    graph = chain("relu").units
    specs = device_targets(info(NPU), [Preference.FAST_SINGLE_ANSWER], ["npu"])
    conditions = Conditions(Precision.RELAXED, Mode.BURST, threads=4, cpus="all")
    cpu, npu = grid(RegionMatcher(graph), regions.unit_regions(graph), specs, conditions, "1")
    assert cpu.conditions == Conditions(Precision.RELAXED, threads=4, cpus="all")
    assert npu.conditions == Conditions(Precision.RELAXED, Mode.BURST, cpus="all")
    assert npu.key[2:6] == ("relaxed", "burst", 1, "all")
    assert npu.key.driver_version == "1.0" and cpu.key.driver_version == ""


# ---- before there is a plan, and after it --------------------------------------------------------

LOW, FAST, SUSTAINED = (Target.nnapi("npu", preference) for preference in Preference)
SPECS = [TargetSpec(target, 30) for target in (CPU, LOW, FAST, SUSTAINED)]


def test_one_chain_for_each_pair_of_kinds_and_runs_up_to_the_whole():
    graph = chain("relu", "tanh", "relu", "tanh", "sigmoid", "floor").units
    result = {region: kind for kind, region in regions.chain_regions(graph)}
    assert list(result) == sorted(result)
    pairs = [(0, 1), (1, 2), (3, 4), (4, 5)]  # relu, tanh; tanh, relu; and so on
    assert set(result) == {*pairs, (0, 1, 2, 3), (0, 1, 2, 3, 4, 5)}
    assert result[0, 1, 2, 3, 4, 5] is Kind.REGION and result[0, 1] is Kind.CHAIN
    assert list(regions.chain_regions(chain("relu").units)) == []
    ten = {region for _, region in regions.chain_regions(chain(*["relu"] * 10).units)}
    assert ten == {(0, 1), (0, 1, 2, 3), tuple(range(2, 10)), tuple(range(10))}


def test_a_trial_has_a_sample_of_all_weights_and_the_heaviest_of_each_kind():
    assert regions.sample_units(chain_graph([8] * 3)) == (0, 1)
    sample = regions.sample_units(chain_graph([8] * 21))
    assert len(sample) == 3 and sample[0] == 0 and sample[-1] == 19
    graph = chain("relu", "tanh", *["relu"] * 9, "sigmoid", "floor", "relu").units
    result = regions.trial_units(graph)
    assert set(regions.sample_units(graph)) <= set(result) and list(result) == sorted(result)
    kinds = {graph.units[u].label.partition(" ")[0] for u in result}
    assert kinds == {unit.label.partition(" ")[0] for unit in graph.units}
    signatures = [graph.units[u].signature for u in result]
    assert len(set(signatures)) == len(signatures) <= 6


def test_the_leading_preference_is_fast_and_another_must_promise_something():
    assert regions.first_targets(SPECS) == {CPU, FAST}
    assert regions.first_targets(SPECS[:2]) == {CPU, LOW}
    graph = chain_graph([8] * 7)

    def found(*ns):
        rows = [row(graph, (u,), FAST, 100) for u in range(6)]
        rows += [row(graph, (u,), LOW, each) for u, each in enumerate(ns)]
        return regions.promising_targets(SPECS[:3], regions.first_targets(SPECS), rows)

    assert found(100, 101, 99.5, 150) == frozenset()
    assert found(100, 130, 120, 80) == {LOW}  # much faster for one unit
    assert found(98, 98, 97, 98) == {LOW}
    assert found(100) == {LOW}  # one unit tells no ratio


REFERENCE = Target.nnapi("nnapi-reference", Preference.FAST_SINGLE_ANSWER)
OWN_CHOICE = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)


def after_trial(**ns: tuple[float | None, ...]) -> frozenset[Target]:
    """Targets behind after a trial; None is a unit that does not run."""
    names = {"cpu": CPU, "npu": FAST, "reference": REFERENCE, "auto": OWN_CHOICE}
    graph = chain_graph([8] * 6)
    rows = [
        row(graph, (u,), names[name], each)
        for name, values in ns.items()
        for u, each in enumerate(values)
        if each is not None
    ]
    return regions.far_slower_targets([names[name] for name in ns], rows)


def test_an_accelerator_lies_behind_where_its_heavy_units_are_slow():
    assert after_trial(cpu=(10, 100, 400), reference=(20, 300, 900)) == {REFERENCE}
    assert after_trial(cpu=(10, 100, 400), reference=(20, 150, 500)) == frozenset()  # not by far
    # Faster for one unit:
    assert after_trial(cpu=(10, 100, 400), reference=(20, 900, 390)) == frozenset()
    # Invocations are shared by all units of a segment, so that they say nothing:
    assert after_trial(cpu=(10, 20, 15), npu=(200, 215, 210)) == frozenset()
    assert after_trial(cpu=(10, 100, 400), npu=(200, 215, 450)) == frozenset()
    # It runs what the CPU does not:
    assert after_trial(cpu=(10, None, 400), npu=(20, 300, 900)) == frozenset()
    assert after_trial(cpu=(10, 100, 400), npu=(None, None, None)) == frozenset()


def test_nnapis_own_choice_lies_behind_where_it_is_one_of_the_others():
    cpu = (10, 100, 400)
    trial = partial(after_trial, cpu=cpu, npu=(200, 215, None), reference=(12, 300, 900))
    assert OWN_CHOICE in trial(auto=(12.2, 217, 899))
    assert OWN_CHOICE in trial(auto=(200, 300, 899))
    assert OWN_CHOICE not in trial(auto=(12, 180, 899))
    assert OWN_CHOICE not in after_trial(cpu=cpu, auto=(12, 300, 900))  # nothing to choose from


def jobs(name: str, n: int) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(key=f"{name}{i}{target}", spec=SimpleNamespace(target=target))
        for i in range(n)
        for target in (CPU, FAST, LOW)
    ]


@pytest.mark.parametrize(("refine", "last"), [(True, round(REFINING * (40 + 10))), (False, 0)])
def test_chains_on_leading_targets_and_a_share_for_refining(refine, last):
    units, chains = jobs("u", 20), jobs("c", 5)
    later = expected_later(units, chains, {CPU, FAST}, set(), refine=refine)
    after_units = {"units": 10 + last, "preferences": 10 + last, "chains": last}
    assert later == {"trial": 40 + 10 + last, **after_units}
    have = {job.key for job in units + chains}
    rest = expected_later(units, chains, {CPU, FAST}, have, refine=refine)
    assert set(rest.values()) == {0}
