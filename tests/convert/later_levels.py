"""Runs every case that is another model at the levels that brought operations after the fourth, in
a process whose emulator has the seventh.

``python -m tests.convert.later_levels LIBRARY`` prints a line for each case that is wrong, then how
many ran and which operations of those levels they had.
"""

import ctypes
import os
import re
import sys

import torch

from nnapi_prof.convert.lower import convert_region, why_not
from nnapi_prof.nnapi.codes import FeatureLevel
from tests.convert.cases import CASES
from tests.convert.harness import run_region

LEVELS = (FeatureLevel.LEVEL_6, FeatureLevel.LEVEL_7)


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
        for level in LEVELS:
            reason = wrong(case, level, operations, codes)
            if reason is not None:
                print(f"{name}-{int(level)}: {reason}")
    late = {"BATCH_MATMUL", "PACK", "MIRROR_PAD", "REVERSE"}
    print(len(CASES), *sorted(late & operations))


if __name__ == "__main__":
    main(sys.argv[1])
