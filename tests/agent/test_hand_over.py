"""How tensors reach a segment: changes of layout, shared memory, pointers, asynchronous runs."""

from __future__ import annotations

import numpy as np
import pytest
from agent_packer import (
    ASYNC,
    BURST,
    CPU,
    NNAPI,
    POINTERS,
    RANDOM,
    SEGMENT,
    TANH,
    TO_NCHW,
    TO_NHWC,
    Agent,
    Request,
    pseudo_random,
    tensor,
    unary,
)

NHWC, NCHW = (1, 3, 5, 2), (1, 2, 3, 5)


def reordered(engine: int, flags: int = 0) -> Request:
    """NCHW -> tanh over NHWC -> NCHW -> tanh over NCHW -> NHWC, all orders at once."""
    request = Request()
    last, first = request.model(unary(TANH, *NHWC)), request.model(unary(TANH, *NCHW))
    request.action(
        [tensor(RANDOM, *NCHW, value=5)]
        + [tensor(SEGMENT, *NCHW, keep=True), tensor(SEGMENT, *NHWC, keep=True)],
        [
            request.segment(engine, last, [(0, TO_NHWC)], [(1, TO_NHWC)]),
            request.segment(CPU, first, [1], [(2, TO_NCHW)]),
        ],
        flags=flags,
    )
    return request


@pytest.mark.parametrize("flags", [0, BURST, ASYNC, POINTERS, ASYNC | POINTERS])
@pytest.mark.parametrize("engine", [CPU, NNAPI])
@pytest.mark.parametrize("simulated", [False, True])
def test_orders(
    request: pytest.FixtureRequest, agent: Agent, engine: int, flags: int, simulated: bool
) -> None:
    if simulated:
        request.getfixturevalue("npu_phone")  # the same agent
    answer = agent.run(reordered(engine, flags))
    (result,) = answer.results
    assert result["status"] == "ok", result
    x = pseudo_random(5, *NCHW)
    y = answer.output(result, 0, *NCHW)
    np.testing.assert_allclose(y, np.tanh(x), rtol=1e-5, atol=1e-6)
    z = answer.output(result, 1, *NHWC)
    np.testing.assert_allclose(z, np.tanh(np.tanh(x)).transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)
    memory = [segment["memory"] for segment in result["segments"]]
    shares = engine == NNAPI and not flags & POINTERS
    assert memory == ["shared" if shares else "pointers", "pointers"]
    assert [len(segment["samples_ns"]) for segment in result["segments"]] == [3, 3]
