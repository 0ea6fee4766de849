"""Levels 6 and 7, which the emulator has where it is told to: in a process of its own.

``python -m tests.convert.test_later_levels LIBRARY`` runs every case that is another model at the
levels that brought operations after the fourth. It prints a line for each case that is wrong, then
how many ran and which operations of those levels they had.
"""

import ctypes
import os
import re
import subprocess
import sys

import pytest
import torch

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.nnapi.codes import FeatureLevel
from tests import warm
from tests.convert.cases import CASES
from tests.convert.cases.products import ATTENTION, PRODUCTS
from tests.convert.harness import run_region


@pytest.mark.again("every case at two more levels: their own operations have tests")
def test_every_case_is_right_at_later_levels(nnapi_library):
    command = [
        *warm.python(),
        "-W",
        "ignore",
        "-m",
        "tests.convert.test_later_levels",
        nnapi_library,
    ]
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


def wrong(case, level, operations, known):
    """Why the case does not hold at the level, or None. One refused at 30 may be refused so.

    ``known`` are serialized models that were run; what is one of them is not run again.
    """
    program = case.program
    refusal = why_not(program, 0, level)
    if refusal is not None:
        words = case.refused.get(level, case.refused.get(30))
        return None if words and re.search(words, str(refusal)) else str(refusal)
    region = convert_region(program, [0], level)
    operations.update(region.operations)
    if region.serialized in known:
        return None
    known.add(region.serialized)
    names = program.units.inputs
    (result,) = run_region(region, dict(zip(names, case.inputs, strict=True)))
    try:
        torch.testing.assert_close(
            result, case.function(*case.inputs), rtol=case.rtol, atol=case.atol
        )
    except AssertionError as error:
        return str(error).splitlines()[0]
    return None


def main(library):
    os.environ["NNAPI_EMULATOR_FEATURE_LEVEL"] = str(int(FeatureLevel.LEVEL_7))
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    operations = set()
    for name, case in CASES.items():
        codes = set()
        if 30 not in case.refused:  # test_ops runs it
            codes.add(convert_region(case.program, [0], 30).serialized)
        for level in (FeatureLevel.LEVEL_6, FeatureLevel.LEVEL_7):
            reason = wrong(case, level, operations, codes)
            if reason is not None:
                print(f"{name}-{int(level)}: {reason}")
    late = {"BATCH_MATMUL", "PACK", "MIRROR_PAD", "REVERSE"}
    print(len(CASES), *sorted(late & operations))


if __name__ == "__main__":
    main(sys.argv[1])
