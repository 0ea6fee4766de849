"""Levels 5 to 7: what came after the fourth, run by an emulator of the seventh."""

import shutil

import pytest

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.device.host_nnapi import HostNnapi
from nnapi_prof.nnapi.codes import FeatureLevel
from tests.convert.cases import CASES
from tests.convert.cases.products import ATTENTION, PRODUCTS
from tests.convert.cases.shape import FLIPS, PADS
from tests.convert.test_ops import check_numbers

LATE = {"BATCH_MATMUL", "MIRROR_PAD", "REVERSE"}


@pytest.fixture(scope="module")
def nnapi(built_host, tmp_path_factory):
    """The emulator at level 7, in a file of its own: the other has read its level."""
    library = tmp_path_factory.mktemp("later") / "libneuralnetworks.so"
    shutil.copyfile(built_host.library, library)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NNAPI_EMULATOR_FEATURE_LEVEL", str(int(FeatureLevel.LEVEL_7)))
        return HostNnapi(library)


def test_later_operations_are_right(nnapi):
    operations = set()
    for case in {**PRODUCTS, **ATTENTION, **FLIPS, **PADS}.values():
        if why_not(case.program, 0, FeatureLevel.LEVEL_7) is None:
            region = convert_region(case.program, [0], FeatureLevel.LEVEL_7)
            if late := LATE & set(region.operations):
                operations |= late
                check_numbers(case, region, set(), nnapi)
    assert operations == LATE


def test_many_products_are_one_operation():
    products = {**PRODUCTS, **ATTENTION}
    for name, case in products.items():
        if 30 in case.refused and name != "too many products":
            continue
        operations = convert_region(case.program, [0], FeatureLevel.LEVEL_6).operations
        assert "STRIDED_SLICE" not in operations
        if name in ("bmm", "matmul of two batch axes", "too many products"):
            assert operations.count("BATCH_MATMUL") == 1
        if name == "matmul, batches crossed":
            assert operations.count("TILE") == 2


def test_level_5_brought_nothing():
    for name in ("max pool dilated", "order of rows", "avg pool in ceil mode, padding counted"):
        program = CASES[name].program
        fourth, fifth = (
            convert_region(program, [0], level) for level in (30, FeatureLevel.LEVEL_5)
        )
        assert fourth.operations == fifth.operations
        assert fourth.serialized == fifth.serialized
