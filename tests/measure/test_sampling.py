"""Which regions and targets are measured before there is a plan, and how much is left after it."""

from types import SimpleNamespace

import pytest

from nnapi_prof.costs.measurement import Kind
from nnapi_prof.execution.profile.jobs import TargetSpec
from nnapi_prof.execution.profile.regions import (
    chain_regions,
    far_slower_targets,
    first_targets,
    promising_targets,
    sample_units,
    trial_units,
)
from nnapi_prof.execution.profile.unit_session import REFINING, expected_later
from nnapi_prof.graph.plan import AUTO, CPU, Preference, Target
from tests.costs.graphs import chain_graph, row
from tests.measure.programs import chain

FAST = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
LOW = Target.nnapi("npu", Preference.LOW_POWER)
SUSTAINED = Target.nnapi("npu", Preference.SUSTAINED_SPEED)
SPECS = [TargetSpec(target, 30) for target in (CPU, LOW, FAST, SUSTAINED)]


def test_one_chain_for_each_pair_of_kinds_and_runs_up_to_the_whole():
    graph = chain("relu", "tanh", "relu", "tanh", "sigmoid", "floor").units
    result = {region: kind for kind, region in chain_regions(graph)}
    assert list(result) == sorted(result)
    pairs = [(0, 1), (1, 2), (3, 4), (4, 5)]  # relu, tanh; tanh, relu; and so on
    assert set(result) == {*pairs, (0, 1, 2, 3), (0, 1, 2, 3, 4, 5)}
    assert result[0, 1, 2, 3, 4, 5] is Kind.REGION and result[0, 1] is Kind.CHAIN
    assert list(chain_regions(chain("relu").units)) == []
    ten = {region for _, region in chain_regions(chain(*["relu"] * 10).units)}
    assert ten == {(0, 1), (0, 1, 2, 3), tuple(range(2, 10)), tuple(range(10))}


def test_a_sample_from_the_lightest_to_the_heaviest():
    assert sample_units(chain_graph([8] * 3)) == (0, 1)
    sample = sample_units(chain_graph([8] * 21))
    assert len(sample) == 3 and sample[0] == 0 and sample[-1] == 19


def test_the_leading_preference_is_fast_where_it_is_there():
    assert first_targets(SPECS) == {CPU, FAST}
    assert first_targets(SPECS[:2]) == {CPU, LOW}


def test_a_preference_must_promise_something():
    graph = chain_graph([8] * 7)

    def found(*ns):
        rows = [row(graph, (u,), FAST, 100) for u in range(6)]
        rows += [row(graph, (u,), LOW, each) for u, each in enumerate(ns)]
        return promising_targets(SPECS[:3], first_targets(SPECS), rows)

    assert found(100, 101, 99.5, 150) == frozenset()
    assert found(100, 130, 120, 80) == {LOW}  # much faster for one unit
    assert found(98, 98, 97, 98) == {LOW}
    assert found(100) == {LOW}  # one unit tells no ratio


REFERENCE = Target.nnapi("nnapi-reference", Preference.FAST_SINGLE_ANSWER)
OWN_CHOICE = Target.nnapi(AUTO, Preference.FAST_SINGLE_ANSWER)


def test_a_trial_has_the_sample_and_the_heaviest_of_each_kind():
    graph = chain("relu", "tanh", *["relu"] * 9, "sigmoid", "floor", "relu").units
    result = trial_units(graph)
    assert set(sample_units(graph)) <= set(result) and list(result) == sorted(result)
    kinds = {graph.units[u].label.partition(" ")[0] for u in result}
    assert kinds == {unit.label.partition(" ")[0] for unit in graph.units}
    signatures = [graph.units[u].signature for u in result]
    assert len(set(signatures)) == len(signatures) <= 6


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
    return far_slower_targets([names[name] for name in ns], rows)


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
    npu, reference = (200, 215, None), (12, 300, 900)
    cpu = (10, 100, 400)
    assert OWN_CHOICE in after_trial(cpu=cpu, npu=npu, reference=reference, auto=(12.2, 217, 899))
    assert OWN_CHOICE in after_trial(cpu=cpu, npu=npu, reference=reference, auto=(200, 300, 899))
    assert OWN_CHOICE not in after_trial(cpu=cpu, npu=npu, reference=reference, auto=(12, 180, 899))
    assert OWN_CHOICE not in after_trial(cpu=cpu, auto=(12, 300, 900))  # nothing to choose from


def jobs(name: str, n: int) -> list[SimpleNamespace]:
    return [
        SimpleNamespace(key=f"{name}{i}{target}", spec=SimpleNamespace(target=target))
        for i in range(n)
        for target in (CPU, FAST, LOW)
    ]


UNITS, CHAINS = jobs("u", 20), jobs("c", 5)


@pytest.mark.parametrize(("refine", "last"), [(True, round(REFINING * (40 + 10))), (False, 0)])
def test_chains_on_leading_targets_and_a_share_for_refining(refine, last):
    later = expected_later(UNITS, CHAINS, {CPU, FAST}, set(), refine=refine)
    after_units = {"units": 10 + last, "preferences": 10 + last, "chains": last}
    assert later == {"trial": 40 + 10 + last, **after_units}


def test_nothing_after_what_is_known():
    have = {job.key for job in UNITS + CHAINS}
    later = expected_later(UNITS, CHAINS, {CPU, FAST}, have, refine=True)
    assert set(later.values()) == {0}
