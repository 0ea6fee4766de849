"""Requests that break the protocol: one line of type error, exit code 1, and nothing is run."""

import struct
from collections.abc import Callable, Sequence

import pytest

from tests.agent import packer
from tests.agent.packer import CPU, NONE, RANDOM, RELU, SEGMENT, Request, container, relus, tensor


def patch(sections: dict[str, bytes], tag: str, offset: int, value: int) -> None:
    """Replaces one word of a section, whose CRC will be right."""
    raw = bytearray(sections[tag])
    struct.pack_into("<I", raw, offset, value)
    sections[tag] = bytes(raw)


def patched(*what) -> bytes:
    """A valid request with one word replaced."""
    sections = relus(CPU).sections()
    patch(sections, *what)
    return container(sections)


def in_bundle(*what) -> bytes:
    """A valid request with one word of its bundle replaced."""
    request = relus(CPU)
    patch(request.bundles[0], *what)
    return request.pack()


def without_models() -> bytes:
    request = relus(CPU)
    del request.bundles[0]["MODL"]
    return request.pack()


def without_head() -> bytes:
    sections = relus(CPU).sections()
    del sections["HEAD"]
    return container(sections)


def broken_crc() -> bytes:
    raw = bytearray(relus(CPU).pack())
    raw[-8] ^= 1
    return bytes(raw)


IN, OUT, KEPT = tensor(RANDOM, 4), tensor(SEGMENT, 4), tensor(SEGMENT, 4, keep=True)


def relu(*tensors: packer.Tensor, ends: Sequence[tuple[int, int]] = ((0, 1),)) -> bytes:
    """A relu for each pair of a tensor that it reads and one that it writes."""
    request = Request()
    m = request.model(packer.unary(RELU, 4))
    request.action(tensors, [packer.Segment(CPU, m, [read], [written]) for read, written in ends])
    return request.pack()


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "0 bytes are no container"),
    "text": (lambda: b"hello, this is not a request", 'want "NNPF"'),
    "model": (lambda: container({}, kind=2), "container of kind 2, want 1"),
    "cut": (lambda: relus(CPU).pack()[:-8], "past the container's"),
    "crc": (broken_crc, "has CRC-32"),
    "no head": (without_head, "HEAD: 0 bytes, want 8"),
    "protocol": (lambda: patched("HEAD", 0, 1), "HEAD: protocol version 1"),
    "no models": (without_models, "segment 0: engine 0, accelerator 4294967295, preference"),
    "model outside": (lambda: in_bundle("MODL", 4, 4000), "MODL: model 0: it is cut off or not in"),
    "operand": (lambda: in_bundle("DATA", 24, 77), "MODL: model 0: operand 0: unknown type 77"),
    "bundle": (lambda: patched("DATA", 0, 0), 'want "NNPF"'),
    "bundle outside": (lambda: patched("ACTN", 88, 4000), "bundle: bytes 4000 + "),
    "count": (lambda: patched("ACTN", 0, NONE), "ACTN: 4294967295 items do not fit"),
    "timeout": (lambda: relus(CPU, timeout_ms=0).pack(), "action 0 (id 0): timeout_ms 0"),
    "runs": (lambda: relus(CPU, runs=(5, 2)).pack(), "min_runs 5 and max_runs 2"),
    "untimed": (
        lambda: relus(CPU, flags=packer.UNTIMED).pack(),
        "max_runs 3 and rounds 1, want 1 and 1",
    ),
    "flags": (lambda: relus(CPU, flags=64).pack(), "flags 0x40, known are bits 0 to 4"),
    "id": (lambda: relus(CPU, CPU, id=0).pack(), "two actions have the id 0"),
    "shape": (
        lambda: relu(tensor(RANDOM, 5), OUT),
        "segment 0: tensor 0 has not the type and shape of operand 0",
    ),
    "blob": (lambda: relu(tensor(packer.BLOB, 4), OUT), "input 0: source 1 with value 0, 0 blobs"),
    "unwritten": (lambda: relu(IN, OUT, KEPT), "output 0 is never written"),
    "order": (
        lambda: relu(IN, OUT, OUT, ends=[(1, 2), (0, 1)]),
        "segment 0 reads tensor 1 before it is written",
    ),
    "huge": (
        lambda: relu(tensor(RANDOM, *[0xFFFFFFFF] * 4), OUT),
        "TENS: tensor 0 is cut off, or its type, shape or scale are none",
    ),
    "trailing": (
        lambda: container(relus(CPU).sections() | {"STRS": packer.words(0, 0)}),
        "STRS: 4 bytes stand after its last item",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_malformed(agent, case):
    make, expected = CASES[case]
    answer = agent.run_bytes(make())
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
