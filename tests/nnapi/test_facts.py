"""The fact table as code sees it."""

import pytest

from nnapi_prof.nnapi import all_facts, level_name, level_number, why_not_at
from nnapi_prof.nnapi.codes import MIN_FEATURE_LEVEL, OperandCode, OperationCode

T, I, F, B = (  # noqa: E741
    OperandCode.TENSOR_FLOAT32,
    OperandCode.INT32,
    OperandCode.FLOAT32,
    OperandCode.BOOL,
)


def test_every_operation_has_facts_that_agree_with_the_codes():
    facts = all_facts()
    assert set(facts) == set(OperationCode)
    assert {code: fact.since for code, fact in facts.items()} == MIN_FEATURE_LEVEL
    for fact in facts.values():
        assert fact.signatures
        for signature in fact.signatures:
            assert signature.since >= fact.since
            assert all(argument.types for argument in signature.arguments)


def test_levels_are_numbered_as_devices_report_them():
    reported = (27, 30, 31, 33, 1_000_006, 1_000_008)
    assert list(map(level_number, reported)) == [1, 4, 5, 5, 6, 8]
    assert level_name(1) == "level 1 (API 27)"
    assert level_name(6) == "level 6"


CONV = [T, T, T] + [I] * 7


@pytest.mark.parametrize(
    ("code", "types", "level", "reason"),
    [
        ("CONV_2D", CONV, 1, None),
        ("CONV_2D", [*CONV, B], 2, "CONV_2D takes layout_nchw from level 3 (API 29) on"),
        ("CONV_2D", [*CONV, B, I, I], 2, "CONV_2D takes dilation_h from level 3 (API 29) on"),
        ("CONV_2D", [*CONV, B, I, I], 3, None),
        ("CONV_2D", [T, T], 3, "CONV_2D takes no argument list of the form"),
        ("CONCATENATION", [T, T, T, I], 1, None),
        ("CONCATENATION", [I], 1, "CONCATENATION takes no argument list"),
        ("RESIZE_BILINEAR", [T, I, I], 1, None),
        ("RESIZE_BILINEAR", [T, F, F], 2, "RESIZE_BILINEAR takes resize_by_scale from level 3"),
        ("RESIZE_BILINEAR", [T, I, I, B, B, B], 3, "takes half_pixel_centers from level 4"),
        ("RESIZE_NEAREST_NEIGHBOR", [T, I, I], 4, "takes no argument list of the form"),
        ("HARD_SWISH", [T], 3, "HARD_SWISH exists from level 4 (API 30) on"),
        ("ADD", [OperandCode.TENSOR_INT32] * 2 + [I], 3, "takes TENSOR_INT32 from level 4"),
        ("TRANSPOSE", [OperandCode.TENSOR_INT32] * 2, 8, "TRANSPOSE takes no TENSOR_INT32"),
    ],
)
def test_argument_forms_by_level(code, types, level, reason):
    ranks = [4 if t in (T, OperandCode.TENSOR_INT32) else 0 for t in types]
    result = why_not_at(OperationCode[code], types, ranks, level)
    if reason is None:
        assert result is None
    else:
        assert result is not None and reason in result
