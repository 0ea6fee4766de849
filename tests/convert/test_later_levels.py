"""Levels 6 and 7, which the emulator has where it is told to: a process of its own."""

import subprocess

import pytest

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.nnapi.codes import FeatureLevel
from tests import warm
from tests.convert.cases import CASES
from tests.convert.cases.products import ATTENTION, PRODUCTS


@pytest.mark.again("every case at two more levels: their own operations have tests")
def test_every_case_is_right_at_later_levels(nnapi_library):
    command = [*warm.python(), "-W", "ignore", "-m", "tests.convert.later_levels", nnapi_library]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    *wrong, last = done.stdout.splitlines()
    assert wrong == []
    assert last.split() == [str(len(CASES)), "BATCH_MATMUL", "MIRROR_PAD", "REVERSE"]


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
