"""How tensors reach a segment: shared memory, pointers, asynchronous runs."""

import numpy as np
import pytest

from tests.agent import packer
from tests.agent.packer import ASYNC, COPIES, CPU, NNAPI, POINTERS, Request, Segment, tensor

SHAPE = (1, 3, 5, 2)


@pytest.mark.parametrize(
    "flags", [0, packer.BURST, ASYNC, POINTERS, ASYNC | POINTERS, COPIES, COPIES | POINTERS]
)
@pytest.mark.parametrize("engine", [CPU, NNAPI])
@pytest.mark.parametrize("simulated", [False, True])
def test_two_segments(request, agent, engine, flags, simulated):
    """x -> tanh on an engine -> tanh on the CPU."""
    if simulated:
        request.getfixturevalue("npu_phone")  # the same agent
    two = Request()
    model = two.model(packer.unary(packer.TANH, *SHAPE))
    two.action(
        [tensor(packer.RANDOM, *SHAPE, value=5), *[tensor(packer.SEGMENT, *SHAPE, keep=True)] * 2],
        [Segment(engine, model, [0], [1]), Segment(CPU, model, [1], [2])],
        flags=flags,
    )
    answer = agent.run(two)
    (result,) = answer.results
    assert result["status"] == "ok", result
    y = np.tanh(packer.pseudo_random(5, *SHAPE))
    np.testing.assert_allclose(answer.output(result, 0, *SHAPE), y, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(answer.output(result, 1, *SHAPE), np.tanh(y), rtol=1e-5, atol=1e-6)
    memory = [segment["memory"] for segment in result["segments"]]
    shares = engine == NNAPI and not flags & POINTERS
    assert memory == ["file" if shares else "pointers", "pointers"]
    assert [len(segment["samples_ns"]) for segment in result["segments"]] == [3, 3]
    assert len(result["copies_ns"]) == (3 if flags & COPIES else 0)


@pytest.mark.parametrize("engine", [CPU, NNAPI])
def test_copies_are_in_the_whole_and_in_no_segment(agent, engine):
    """32 MB that a driver maps take more than a millisecond to copy; the CPU engine copies none."""
    request = Request()
    for flags in (0, COPIES):
        request.unary(engine, 8 << 20, source=packer.ZERO, keep=False, flags=flags)
    rests, told = [], []
    for result in agent.run(request).results:
        assert result["status"] == "ok", result
        (segment,) = result["segments"]
        pairs = zip(result["total_ns"], segment["samples_ns"], strict=True)
        rests.append(min(total - sample for total, sample in pairs))
        told.append(min(result["copies_ns"], default=0))
    within, copies = rests
    assert told[0] == 0 and told[1] <= copies < told[1] + 1_000_000
    assert within < 1_000_000
    assert (copies > 1_000_000) == (engine == NNAPI)
