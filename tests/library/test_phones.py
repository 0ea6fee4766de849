"""Bundles for several phones: the library knows the phone at hand as the rule of plan sets does."""

import ctypes
import dataclasses
import struct
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from nnapi_prof.bundle import Bundle, accelerators_of
from nnapi_prof.bundle import deployment as writer
from nnapi_prof.bundle.deployment import runtime_bundle, runtime_plans
from nnapi_prof.bundle.plan_set import PlanChoice, PlanSet, SelectionRule, phone_of
from tests.library.embedding import Runtime, RuntimeFailure

BY_PHONE = 2**32 - 2
BUILDS, SOCS = ("maker/one:11", "maker/two:12", ""), ("sm1", "sm2", "")


class PhoneNames(ctypes.Structure):
    _fields_ = [("build", ctypes.c_char_p), ("soc", ctypes.c_char_p)]


def by_phone(bundle: Bundle, choices: Iterable[PlanChoice]) -> Bundle:
    plan_set = PlanSet(SelectionRule.PHONES, tuple(choices))
    return dataclasses.replace(bundle, plan_set=plan_set)


def accelerators(library: Path) -> list[tuple[str, int]]:
    """Names and feature levels of an NNAPI's devices."""
    nnapi = ctypes.CDLL(str(library))
    count = ctypes.c_uint32()
    assert nnapi.ANeuralNetworks_getDeviceCount(ctypes.byref(count)) == 0
    rows = []
    for index in range(count.value):
        device, name, level = ctypes.c_void_p(), ctypes.c_char_p(), ctypes.c_int64()
        assert nnapi.ANeuralNetworks_getDevice(index, ctypes.byref(device)) == 0
        assert nnapi.ANeuralNetworksDevice_getName(device, ctypes.byref(name)) == 0
        assert nnapi.ANeuralNetworksDevice_getFeatureLevel(device, ctypes.byref(level)) == 0
        rows.append(((name.value or b"").decode(), level.value))
    return rows


def chosen(runtime: Runtime, build: str, soc: str) -> int:
    phone = PhoneNames(build.encode(), soc.encode() or None)
    plan = ctypes.c_uint32(77)
    emulator = ctypes.c_char_p(str(runtime.emulator).encode())
    runtime.check(
        *("nnp_bundle_plan_of_phone", runtime.bundle),
        *(ctypes.byref(phone), emulator, ctypes.byref(plan)),
    )
    return plan.value


@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow], deadline=None)
@given(st.data())
def test_the_rule_is_that_of_plan_sets(opened, sample, emulator_library, data):
    there = accelerators(emulator_library)
    nnapi = phone_of({}, there).keys
    keys = [f"build:{b}" for b in BUILDS if b] + [f"soc:{s}" for s in SOCS if s] + [*nnapi]
    keys += ["nnapi:nnapi-reference/9", "nnapi-reference/30"]  # of nobody
    plans = data.draw(st.permutations(range(4)))
    homes = {key: data.draw(st.integers(-1, 3)) for key in keys}
    others = data.draw(st.sampled_from([n for n in range(4) if n != 3]))
    choices = []
    for plan in plans:
        own = [key for key, home in homes.items() if home == plan]
        needed = () if plan == others else tuple(accelerators_of(sample.bundle.plans[plan]))
        choices.append(PlanChoice(plan, keys=(*own, *[""] * (plan == others)), accelerators=needed))
    table = [*sample.bundle.plans]
    # The plan of all others needs no accelerator.
    table[others] = dataclasses.replace(sample.bundle.plans[2], name="others")
    bundle = by_phone(dataclasses.replace(sample.bundle, plans=tuple(table)), choices)
    runtime = opened(bundle)
    assert runtime.plans() == [plan.name for plan in runtime_plans(bundle)]
    for build in BUILDS:
        for soc in SOCS:
            properties = {"ro.build.fingerprint": build, "ro.soc.model": soc}
            phone = phone_of({k: v for k, v in properties.items() if v}, there)
            expected = bundle.plans[bundle.plan_set.select(phone=phone)].name
            assert runtime.plans()[chosen(runtime, build, soc)] == expected
    model = runtime.model(BY_PHONE, flags=8)  # on this host only its accelerators are known
    expected_plan = bundle.selected_plan(phone=phone_of({}, there))
    assert len(model.segments()) == len(expected_plan.segments)
    queue = runtime.queue(flags=8)
    queue.submit([sample.image.numpy()])
    assert runtime.plans()[queue.wait().plan] == expected_plan.name
    runtime.library.nnp_bundle_close(runtime.bundle)


def test_as_many_threads_as_names(opened, sample, monkeypatch):
    of_two = PlanChoice(0, keys=("soc:a", "soc:b"), threads={"soc:b": 4})
    bundle = by_phone(sample.bundle, [of_two, PlanChoice(2, keys=("",))])
    sections = writer._Writer(bundle, runtime_plans(bundle)).sections()
    assert sections["PTHR"] == struct.pack("<4I", 1, 2, 0, 4)
    opened(bundle)
    for words in ((2, 2, 0, 4), (1, 1, 4), (1, 2, 0), (1, 2, 0, 4, 4)):
        damaged = {"PHON": sections["PHON"], "PTHR": struct.pack(f"<{len(words)}I", *words)}
        monkeypatch.setattr(writer._Writer, "_phones", lambda _, section=damaged: section)
        with pytest.raises(RuntimeFailure, match="PTHR"):
            opened(bundle)


def test_other_bundles_run_plan_0(opened, sample):
    content = runtime_bundle(sample.bundle)
    assert b"PHON" not in content
    runtime = opened(content)
    assert chosen(runtime, "maker/one:11", "sm1") == 0
    with pytest.raises(RuntimeFailure, match="bundle or plan is NULL"):
        runtime.check("nnp_bundle_plan_of_phone", runtime.bundle, None, None, None)
    model = runtime.model(BY_PHONE)
    assert len(model.segments()) == len(sample.bundle.plans[0].segments)


@pytest.mark.parametrize("word", range(6))
def test_a_damaged_section_is_refused(opened, sample, word, monkeypatch):
    """Version, the plan of others, number of names, a name, its plan, and what follows."""
    write = writer._Writer._phones

    def damaged(self):
        section = write(self)["PHON"]
        at = 4 * word
        return {"PHON": section[:at] + b"\xff\xff\xff\xff" + section[at + 4 :]}

    monkeypatch.setattr(writer._Writer, "_phones", damaged)
    choices = [PlanChoice(0, keys=("soc:a",)), PlanChoice(2, keys=("",))]
    bundle = by_phone(sample.bundle, choices)
    with pytest.raises(RuntimeFailure, match="PHON"):
        opened(bundle)
