"""AOSP's own examples of each operation, on both devices, and the same in other forms."""

import itertools
import re

import pytest

from nnapi_prof.nnapi import all_facts
from nnapi_prof.nnapi.codes import OperationCode
from tests.emulator.vectors import aosp
from tests.emulator.vectors.aosp import VectorRunner, in_form

DEVICES = ("nnapi-fast", "nnapi-reference")
MODES = ("sync", "async", "burst")
each_spec = pytest.mark.parametrize("spec", aosp.specs())


@pytest.fixture(params=DEVICES)
def runner(nn, request):
    if request.param not in nn.devices():
        pytest.skip("a build without XNNPACK")
    return VectorRunner(nn, request.param)


def kinds_of(tests):
    """One test of each set of operand types that a specification has, none to be refused."""
    first = {}
    for test in tests:
        types = tuple(operand["type"] for operand in test["operands"])
        if not test.get("expect_failure"):
            first.setdefault(types, test)
    return first.values()


def test_every_operation_of_levels_1_to_3_has_examples():
    names = set()
    for spec in aosp.specs():
        names.update(re.findall(rb'"op":"(\w+)"', aosp.archive().read(spec + ".json")))
    since = {code.name.encode(): facts.since for code, facts in all_facts().items()}
    assert names == {name for name, level in since.items() if level <= 3}


@each_spec
def test_spec(runner, spec):
    one_mode = itertools.cycle(MODES)
    for test in aosp.load(spec):
        runner.check(test, MODES if test["base"] else (next(one_mode),))


FORMS = {
    "left out": (aosp.left_out_of_the_model,),
    "sized by the run": (aosp.sized_by_the_run,),
    "all sized by the run": (aosp.with_weights_given, aosp.sized_by_the_run),
}
UNSIGNED = {OperationCode.CAST, OperationCode.HASHTABLE_LOOKUP, OperationCode.QUANTIZED_16BIT_LSTM}
"""Operations that have no signed form, or another meaning of it."""


@each_spec
def test_forms(runner, spec):
    """Also signed: level 4 has each operation on 8 bits with signed data, the same numbers."""
    tests = aosp.load(spec)
    for test in kinds_of(tests):
        for form in FORMS.values():
            runner.check(in_form(test, *form))
    for test in tests:
        operations = {operation["code"] for operation in test["operations"]}
        has_signed = any(operand["type"] == "TENSOR_QUANT8_ASYMM" for operand in test["operands"])
        if has_signed and not test.get("expect_failure") and not operations & UNSIGNED:
            runner.check(in_form(test, aosp.signed))
