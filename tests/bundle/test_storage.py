"""Bundles to disk and back, and what a damaged one says."""

import dataclasses
import json
from pathlib import Path

import pytest
import torch
from torch import nn

from nnapi_prof.bundle import Bundle, needed_regions
from nnapi_prof.bundle.storage import VERSION, read_bundle, write_bundle
from nnapi_prof.convert.lower import convert_region
from nnapi_prof.convert.region import to_float16
from nnapi_prof.costs import Conditions, Mode, Precision
from nnapi_prof.costs.model.regression import TERMS, TargetFit, fits_from_json
from nnapi_prof.errors import SerializationError, UsageError
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import CPU, HOST, Engine, Plan, Preference, Segment, Target

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
def model_file(tmp_path):
    path = tmp_path / "small.pt"
    path.write_bytes(b"the model's bytes")
    return path


@pytest.fixture
def written(bundle, model_file, tmp_path):
    write_bundle(tmp_path / "small.nnprof", bundle, model_file)
    return tmp_path / "small.nnprof"


def test_the_fit_that_a_plan_was_made_with_is_kept(bundle, model_file, tmp_path):
    signature = bundle.graph.units[0].signature
    fitted = TargetFit(1.5, 0.25, 0.125, {signature: 1 / 3}, (0.01, -0.5), 2.0,
                       dict.fromkeys((*TERMS, signature), 0.1), 0.2, 0.1, 4, 3)  # fmt: skip
    fits = {
        NPU: fitted,
        CPU: dataclasses.replace(fitted, unit_ns={}, errors=dict.fromkeys(TERMS, 0.0)),
    }
    folder = tmp_path / "fitted.nnprof"
    write_bundle(folder, dataclasses.replace(bundle, fits=fits), model_file)
    assert read_bundle(folder).fits == fits
    write_bundle(folder, bundle, model_file)
    assert read_bundle(folder).fits is None  # as bundles from before have none


def test_fits_of_a_later_version_are_none():
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
    result = read_bundle(written)
    for field in dataclasses.fields(Bundle):
        assert getattr(result, field.name) == getattr(bundle, field.name), field.name
    assert (written / "model.pt").read_bytes() == b"the model's bytes"


def test_weights_are_stored_once_for_all_regions(bundle, written):
    assert len(bundle.regions) == 2  # the same units at two levels
    distinct = {buffer for region in bundle.regions.values() for buffer in region.buffers}
    assert len(list((written / "blobs").iterdir())) == len(distinct)


def test_a_region_is_found_by_units_and_target(bundle):
    units = bundle.plan.segments[0].units
    assert bundle.region(tuple(reversed(units)), NPU).level == 29
    assert bundle.region(units, CPU).level == 30


def test_float16_is_for_nnapi_only(bundle, model_file, tmp_path):
    levels = {"cpu": 30, NPU.key: 30}  # what tells the two apart is not the level
    (key,) = needed_regions(bundle.plans, levels, lambda target: target.engine is Engine.NNAPI)
    assert needed_regions(bundle.plans, levels) == (key,)
    units = key[0]
    whole = bundle.region(units, CPU)
    halved = dataclasses.replace(
        bundle,
        levels=levels,
        conditions=Conditions(Precision.FLOAT16),
        regions={key: whole},
        halved={key: to_float16(whole)},
    )
    write_bundle(tmp_path / "half.nnprof", halved, model_file)
    result = read_bundle(tmp_path / "half.nnprof")
    assert result == halved
    assert result.region(units, CPU) == whole
    assert "CAST" in result.region(units, NPU).operations


def test_host_segments_need_no_region(bundle):
    plan = Plan("dp", (Segment((0,), HOST, 1.0, "no engine runs it", estimated=True),), False)
    assert needed_regions((plan,), LEVELS) == ()


def test_a_bundle_replaces_a_bundle_and_nothing_else(bundle, written, tmp_path):
    (written / "run.json").write_text("of the old plan")
    write_bundle(written, bundle, written / "model.pt")
    assert not (written / "run.json").exists()
    other = tmp_path / "photos"
    other.mkdir()
    (other / "holiday.jpg").write_bytes(b"precious")
    with pytest.raises(UsageError, match="exists and is not a bundle"):
        write_bundle(other, bundle, written / "model.pt")
    assert (other / "holiday.jpg").read_bytes() == b"precious"


def test_what_is_no_bundle(tmp_path):
    with pytest.raises(UsageError, match="not a bundle: `nnapi-prof partition` makes one"):
        read_bundle(tmp_path)


def first_entry(folder: Path) -> Path:
    return next(folder.iterdir())


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-1] ^= 0x40
    path.write_bytes(data)


@pytest.mark.parametrize(
    ("damage", "words"),
    [  # those of the manifest are in tests/cli/test_bundles.py
        (lambda folder: flip_a_bit(first_entry(folder / "blobs")), "another hash"),
        (lambda folder: flip_a_bit(first_entry(folder / "regions")), "CRC-32"),
        (
            lambda folder: flip_a_bit(folder / "model.pt"),
            r"model.pt was changed after it was",
        ),
        (lambda folder: first_entry(folder / "blobs").unlink(), "is not a file of its own"),
        (lambda folder: first_entry(folder / "regions").unlink(), "is not a file of its own"),
    ],
)
def test_damage_is_found(written, damage, words):
    damage(written)
    with pytest.raises(SerializationError, match=words):
        read_bundle(written)


def test_another_version_is_named(written):
    manifest = written / "manifest.json"
    manifest.write_text(json.dumps({**json.loads(manifest.read_text()), "version": 99}))
    with pytest.raises(SerializationError, match=rf"version is 99, {VERSION} is read\)"):
        read_bundle(written)
