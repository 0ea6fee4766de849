"""Bundles with several plans of their own, and which of them a rule selects."""

import dataclasses
import json
from collections import Counter

import pytest

from nnapi_prof.bundle.plan_set import (
    OTHERS,
    PhoneTraits,
    PlanChoice,
    PlanSet,
    SelectionRule,
    phone_of,
)
from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.errors import SerializationError, UsageError

FRONT = PlanSet(
    SelectionRule.FRONT,
    (
        PlanChoice(1, {"latency_ns": 4.0, "memory": 1.0}),
        PlanChoice(0, {"latency_ns": 2.0, "memory": 5.0}),
    ),
)
MIXTURE = PlanSet(SelectionRule.MIXTURE, (PlanChoice(0, share=0.75), PlanChoice(1, share=0.25)))
BUILD = "build:a/b:11"
PHONES = PlanSet(
    SelectionRule.PHONES,
    (
        PlanChoice(
            0, keys=("build:a/b:11", "soc:one"), accelerators=("npu",), device="b", all_cpu_ns=7e6
        ),
        PlanChoice(1, keys=("soc:two", "nnapi:gpu/29,npu/30", "")),
    ),
)
SETS = {"front": FRONT, "mixture": MIXTURE, "phones": PHONES}


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_kept(bundle, tmp_path, name):
    (tmp_path / "model.pt").write_bytes(b"the model")
    several = dataclasses.replace(bundle, plan_set=SETS[name])
    write_bundle(tmp_path / "several", several, tmp_path / "model.pt")
    assert read_bundle(tmp_path / "several").plan_set == SETS[name]
    write_bundle(tmp_path / "one", bundle, tmp_path / "model.pt")
    assert "plan_set" not in json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert read_bundle(tmp_path / "one").plan_set is None


def test_one_plan_is_selected_whatever_is_asked_for(bundle):
    phone = PhoneTraits(("soc:one",))
    assert bundle.selected_plan(run=7, phone=phone) is bundle.plan is bundle.plans[0]
    assert bundle.for_phone(phone) is bundle


def test_a_front_gives_the_best_within_limits(bundle):
    assert FRONT.select() == 0
    assert FRONT.select(limits={"memory": 4}) == 1
    several = dataclasses.replace(bundle, plan_set=FRONT)
    assert several.plan is bundle.plans[1]
    assert several.selected_plan() is bundle.plans[0]
    with pytest.raises(UsageError, match=r"no plan of the bundle keeps memory of 0.5 at most"):
        FRONT.select(limits={"memory": 0.5})
    with pytest.raises(UsageError, match="do not have energy, only latency_ns, memory"):
        FRONT.select(limits={"energy": 1})


def test_a_mixture_gives_each_plan_its_share_of_any_stretch():
    for first in (0, 13, 1000):
        for length in (4, 20, 400):
            runs = Counter(MIXTURE.select(run) for run in range(first, first + length))
            assert abs(runs[0] - 0.75 * length) < 2


@pytest.mark.parametrize(
    ("properties", "levels", "plan", "key"),
    [
        ({"ro.build.fingerprint": "a/b:11", "ro.soc.model": "two"}, {"npu": 30}, 0, BUILD),
        ({"ro.build.fingerprint": "new", "ro.soc.model": "one"}, {"npu": 30}, 0, "soc:one"),
        ({"ro.board.platform": "one"}, {"npu": 27, "x": 27}, 0, "soc:one"),
        ({"ro.soc.model": "one"}, {"npu": 30, "gpu": 29}, 0, "soc:one"),
        ({"ro.soc.model": "one"}, {"gpu": 29}, 1, OTHERS),  # without the plan's accelerator
        ({"ro.soc.model": "other"}, {"npu": 30, "gpu": 29}, 1, "nnapi:gpu/29,npu/30"),
        ({}, {}, 1, OTHERS),
    ],
)
def test_a_phone_is_known_by_its_most_telling_name(bundle, properties, levels, plan, key):
    phone = phone_of(properties, levels.items())
    choice, name = PHONES.for_phone(phone)
    assert (choice.plan, name) == (plan, key)
    several = dataclasses.replace(bundle, plan_set=PHONES)
    assert several.selected_plan(phone=phone) is several.plans[plan]
    own = several.for_phone(phone)
    assert own.plan is own.plans[0] is several.plans[plan] and own.plan_set is None
    assert own.device == choice.device
    if plan == 0:  # beside it stands that of all others, as fast as it is on that device
        assert [each.name for each in own.plans] == [several.plans[n].name for n in (0, 1)]
        assert own.plans[1].predicted_ns == pytest.approx(7e6)
        assert several.of_run(own.plan) == own


GOOD = MIXTURE.to_json()


def phones(*choices: list) -> dict:
    rows = [{"plan": plan, **rest} for plan, rest in choices]
    return {"version": 1, "rule": "phone names", "choices": rows}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (None, "it is not an object"),
        (GOOD | {"version": 2}, "of version 2, 1 is read"),
        (GOOD | {"rule": "dice"}, "its rule is 'dice'"),
        (GOOD | {"rule": ["mixture"]}, "its rule is"),
        (GOOD | {"choices": {}}, "its choices are not a list"),
        (GOOD | {"choices": []}, "it has no plan"),
        (GOOD | {"choices": [7]}, "a choice is not an object"),
        (GOOD | {"choices": [{"plan": 2, "share": 1}]}, "it names plan 2 of 2"),
        (GOOD | {"choices": [{"plan": True, "share": 1}]}, "it names plan True of 2"),
        (GOOD | {"choices": [{"plan": 0, "share": "1"}]}, "share is not a number"),
        (GOOD | {"choices": [{"plan": 0, "share": 0.5}]}, "are 1 in all, not 0.5"),
        (GOOD | {"choices": [{"plan": 0, "share": float("nan")}]}, "above 0"),
        (GOOD | {"choices": [{"plan": 0, "share": 0.5}] * 2}, "occurs twice"),
        (GOOD | {"rule": "phones"}, "its rule is 'phones'"),
        (GOOD | {"rule": "phone names"}, "one plan is for all other phones"),
        (GOOD | {"rule": "front"}, "have the same criteria"),
        (
            {"version": 1, "rule": "front", "choices": [{"plan": 0, "figures": {"a": 1e999}}]},
            "are finite",
        ),
        (phones([0, {"keys": "soc:one"}]), "not a list of texts"),
        (phones([0, {"keys": [3]}]), "not a list of texts"),
        (phones([0, {"keys": [""], "device": 3}]), "a device is not a name"),
        (phones([0, {"keys": [""], "all_cpu_ns": -1}]), "latency is finite"),
        (phones([0, {"keys": ["a", ""]}], [1, {"keys": ["a"]}]), "name occurs twice"),
        (phones([0, {"keys": [""], "accelerators": ["npu"]}]), "needs no accelerator"),
    ],
)
def test_sets_of_strangers_are_refused(data, reason):
    with pytest.raises(SerializationError, match=reason):
        PlanSet.from_json(data, 2)
