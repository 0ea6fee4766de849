"""Bundles with several plans of their own, and which of them a rule selects."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from pathlib import Path

import pytest

from nnapi_prof.bundle.bundle import Bundle, Choice, PlanSet, SelectionRule
from nnapi_prof.bundle.storage import read_bundle, write_bundle
from nnapi_prof.errors import SerializationError, UsageError
from tests.bundle.test_storage import bundle  # noqa: F401

FRONT = PlanSet(
    SelectionRule.FRONT,
    (
        Choice(1, {"latency_ns": 4.0, "memory": 1.0}),
        Choice(0, {"latency_ns": 2.0, "memory": 5.0}),
    ),
)
MIXTURE = PlanSet(SelectionRule.MIXTURE, (Choice(0, share=0.75), Choice(1, share=0.25)))
PHONES = PlanSet(SelectionRule.PHONES, (Choice(0, phone="f00"), Choice(1, phone="ba5")))
SETS = {"front": FRONT, "mixture": MIXTURE, "phones": PHONES}


@pytest.mark.parametrize("name", SETS)
def test_a_set_is_kept(bundle: Bundle, tmp_path: Path, name: str) -> None:  # noqa: F811
    (tmp_path / "model.pt").write_bytes(b"the model")
    several = dataclasses.replace(bundle, plan_set=SETS[name])
    write_bundle(tmp_path / "several", several, tmp_path / "model.pt")
    assert read_bundle(tmp_path / "several").plan_set == SETS[name]
    write_bundle(tmp_path / "one", bundle, tmp_path / "model.pt")
    assert "plan_set" not in json.loads((tmp_path / "one" / "manifest.json").read_text())
    assert read_bundle(tmp_path / "one").plan_set is None


def test_one_plan_is_selected_whatever_is_asked_for(bundle: Bundle) -> None:  # noqa: F811
    assert bundle.selected_plan(run=7, phone="ba5") is bundle.plan is bundle.plans[0]


def test_a_front_gives_the_best_within_limits(bundle: Bundle) -> None:  # noqa: F811
    assert FRONT.select() == 0
    assert FRONT.select(limits={"memory": 4}) == 1
    several = dataclasses.replace(bundle, plan_set=FRONT)
    assert several.plan is bundle.plans[1]
    assert several.selected_plan() is bundle.plans[0]
    with pytest.raises(UsageError, match=r"no plan of the bundle keeps memory of 0.5 at most"):
        FRONT.select(limits={"memory": 0.5})
    with pytest.raises(UsageError, match="know nothing of energy, only of latency_ns, memory"):
        FRONT.select(limits={"energy": 1})


def test_a_mixture_gives_each_plan_its_share_of_any_stretch() -> None:
    for first in (0, 13, 1000):
        for length in (4, 20, 400):
            runs = Counter(MIXTURE.select(run) for run in range(first, first + length))
            assert abs(runs[0] - 0.75 * length) < 2


def test_each_phone_has_its_own(bundle: Bundle) -> None:  # noqa: F811
    several = dataclasses.replace(bundle, plan_set=PHONES)
    assert several.selected_plan() is bundle.plans[0]  # planned for f00
    assert several.selected_plan(phone="ba5") is bundle.plans[1]
    with pytest.raises(UsageError, match="has plans for f00, ba5, not for other"):
        PHONES.select(phone="other")


GOOD = MIXTURE.to_json()


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
        (GOOD | {"choices": [{"plan": 0, "share": 0.5}] * 2}, "stands in it twice"),
        (GOOD | {"rule": "phones"}, "each plan has its own phone"),
        (GOOD | {"rule": "front"}, "have the same criteria"),
        (
            {"version": 1, "rule": "front", "choices": [{"plan": 0, "figures": {"a": 1e999}}]},
            "are finite",
        ),
        ({"version": 1, "rule": "phones", "choices": [{"plan": 0, "phone": 3}]}, "not a name"),
    ],
)
def test_sets_of_strangers_are_refused(data: object, reason: str) -> None:
    with pytest.raises(SerializationError, match=reason):
        PlanSet.from_json(data, 2)
