"""How tensors reach a segment: shared memory, pointers, asynchronous runs; and a segment that is a
converted region, whose filters have a scale for each channel."""

import numpy as np
import pytest
import torch

from nnapi_prof.convert.lower import convert_region
from nnapi_prof.frontend import prepare
from nnapi_prof.graph.plan import Engine
from nnapi_prof.graph.program import all_values, to_memory
from tests.agent import packer
from tests.agent.packer import ASYNC, COPIES, CPU, NNAPI, POINTERS, Request, Segment, tensor
from tests.agent.regions import Channels, computed

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
    assert [each["kernels"] is None for each in result["segments"]] == [engine == NNAPI, False]
    samples = np.array([segment["samples_ns"] for segment in result["segments"]])
    assert samples.shape == (2, 3)
    if agent.info()["simulated"]:  # the clock stands between segments; not on Android's own NNAPI
        assert samples.sum(axis=0).tolist() == result["total_ns"]
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


@pytest.mark.parametrize("engine", [Engine.CPU, Engine.NNAPI])
def test_a_region_with_channel_scales(agent_build, tmp_path, engine):
    x = torch.randn(1, 3, 8, 8, generator=torch.Generator().manual_seed(1))
    program = prepare(torch.export.export(Channels(40).eval(), (x,)), (x,), "layer")
    number = next(u.index for u in program.units.units if "conv2d" in u.label)
    region = convert_region(program, [number], 29)
    assert region.operations == ("CONV_2D",)
    values = all_values(program, (x,))
    actual = computed(agent_build, region, values[region.inputs[0]], tmp_path, engine=engine)
    expected = to_memory(values[region.outputs[0]], region.output_types[0])
    steps = [abs(a - b) for a, b in zip(actual, expected, strict=True)]
    assert max(steps) <= 1
    assert sum(steps) < len(steps) / 50
