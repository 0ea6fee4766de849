"""Requests that break the protocol: one line of type error, exit code 1, and nothing is run."""

import struct
from collections.abc import Callable

import pytest
from agent_packer import (
    CPU,
    NONE,
    RANDOM,
    RELU,
    SEGMENT,
    UNTIMED,
    Agent,
    Request,
    Tensor,
    container,
    tensor,
    unary,
    words,
)


def valid(**options: object) -> Request:
    request = Request()
    m = request.model(unary(RELU, 4))
    request.action(
        [tensor(RANDOM, 4), tensor(SEGMENT, 4)],
        [request.segment(CPU, m, [0], [1])],
        **options,  # type: ignore[arg-type]
    )
    return request


def patched(tag: str, offset: int, value: int) -> bytes:
    """A valid request with one word of a section replaced and its CRC right."""
    sections = valid().sections()
    raw = bytearray(sections[tag])
    struct.pack_into("<I", raw, offset, value)
    sections[tag] = bytes(raw)
    return container(sections)


def in_bundle(tag: str, offset: int, value: int) -> bytes:
    """A valid request with one word of its bundle replaced."""
    request = valid()
    raw = bytearray(request.bundles[0][tag])
    struct.pack_into("<I", raw, offset, value)
    request.bundles[0][tag] = bytes(raw)
    return request.pack()


def without_models() -> bytes:
    request = valid()
    del request.bundles[0]["MODL"]
    return request.pack()


def with_tensors(*tensors: Tensor) -> bytes:
    request = Request()
    m = request.model(unary(RELU, 4))
    request.action(list(tensors), [request.segment(CPU, m, [0], [1])])
    return request.pack()


def without(tag: str) -> bytes:
    sections = valid().sections()
    del sections[tag]
    return container(sections)


def twice_the_same_id() -> bytes:
    request = valid()
    request.add(valid())
    return request.pack()


def broken_crc() -> bytes:
    raw = bytearray(valid().pack())
    raw[-8] ^= 1
    return bytes(raw)


def read_before_written() -> bytes:
    request = Request()
    m = request.model(unary(RELU, 4))
    request.action(
        [tensor(RANDOM, 4), tensor(SEGMENT, 4), tensor(SEGMENT, 4)],
        [request.segment(CPU, m, [1], [2]), request.segment(CPU, m, [0], [1])],
    )
    return request.pack()


CASES: dict[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: b"", "0 bytes are no container"),
    "text": (lambda: b"hello, this is not a request", 'want "NNPF"'),
    "model": (lambda: container({}, kind=2), "container of kind 2, want 1"),
    "cut": (lambda: valid().pack()[:-8], "past the container's"),
    "crc": (broken_crc, "has CRC-32"),
    "no head": (lambda: without("HEAD"), "HEAD: 0 bytes, want 8"),
    "protocol": (lambda: patched("HEAD", 0, 1), "HEAD: protocol version 1"),
    "no models": (without_models, "segment 0: engine 0, accelerator 4294967295, preference"),
    "model outside": (lambda: in_bundle("MODL", 4, 4000), "MODL: model 0: it is cut off or not in"),
    "operand": (lambda: in_bundle("DATA", 24, 77), "MODL: model 0: operand 0: unknown type 77"),
    "bundle": (lambda: patched("DATA", 0, 0), 'want "NNPF"'),
    "bundle outside": (lambda: patched("ACTN", 88, 4000), "bundle: bytes 4000 + "),
    "count": (lambda: patched("ACTN", 0, NONE), "ACTN: 4294967295 items do not fit"),
    "timeout": (lambda: valid(timeout_ms=0).pack(), "action 0 (id 0): timeout_ms 0"),
    "runs": (lambda: valid(runs=(5, 2)).pack(), "min_runs 5 and max_runs 2"),
    "untimed": (lambda: valid(flags=UNTIMED).pack(), "max_runs 3 and rounds 1, want 1 and 1"),
    "flags": (lambda: valid(flags=64).pack(), "flags 0x40, known are bits 0 to 4"),
    "id": (twice_the_same_id, "two actions have the id 0"),
    "shape": (
        lambda: with_tensors(tensor(RANDOM, 5), tensor(SEGMENT, 4)),
        "segment 0: tensor 0 has not the type and shape of operand 0",
    ),
    "blob": (
        lambda: with_tensors(tensor(1, 4), tensor(SEGMENT, 4)),
        "input 0: source 1 with value 0, 0 blobs",
    ),
    "unwritten": (
        lambda: with_tensors(tensor(RANDOM, 4), tensor(SEGMENT, 4), tensor(SEGMENT, 4, keep=True)),
        "output 0 is never written",
    ),
    "order": (read_before_written, "segment 0 reads tensor 1 before it is written"),
    "huge": (
        lambda: with_tensors(tensor(RANDOM, *[0xFFFFFFFF] * 4), tensor(SEGMENT, 4)),
        "TENS: tensor 0 is cut off, or its type, shape or scale are none",
    ),
    "trailing": (
        lambda: container(valid().sections() | {"STRS": words(0, 0)}),
        "STRS: 4 bytes stand after its last item",
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_malformed(agent: Agent, case: str) -> None:
    make, expected = CASES[case]
    answer = agent.run_bytes(make())
    assert answer.exit_code == 1
    assert [line["type"] for line in answer.lines if line["type"] != "hello"] == ["error"]
    assert answer.error.startswith("request refused: ")
    assert expected in answer.error


def test_unknown_sections_are_passed_over(agent: Agent) -> None:
    answer = agent.run_bytes(container(valid().sections() | {"NEWS": b"of a later version"}))
    assert answer.exit_code == 0
    assert answer.results[0]["status"] == "ok"


def test_no_actions(agent: Agent) -> None:
    answer = agent.run_bytes(Request().pack())
    assert answer.exit_code == 0
    assert [line["type"] for line in answer.lines] == ["hello", "end"]
