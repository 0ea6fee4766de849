"""Conditions: which engine they concern, how they are said and spelt."""

import argparse
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nnapi_prof.costs import ALL, BIG, CONDITIONAL, ConditionOptions, Conditions, Mode, parse_cpus
from nnapi_prof.errors import UsageError
from nnapi_prof.graph.plan import CPU, CPU_ALONE, Preference, Target

CONDITIONS = st.builds(
    Conditions,
    st.sampled_from(CONDITIONAL),
    st.sampled_from(Mode),
    st.integers(1, 64),
    st.sampled_from([BIG, ALL]) | st.integers(1, 2**64 - 1).map(hex),
)


@given(CONDITIONS)
def test_there_and_back(conditions):
    assert Conditions.from_json(conditions.to_json()) == conditions
    parser = argparse.ArgumentParser()
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--mode", default="sync")
    parser.add_argument("--cpus", type=parse_cpus, default=BIG)
    for flag in ("--relaxed", "--float16"):
        parser.add_argument(flag, action="store_true")
    asked = ConditionOptions(**vars(parser.parse_args(conditions.options.split())))
    assert asked.conditions == conditions and ConditionOptions.of(conditions) == asked


@given(CONDITIONS)
def test_a_target_has_its_own_conditions(conditions):
    accelerator = Target.nnapi("npu", Preference.LOW_POWER)
    cpu, nnapi = conditions.on(CPU), conditions.on(accelerator)
    assert cpu == Conditions(conditions.precision, threads=conditions.threads, cpus=conditions.cpus)
    assert (nnapi.precision, nnapi.mode) == (conditions.precision, conditions.mode)
    assert (nnapi.threads, nnapi.cpus) == (1, conditions.cpus)
    assert cpu.on(CPU) == cpu and nnapi.on(accelerator) == nnapi
    assert conditions.on(CPU_ALONE) == replace(cpu, threads=1)


@pytest.mark.parametrize(("text", "wanted"), [("0XF0", "0xf0"), ("0x00f", "0xf"), ("big", "big")])
def test_masks_have_one_spelling(text, wanted):
    assert parse_cpus(text) == wanted


@pytest.mark.parametrize("text", ["", "0", "0x0", "f0", "-1", "0x" + "f" * 17, "little", "0x1g"])
def test_what_is_no_mask(text):
    with pytest.raises(ValueError, match="is neither big nor all nor a mask like 0xf0"):
        parse_cpus(text)


def test_relaxed_and_float16_exclude_each_other():
    with pytest.raises(UsageError, match="float16 has no float32"):
        ConditionOptions(1, BIG, "sync", True, True)


@pytest.mark.parametrize("broken", [{"threads": "2"}, {"mode": "fast"}, {"cpus": "x"}])
def test_broken_conditions_are_refused(broken):
    with pytest.raises((ValueError, TypeError)):
        Conditions.from_json({**Conditions().to_json(), **broken})
