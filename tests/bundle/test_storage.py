"""Bundles to disk and back, what a damaged one says, sets of plans, and mixed precision."""

import json
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.bundle import Bundle, FrontRow, MixedPrecision, Sensitivity, needed_regions
from nnapi_prof.bundle.plan_set import (
    OTHERS,
    PhoneTraits,
    PlanChoice,
    PlanSet,
    SelectionRule,
    phone_of,
)
from nnapi_prof.bundle.storage import VERSION, read_bundle, write_bundle
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import to_float16
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.model.regression import TERMS, TargetFit, fits_from_json
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.frontend import prepare
from nnapi_prof.graph import Quantisation
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Preference, Segment, Target
from nnapi_prof.graph.quantisation import Scheme
from nnapi_prof.precision import Recipe

NPU = Target.nnapi("npu", Preference.FAST_SINGLE_ANSWER)
LEVELS = {"cpu": 30, NPU.key: 29}


@pytest.fixture(scope="module")
def bundle():
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3)).eval()
    program = prepare(model, (torch.zeros(1, 3, 8, 8),), "small")
    everything = tuple(range(len(program.units.units)))
    plans = (
        Plan("dp", (Segment(everything, NPU, 1e6, "fastest", measured=True),), True, ("a note",)),
        Plan("all-cpu", (Segment(everything, CPU, 2e6, "baseline", estimated=True),), True),
    )
    return Bundle(
        model="small",
        model_file="model.pt",
        inputs=("1x3x8x8:float32",),
        device="a device",
        fingerprint="f00",
        simulated=True,
        graph=program.units,
        plans=plans,
        levels=LEVELS,
        regions={key: convert_region(program, *key) for key in needed_regions(plans, LEVELS)},
        conditions=Conditions(mode=Mode.BURST, threads=2, cpus="0x3"),
        notes=("guessed",),
    )


@pytest.fixture
def written(bundle, model_file, tmp_path):
    write_bundle(tmp_path / "small.nnprof", bundle, model_file)
    return tmp_path / "small.nnprof"


@pytest.fixture
def model_file(tmp_path):
    path = tmp_path / "small.pt"
    path.write_bytes(b"the model's bytes")
    return path


def test_the_fit_that_a_plan_was_made_with_is_kept(bundle, model_file, tmp_path):
    signature = bundle.graph.units[0].signature
    fitted = TargetFit(1.5, 0.25, 0.125, {signature: 1 / 3}, (0.01, -0.5), 2.0,
                       dict.fromkeys((*TERMS, signature), 0.1), 0.2, 0.1, 4, 3)  # fmt: skip
    fits = {NPU: fitted, CPU: replace(fitted, unit_ns={}, errors=dict.fromkeys(TERMS, 0.0))}
    for each in (fits, None):  # as bundles from before have none
        write_bundle(tmp_path / "fitted.nnprof", replace(bundle, fits=each), model_file)
        assert read_bundle(tmp_path / "fitted.nnprof").fits == each
    assert fits_from_json({"version": 2, "units": ["a"], "targets": {}}) is None


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"targets": {"gpu": {}}}, ValueError),
        ({"targets": {"cpu": {"terms": [1, 2, 3]}}}, ValueError),
        ({"targets": {"cpu": {"terms": [1, 2, 3, float("nan")]}}}, ValueError),
        ({"targets": {"cpu": {}}}, KeyError),
        ({"units": None}, TypeError),
    ],
)
def test_damaged_fits_are_refused(change, error):
    with pytest.raises(error):
        fits_from_json({"version": 1, "units": ["a"], "targets": {}} | change)


def test_round_trip(bundle, written):
    assert read_bundle(written) == bundle
    assert (written / "model.pt").read_bytes() == b"the model's bytes"


def test_weights_are_stored_once_and_a_region_is_found_by_units_and_target(bundle, written):
    assert len(bundle.regions) == 2  # the same units at two levels
    distinct = {buffer for region in bundle.regions.values() for buffer in region.buffers}
    assert len(list((written / "blobs").iterdir())) == len(distinct)
    units = bundle.plan.segments[0].units
    assert bundle.region(tuple(reversed(units)), NPU).level == 29
    assert bundle.region(units, CPU).level == 30
    plan = Plan("dp", (Segment((0,), HOST, 1.0, "no engine runs it", estimated=True),), False)
    assert needed_regions((plan,), LEVELS) == ()


def test_float16_is_for_nnapi_only(bundle, model_file, tmp_path):
    levels = {"cpu": 30, NPU.key: 30}  # what tells the two apart is not the level
    (key,) = needed_regions(bundle.plans, levels, lambda target: target.engine is Engine.NNAPI)
    assert needed_regions(bundle.plans, levels) == (key,)
    whole = bundle.region(key[0], CPU)
    kinds = {"regions": {key: whole}, "halved": {key: to_float16(whole)}}
    halved = replace(bundle, levels=levels, conditions=Conditions(Precision.FLOAT16), **kinds)
    write_bundle(tmp_path / "half.nnprof", halved, model_file)
    result = read_bundle(tmp_path / "half.nnprof")
    assert result == halved and result.region(key[0], CPU) == whole
    assert "CAST" in result.region(key[0], NPU).operations


def test_a_bundle_replaces_a_bundle_and_nothing_else(bundle, written, tmp_path):
    (written / "run.json").write_text("of the old plan")
    write_bundle(written, bundle, written / "model.pt")
    assert not (written / "run.json").exists()
    (tmp_path / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists and is not a bundle"):
        write_bundle(tmp_path, bundle, written / "model.pt")
    assert (tmp_path / "holiday.jpg").read_bytes() == b"precious"
    with pytest.raises(UsageError, match="not a bundle: `nnapi-prof partition` makes one"):
        read_bundle(tmp_path)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x40
    path.write_bytes(data)


def flip(name: str) -> Callable[[Path], None]:
    """Damages a file, or the first one of a folder."""
    return lambda folder: flip_a_bit(next((folder / name).glob("*"), folder / name))


def remove(name: str) -> Callable[[Path], None]:
    return lambda folder: next((folder / name).iterdir()).unlink()


def edit(**changes: object) -> Callable[[Path], None]:
    """Changes members of the manifest."""

    def change(folder: Path) -> None:
        data = json.loads((folder / "manifest.json").read_text())
        (folder / "manifest.json").write_text(json.dumps(data | changes))

    return change


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (flip("blobs"), "another hash"),
        (flip("regions"), "CRC-32"),
        (flip("model.pt"), r"model.pt was changed after it was"),
        (remove("blobs"), "is not a file of its own"),
        (remove("regions"), "is not a file of its own"),
        (lambda f: (f / "manifest.json").write_text("{"), "Expecting property name"),
        (lambda f: (f / "manifest.json").write_text("[]"), "is not a nnapi-prof-bundle"),
        (lambda f: (f / "manifest.json").write_bytes(b"\xff\xfe"), "Expecting value"),
        (edit(format="tarball"), "manifest.json is not a nnapi-prof-bundle"),
        (edit(version="2"), f"manifest.json has version '2', {VERSION} is read"),
        (edit(version=99), rf"version is 99, {VERSION} is read\)"),
        (edit(threads=7), "manifest.json was changed after it was written"),
    ],
)
def test_damage_is_found(written, damage, words):
    damage(written)
    with pytest.raises(SerializationError, match=words):
        read_bundle(written)


# ---- several plans -------------------------------------------------------------------------------


FRONT = PlanSet(
    SelectionRule.FRONT,
    tuple(
        PlanChoice(plan, {"latency_ns": ns, "memory": memory})
        for plan, ns, memory in ((1, 4.0, 1.0), (0, 2.0, 5.0))
    ),
)
MIXTURE = PlanSet(SelectionRule.MIXTURE, (PlanChoice(0, share=0.75), PlanChoice(1, share=0.25)))
BUILD = "build:a/b:11"
ONE = PlanChoice(0, keys=(BUILD, "soc:one"), accelerators=("npu",), device="b", all_cpu_ns=7e6)
PHONES = PlanSet(
    SelectionRule.PHONES, (ONE, PlanChoice(1, keys=("soc:two", "nnapi:gpu/29,npu/30", "")))
)


@pytest.mark.parametrize("plan_set", [FRONT, MIXTURE, PHONES, None])
def test_a_set_is_kept(bundle, model_file, tmp_path, plan_set):
    several = replace(bundle, plan_set=plan_set)
    write_bundle(tmp_path / "several", several, model_file)
    assert read_bundle(tmp_path / "several") == several
    manifest = json.loads((tmp_path / "several" / "manifest.json").read_text())
    assert ("plan_set" in manifest) == (plan_set is not None)


def test_one_plan_is_selected_whatever_is_asked_for(bundle):
    phone = PhoneTraits(("soc:one",))
    assert bundle.selected_plan(run=7, phone=phone) is bundle.plan is bundle.plans[0]
    assert bundle.for_phone(phone) is bundle


def test_a_front_gives_the_best_within_limits(bundle):
    assert (FRONT.select(), FRONT.select(limits={"memory": 4})) == (0, 1)
    several = replace(bundle, plan_set=FRONT)
    assert several.plan is bundle.plans[1] and several.selected_plan() is bundle.plans[0]
    for limit, words in (
        ({"memory": 0.5}, r"no plan of the bundle keeps memory of 0.5 at most"),
        ({"energy": 1}, "do not have energy, only latency_ns, memory"),
    ):
        with pytest.raises(UsageError, match=words):
            FRONT.select(limits=limit)


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
    several = replace(bundle, plan_set=PHONES)
    own = several.for_phone(phone)
    assert several.selected_plan(phone=phone) is several.plans[plan] is own.plans[0] is own.plan
    assert (own.plan_set, own.device) == (None, choice.device)
    if plan == 0:  # beside it stands that of all others, as fast as it is on that device
        assert [each.name for each in own.plans] == [each.name for each in several.plans[:2]]
        assert own.plans[1].predicted_ns == pytest.approx(7e6)
        assert several.of_run(own.plan) == own


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "of version 2, 1 is read"),
        ({"rule": "dice"}, "its rule is 'dice'"),
        ({"rule": ["mixture"]}, "its rule is"),
        ({"choices": {}}, "its choices are not a list"),
        ({"choices": []}, "it has no plan"),
        ({"choices": [7]}, "a choice is not an object"),
        ({"choices": [{"plan": 2, "share": 1}]}, "it names plan 2 of 2"),
        ({"choices": [{"plan": True, "share": 1}]}, "it names plan True of 2"),
        ({"choices": [{"plan": 0, "share": "1"}]}, "share is not a number"),
        ({"choices": [{"plan": 0, "share": 0.5}]}, "are 1 in all, not 0.5"),
        ({"choices": [{"plan": 0, "share": float("nan")}]}, "above 0"),
        ({"choices": [{"plan": 0, "share": 0.5}] * 2}, "occurs twice"),
        ({"rule": "phones"}, "its rule is 'phones'"),
        ({"rule": "phone names"}, "one plan is for all other phones"),
        ({"rule": "front"}, "have the same criteria"),
        ({"rule": "front", "choices": [{"plan": 0, "figures": {"a": 1e999}}]}, "are finite"),
    ],
)
def test_sets_of_strangers_are_refused(change, reason):
    with pytest.raises(SerializationError, match=reason):
        PlanSet.from_json(MIXTURE.to_json() | change, 2)
    with pytest.raises(SerializationError, match="it is not an object"):
        PlanSet.from_json(None, 2)


@pytest.mark.parametrize(
    ("choices", "reason"),
    [
        ([{"keys": "soc:one"}], "not a list of texts"),
        ([{"keys": [3]}], "not a list of texts"),
        ([{"keys": [""], "device": 3}], "a device is not a name"),
        ([{"keys": [""], "all_cpu_ns": -1}], "latency is finite"),
        ([{"keys": ["a", ""]}, {"keys": ["a"]}], "name occurs twice"),
        ([{"keys": [""], "accelerators": ["npu"]}], "needs no accelerator"),
    ],
)
def test_sets_of_phones_of_strangers_are_refused(choices, reason):
    rows = [{"plan": plan} | choice for plan, choice in enumerate(choices)]
    with pytest.raises(SerializationError, match=reason):
        PlanSet.from_json({"version": 1, "rule": "phone names", "choices": rows}, 2)


# ---- mixed precision -----------------------------------------------------------------------------


MIXED = MixedPrecision(
    recipe=Recipe(
        {"x": Quantisation(0.5, 3), "y": Quantisation(0.25, 0)},
        {"w": Scheme((0.1, 0.2), (0, 0), 0, "int8")},
        frozenset({0, 2}),
        {1: "softmax has no 8 bits here"},
        "uint8",
    ).to_json(),
    int8_units=frozenset({2}),
    metric="relative",
    budget=0.02,
    chosen="front 2",
    front=(
        FrontRow("front 1", False, 1e6, 0.03, 0.031, 0.02, 0.04, 1, {Precision.INT8: 3}),
        FrontRow("front 2", False, 2e6, 0.01, 0.012, 0.0, 0.02, 2, {Precision.FLOAT32: 2}),
    ),
    sensitivity=(Sensitivity("conv2d 3x3", {Precision.INT8: 0.01}),),
)


@pytest.mark.parametrize("low, high", [(0.02, 0.04), (-math.inf, math.inf)])  # of one sample
def test_mixed_precision_survives_json(low, high):
    first, second = MIXED.front
    mixed = replace(MIXED, front=(replace(first, held_out_low=low, held_out_high=high), second))
    text = json.dumps(mixed.to_json(), allow_nan=False)
    assert MixedPrecision.from_json(json.loads(text)) == mixed
    assert mixed.chosen_row is second


@pytest.mark.parametrize(
    "change",
    [
        {"int8_units": [-1]},
        {"int8_units": ["0"]},
        {"front": [{}]},
        {"front": None},
        {"sensitivity": [{"label": "x", "errors": {"int3": 0.1}}]},
        {"budget": float("nan")},
        {"recipe": 3},
    ],
)
def test_what_is_no_mixed_precision_is_refused(change):
    with pytest.raises(SerializationError):
        MixedPrecision.from_json(MIXED.to_json() | change)
