"""Requests that break the protocol: one line of type error, exit code 1, and nothing is run.
device_agent/tests/test_request.c, which test_c_units runs, breaks every other rule."""

import struct

import pytest

from tests.agent import packer
from tests.agent.packer import CPU, RANDOM, RELU, SEGMENT, Request, container, relus, tensor


def of_an_operand(kind: int) -> bytes:
    """A valid request but for the type of an operand."""
    request = relus(CPU)
    raw = bytearray(request.bundles[0]["DATA"])
    struct.pack_into("<I", raw, 24, kind)
    request.bundles[0]["DATA"] = bytes(raw)
    return request.pack()


def without_models() -> bytes:
    request = relus(CPU)
    del request.bundles[0]["MODL"]
    return request.pack()


def without_head() -> bytes:
    sections = relus(CPU).sections()
    del sections["HEAD"]
    return container(sections)


def of_an_unwritten_output() -> bytes:
    request = Request()
    relu = packer.Segment(CPU, request.model(packer.unary(RELU, 4)), [0], [1])
    request.action([tensor(RANDOM, 4), *[tensor(SEGMENT, 4, keep=True)] * 2], [relu])
    return request.pack()


CASES: dict[str, tuple[bytes, str]] = {
    "cut": (relus(CPU).pack()[:-8], "past the container's"),
    "protocol": (container(relus(CPU).sections() | {"HEAD": packer.words(1, 0)}), "version 1"),
    "no head": (without_head(), "HEAD: 0 bytes, want 8"),
    "no models": (without_models(), "segment 0: engine 0, accelerator 4294967295, preference"),
    "operand": (of_an_operand(77), "MODL: model 0: operand 0: unknown type 77"),
    "unwritten": (of_an_unwritten_output(), "output 1 is never written"),
}


@pytest.mark.parametrize("case", CASES)
def test_malformed(agent, case):
    request, expected = CASES[case]
    answer = agent.run_bytes(request)
    assert answer.exit_code == 1
    assert answer.types in (["error"], ["hello", "error"])
    assert answer.error.startswith("request refused: ")
    assert expected in answer.error


def test_unknown_sections_are_passed_over(agent):
    answer = agent.run_bytes(container(relus(CPU).sections() | {"NEWS": b"of a later version"}))
    assert answer.exit_code == 0
    assert answer.results[0]["status"] == "ok"


def test_no_actions(agent):
    answer = agent.run_bytes(Request().pack())
    assert answer.exit_code == 0
    assert answer.types == ["hello", "end"]
